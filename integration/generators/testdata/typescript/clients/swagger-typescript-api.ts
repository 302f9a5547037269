import { Api, type HttpResponse, KnownProblemType, type Order, type Problem } from "./generated/api";

export async function use(baseUrl: string): Promise<string[]> {
  const api = new Api({ baseUrl });
  const page = await api.v1.listUsers({ limit: 1 });
  const next = await api.v1.listUsers({ limit: 1, after: page.data.next });
  const headers = { "Idempotency-Key": "api" };
  const order = await api.v1.createOrder({ item: "teapot", qty: 2 }, { headers });
  const { error } = await api.v1.createOrder({ item: "", qty: 2 }, { headers }).catch((r: HttpResponse<Order, Problem>) => r);
  return [`${page.data.data[0]?.id} ${next.data.data[0]?.id}`, `${order.data.qty}`, `${error?.type === KnownProblemType.InvalidOrder} ${error?.errors?.[0]?.pointer}`];
}
