// A client with the types that a generator makes of openapi.json. It creates an order,
// twice with one key, and prints what it would tell its user about it and about other
// orders. Its argument is the URL of the service.

import type { KnownProblemType, NewOrder, Order, Problem } from "./types.js";

type Outcome =
  | { kind: "created" | "replayed"; order: Order }
  | { kind: "again" | "correct" | "give up"; problem: Problem };

// next says what to do about a problem. As there is no default, a type that is left out
// does not compile, and neither does one that is misspelt. With the type of a Problem,
// which is any string, both would.
function next(type: KnownProblemType): "again" | "correct" | "give up" {
  switch (type) {
    case "urn:problem-type:storefront:request-timeout":
    case "urn:problem-type:storefront:idempotency-key-in-progress":
    case "urn:problem-type:storefront:internal-error":
    case "urn:problem-type:storefront:unavailable":
      return "again"; // with the same key
    case "urn:problem-type:storefront:invalid-order":
    case "urn:problem-type:storefront:order-refused":
      return "correct"; // what the user has entered
    case "urn:problem-type:storefront:invalid-query":
    case "urn:problem-type:storefront:malformed-body":
    case "urn:problem-type:storefront:idempotency-key-missing":
    case "urn:problem-type:storefront:idempotency-key-invalid":
    case "urn:problem-type:storefront:idempotency-key-reused":
    case "urn:problem-type:storefront:not-found":
    case "urn:problem-type:storefront:product-not-found":
    case "urn:problem-type:storefront:method-not-allowed":
    case "urn:problem-type:storefront:precondition-failed":
    case "urn:problem-type:storefront:body-too-large":
    case "urn:problem-type:storefront:unsupported-media-type":
    case "urn:problem-type:storefront:not-implemented":
    case "urn:problem-type:storefront:not-cached":
      return "give up"; // this program is wrong
  }
}

async function send(base: string, key: string, order: NewOrder): Promise<Outcome> {
  const response = await fetch(base + "/v1/orders", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    body: JSON.stringify(order),
  });
  if (response.status === 201) {
    const kind = response.headers.get("Idempotent-Replayed") ? "replayed" : "created";
    return { kind, order: (await response.json()) as Order };
  }
  const problem = (await response.json()) as Problem;
  // A later version of the service may have types that this program does not know.
  const kind = next(problem.type as KnownProblemType) ?? (problem.status >= 500 ? "again" : "give up");
  return { kind, problem };
}

declare const process: { argv: string[] };
const base = process.argv[2] ?? "http://localhost:8080";

for (const order of [{ item: "teapot", qty: 2 }, { item: "teapot", qty: 2 }, { item: "", qty: 0 }, { item: "kettle", qty: 2 }]) {
  const outcome = await send(base, "key", order);
  if ("order" in outcome) {
    console.log(outcome.kind, outcome.order.qty, outcome.order.item);
  } else {
    const { type, errors } = outcome.problem;
    console.log(outcome.kind, type.replace(/.*:/, ""), ...(errors ?? []).map((fault) => fault.pointer ?? fault.header));
  }
}
