import { createOrder, KnownProblemType, listUsers } from "./generated/api";

export async function use(base: string): Promise<string[]> {
  const plain = globalThis.fetch;
  globalThis.fetch = (path, init) => plain(base + path, init);
  const page = await listUsers({ limit: 1 });
  if (page.status !== 200) throw page;
  const next = await listUsers({ limit: 1, after: page.data.next });
  if (next.status !== 200) throw next;
  const headers = { "Idempotency-Key": "orval" };
  const order = await createOrder({ item: "teapot", qty: 2 }, { headers });
  if (order.status !== 201) throw order;
  const refused = await createOrder({ item: "", qty: 2 }, { headers });
  if (refused.status !== 422) throw refused;
  const { type, errors } = refused.data;
  return [`${page.data.data[0]?.id} ${next.data.data[0]?.id}`, `${order.data.qty}`, `${type === KnownProblemType.InvalidOrder} ${errors?.[0]?.pointer}`];
}
