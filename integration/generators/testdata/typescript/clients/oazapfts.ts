import { createOrder, defaults, listUsers } from "./generated/api";

export async function use(base: string): Promise<string[]> {
  defaults.baseUrl = base;
  const page = await listUsers({ limit: 1 });
  if (page.status !== 200) throw page;
  const next = await listUsers({ limit: 1, after: page.data.next });
  if (next.status !== 200) throw next;
  const order = await createOrder("oazapfts", { item: "teapot", qty: 2 });
  if (order.status !== 201) throw order;
  const refused = await createOrder("oazapfts", { item: "", qty: 2 });
  if (refused.status !== 422) throw refused;
  const { type, errors } = refused.data;
  return [`${page.data.data[0]?.id} ${next.data.data[0]?.id}`, `${order.data.qty}`, `${type === "urn:problem-type:storefront:invalid-order"} ${errors?.[0]?.pointer}`];
}
