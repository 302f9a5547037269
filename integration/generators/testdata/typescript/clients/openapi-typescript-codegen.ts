import { ApiError, KnownProblemType, OpenAPI, OrdersService, type Problem, UsersService } from "./generated";

export async function use(base: string): Promise<string[]> {
  OpenAPI.BASE = base;
  const page = await UsersService.listUsers(1);
  const next = await UsersService.listUsers(1, page.next);
  const order = await OrdersService.createOrder("codegen", { item: "teapot", qty: 2 });
  const problem: Problem = await OrdersService.createOrder("codegen", { item: "", qty: 2 }).then(
    () => { throw new Error("it was created"); },
    (e: ApiError) => e.body,
  );
  return [`${page.data[0]?.id} ${next.data[0]?.id}`, `${order.qty}`, `${problem.type === KnownProblemType.InvalidOrder} ${problem.errors?.[0]?.pointer}`];
}
