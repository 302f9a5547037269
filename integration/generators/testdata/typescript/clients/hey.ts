import { createOrder, listUsers, type KnownProblemType } from "./generated";

export async function use(baseUrl: string): Promise<string[]> {
  const page = await listUsers({ baseUrl, query: { limit: 1 } });
  const next = await listUsers({ baseUrl, query: { limit: 1, after: page.data?.next ?? "" } });
  const headers = { "Idempotency-Key": "hey" };
  const order = await createOrder({ baseUrl, headers, body: { item: "teapot", qty: 2 } });
  const { error } = await createOrder({ baseUrl, headers, body: { item: "", qty: 2 } });
  const wanted: KnownProblemType = "urn:problem-type:storefront:invalid-order";
  return [`${page.data?.data[0]?.id} ${next.data?.data[0]?.id}`, `${order.data?.qty}`, `${error?.type === wanted} ${error?.errors?.[0]?.pointer}`];
}
