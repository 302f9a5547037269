// The clients of libraries for Node.js, as people write them: `node clients.mjs NAME` speaks the lines of
// `storefront -trouble`. `node clients.mjs` alone prints each name, with the versions of its packages.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const url = process.env.STOREFRONT_URL + "/v1/orders";
const uuid = () => crypto.randomUUID();
const headersOf = (key) => ({ "Content-Type": "application/json", "Idempotency-Key": key });
const post = (key, order, settings) =>
  ({ method: "POST", headers: headersOf(key), body: JSON.stringify(order), ...settings });
const json = async (response) => {
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
};

// careful is the loop of clients/javascript and docs/wire.md. `once` sends one try, without retries
// of its own, and resolves with its status, Retry-After and body. It is left after 40 s: a signal of which a
// library makes another may be collected, and then never aborts (nodejs/node#57736).
async function careful(once) {
  for (let pause = 250, end = Date.now() + 12 * 3600e3; Date.now() < end; pause = Math.min(2 * pause, 60e3)) {
    const none = { status: 0 };
    const { status, wait, text } = await Promise.race([once().catch(() => none),
      new Promise((done) => setTimeout(done, 40e3, none))]);
    let order;
    try {
      if (status === 201) order = JSON.parse(text);
    } catch {}
    if (typeof order?.id === "string" && order.id) return order;
    if (![0, 201, 408, 409, 429].includes(status) && (status < 500 || status === 501)) {
      throw new Error(`status ${status}: ${text}`);
    }
    const seconds = /^\d+$/.test(wait) ? Math.min(Number(wait), 3600) : 0;
    await new Promise((done) => setTimeout(done, seconds * 1000 + Math.random() * pause));
  }
  throw new Error("no answer");
}
const fetched = async (response) =>
  ({ status: response.status, wait: response.headers.get("retry-after"), text: await response.text() });

// Each entry: the packages, and a function that loads them and returns the client.
const clients = {
  "fetch, one try": [[], async () => async (key, order) =>
    json(await fetch(url, post(key, order)))],
  "fetch, loop of wire.md": [[], async () => (key, order) => careful(async () => fetched(await fetch(url,
    post(key, order, { redirect: "manual", signal: AbortSignal.timeout(40e3) }))))],

  "p-retry, fetch": [["p-retry"], async () => {
    const { default: retry } = await import("p-retry");
    return (key, order) => retry(async () => json(await fetch(url, post(key, order))),
      { retries: 5, minTimeout: 250 });
  }],
  "fetch-retry": [["fetch-retry"], async () => {
    const retrying = (await import("fetch-retry")).default(fetch);
    return async (key, order) => json(await retrying(url, post(key, order,
      { retries: 5, retryDelay: (n) => 250 * 2 ** n, retryOn: [408, 409, 429, 500, 502, 503, 504] })));
  }],

  "node-fetch, loop": [["node-fetch"], async () => {
    const { default: get } = await import("node-fetch");
    return async (key, order) => {
      for (let n = 0; ; n++) {
        try {
          return await json(await get(url, post(key, order)));
        } catch (e) {
          if (n === 5) throw e;
          await new Promise((done) => setTimeout(done, 250 * 2 ** n));
        }
      }
    };
  }],
  "node-fetch, loop of wire.md": [["node-fetch"], async () => {
    const { default: get } = await import("node-fetch");
    return (key, order) => careful(async () => fetched(await get(url,
      post(key, order, { redirect: "manual", signal: AbortSignal.timeout(40e3) }))));
  }],

  "got": [["got"], async () => {
    const { got } = await import("got");
    return (key, order) => got.post(url, { headers: headersOf(key), json: order }).json();
  }],
  "got, POST retried": [["got"], async () => {
    const { got } = await import("got");
    return (key, order) => got.post(url, { headers: headersOf(key), json: order,
      retry: { limit: 5, methods: ["POST"] }, timeout: { request: 40e3 } }).json();
  }],
  "got, POST retried, a key in beforeRequest": [["got"], async () => {
    const { got } = await import("got");
    return (key, order) => got.post(url, { json: order, retry: { limit: 5, methods: ["POST"] },
      timeout: { request: 40e3 }, hooks: {
        beforeRequest: [(o) => { o.headers["idempotency-key"] = uuid(); }],
        beforeRetry: [(e) => { e.options.headers["idempotency-key"] = uuid(); }] } }).json();
  }],
  "got, loop of wire.md": [["got"], async () => {
    const { got } = await import("got");
    return (key, order) => careful(async () => {
      const r = await got.post(url, { headers: headersOf(key), json: order, retry: { limit: 0 },
        timeout: { request: 40e3 }, followRedirect: false, throwHttpErrors: false });
      return { status: r.statusCode, wait: r.headers["retry-after"], text: r.body };
    });
  }],

  "ky": [["ky"], async () => {
    const { default: ky } = await import("ky");
    return (key, order) => ky.post(url, { headers: headersOf(key), json: order }).json();
  }],
  "ky, POST retried": [["ky"], async () => {
    const { default: ky } = await import("ky");
    return (key, order) => ky.post(url, { headers: headersOf(key), json: order,
      retry: { limit: 5, methods: ["post"], retryOnTimeout: true } }).json();
  }],
  "ky, loop of wire.md": [["ky"], async () => {
    const { default: ky } = await import("ky");
    return (key, order) => careful(async () => fetched(await ky.post(url, {
      headers: headersOf(key), json: order, retry: 0, timeout: false, signal: AbortSignal.timeout(40e3),
      redirect: "manual", throwHttpErrors: false })));
  }],

  "axios": [["axios"], async () => {
    const { default: axios } = await import("axios");
    return async (key, order) => (await axios.post(url, order, { headers: headersOf(key) })).data;
  }],
  "axios-retry": [["axios", "axios-retry"], async () => {
    const { default: axios } = await import("axios");
    (await import("axios-retry")).default(axios, { retries: 5 });
    return async (key, order) => (await axios.post(url, order, { headers: headersOf(key) })).data;
  }],
  "axios-retry, POST retried": [["axios", "axios-retry"], async () => {
    const { default: axios } = await import("axios");
    const axiosRetry = await import("axios-retry");
    axiosRetry.default(axios, { retries: 5, retryDelay: axiosRetry.exponentialDelay, shouldResetTimeout: true,
      retryCondition: (e) => axiosRetry.isNetworkError(e) || axiosRetry.isRetryableError(e) });
    return async (key, order) =>
      (await axios.post(url, order, { headers: headersOf(key), timeout: 40e3 })).data;
  }],
  "axios-retry, POST retried, a key in an interceptor": [["axios", "axios-retry"], async () => {
    const { default: axios } = await import("axios");
    const axiosRetry = await import("axios-retry");
    axios.interceptors.request.use((c) => { c.headers["Idempotency-Key"] = uuid(); return c; });
    axiosRetry.default(axios, { retries: 5, retryDelay: axiosRetry.exponentialDelay, shouldResetTimeout: true,
      retryCondition: (e) => axiosRetry.isNetworkError(e) || axiosRetry.isRetryableError(e) });
    return async (key, order) => (await axios.post(url, order, { timeout: 40e3 })).data;
  }],
  "axios, loop of wire.md": [["axios"], async () => {
    const { default: axios } = await import("axios");
    return (key, order) => careful(async () => {
      const r = await axios.post(url, order, { headers: headersOf(key), maxRedirects: 0, responseType: "text",
        transformResponse: [], validateStatus: () => true, signal: AbortSignal.timeout(40e3) });
      return { status: r.status, wait: r.headers["retry-after"], text: r.data };
    });
  }],

  "undici, RetryAgent": [["undici"], async () => {
    const { RetryAgent, Agent, request } = await import("undici");
    const dispatcher = new RetryAgent(new Agent(), { methods: ["POST"], maxRetries: 5 });
    return async (key, order) => {
      const r = await request(url, post(key, order, { dispatcher }));
      if (r.statusCode >= 400) throw new Error(`status ${r.statusCode}`);
      return r.body.json();
    };
  }],
  "undici, loop of wire.md": [["undici"], async () => {
    const { request } = await import("undici");
    return (key, order) => careful(async () => {
      const r = await request(url, post(key, order, { signal: AbortSignal.timeout(40e3) }));
      return { status: r.statusCode, wait: r.headers["retry-after"], text: await r.body.text() };
    });
  }],

  "superagent": [["superagent"], async () => {
    const { default: superagent } = await import("superagent");
    return async (key, order) => (await superagent.post(url).set(headersOf(key)).send(order).retry(5)).body;
  }],
  "superagent, loop of wire.md": [["superagent"], async () => {
    const { default: superagent } = await import("superagent");
    return (key, order) => careful(async () => {
      const r = await superagent.post(url).set(headersOf(key)).send(order).redirects(0).ok(() => true)
        .timeout({ deadline: 40e3 }).buffer(true).parse(superagent.parse.text);
      return { status: r.status, wait: r.headers["retry-after"], text: r.text };
    });
  }],

  "openapi-fetch": [["openapi-fetch"], async () => {
    const { default: createClient } = await import("openapi-fetch");
    const shop = createClient({ baseUrl: process.env.STOREFRONT_URL });
    return async (key, order) => {
      const { data, error } = await shop.POST("/v1/orders",
        { params: { header: { "Idempotency-Key": key } }, body: order });
      if (error) throw new Error(JSON.stringify(error));
      return data;
    };
  }],
  "openapi-fetch, loop of wire.md": [["openapi-fetch"], async () => {
    const { default: createClient } = await import("openapi-fetch");
    const shop = createClient({ baseUrl: process.env.STOREFRONT_URL, redirect: "manual" });
    return (key, order) => careful(async () => {
      const { data, error, response } = await shop.POST("/v1/orders",
        { params: { header: { "Idempotency-Key": key } }, body: order, parseAs: "text",
          signal: AbortSignal.timeout(40e3) });
      return { status: response.status, wait: response.headers.get("retry-after"), text: data ?? error };
    });
  }],

  "needle": [["needle"], async () => {
    const { default: needle } = await import("needle");
    return async (key, order) => {
      const r = await needle("post", url, order, { json: true, headers: headersOf(key) });
      if (r.statusCode >= 400) throw new Error(`status ${r.statusCode}`);
      return r.body;
    };
  }],
  "needle, loop of wire.md": [["needle"], async () => {
    const { default: needle } = await import("needle");
    return (key, order) => careful(async () => {
      const r = await needle("post", url, JSON.stringify(order), { headers: headersOf(key), parse: false,
        response_timeout: 40e3, read_timeout: 40e3, signal: AbortSignal.timeout(40e3) });
      return { status: r.statusCode, wait: r.headers["retry-after"], text: String(r.body) };
    });
  }],

  "make-fetch-happen": [["make-fetch-happen"], async () => {
    const { default: get } = await import("make-fetch-happen");
    return async (key, order) => json(await get(url, post(key, order, { retry: 5 })));
  }],
};

const client = clients[process.argv[2]];
if (!client) {
  for (const [name, [packages]] of Object.entries(clients)) {
    const versions = packages.map((p) => p + " " +
      JSON.parse(readFileSync(new URL(`node_modules/${p}/package.json`, import.meta.url))).version);
    console.log([name, ...(versions.length ? versions : ["node " + process.versions.node])].join("\t"));
  }
  process.exit();
}
const place = await client[1]();
for await (const line of createInterface({ input: process.stdin })) {
  const outcome = JSON.parse(line);
  const { item, qty } = outcome;
  try {
    if (!item) throw new Error("orders only");
    const order = await place(uuid(), { item, qty });
    outcome.id = String(order?.id ?? "");
  } catch (e) {
    outcome.error = String(e?.message ?? e);
  }
  console.log(JSON.stringify(outcome));
}
process.exit();
