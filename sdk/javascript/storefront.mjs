// A client for the storefront, one file to copy, for browsers and for Node.js 20.16 or later. It needs
// nothing else. It keeps the rules of docs/wire.md, "How to retry well".
//
//   const shop = new Shop("http://localhost:8080");
//   const journal = await shop.journal("orders"); // a folder; in a browser, a database
//   const order = await journal.order("basket 17", "teapot", 2); // one order, even if this is killed

/**
 * @typedef {{ id: string, [member: string]: any }} Item of a list, or a product
 * @typedef {{ id: string, item: string, qty: number, fields?: any, created_at: string, [member: string]: any }} Order
 * @typedef {Record<string, any> | string} Fields of an order: what JSON.stringify makes an object of, or the
 *   text of one, which is sent as it is, with numbers that JavaScript does not have
 * @typedef {{ type: string, title?: string, status?: number, detail?: string, instance?: string,
 *   errors?: any[], reason?: string }} Problem
 * @typedef {{ version: 1, key: string, body: string, made: number, begun: number }} Stored draft
 * @typedef {{ shop: string, account: string, name: string }} ID of an order
 * @typedef {Stored & ID & { order?: Order, refused?: Problem }} Entry of a journal
 * @typedef {Record<string, string>} HeaderFields
 * @typedef {{ method: string, path: string, key: string, status: number, answer: string, seconds: number }} Try of
 *   a request. Its status is 0 if no answer came, or a part of one, or if headers() has failed; then answer says
 *   why. key is the Idempotency-Key of an order, or empty.
 * @typedef {{ signal?: AbortSignal }} Abort
 * @typedef {Abort & { patience?: number }} Until when to go on: for so many seconds, or until it is aborted
 */

/**
 * @typedef {{ tag: string, text: string, asker: string }} Kept product, and the headers for which it came
 * @typedef {{ method: string, headers: Headers, body?: string, signal: AbortSignal }} Sent request
 * @typedef {Pick<Response, "status" | "headers" | "text"> & { body: any }} Received answer to it
 */

/**
 * @typedef {object} Options
 * @property {HeaderFields | (() => HeaderFields | Promise<HeaderFields>)} [headers] to be sent with each request, such as a
 *   sign-in; a function is called before each try
 * @property {string | (() => string | Promise<string>)} [account] says whose sign-in that is, by a name that
 *   stays, or as a function: an order is sent as long as it is the same
 * @property {number} [patience] for how many seconds one call of order goes on: twelve hours, or less for
 *   those who have a queue
 * @property {number} [readPatience] the same for reads: two minutes
 * @property {number} [remember] how many products are kept, so that the service need not send again what
 *   has not changed
 * @property {typeof fetch} [fetch] in place of the browser's, or of the HTTP client of Node.js
 * @property {(text: string) => any} [parse] in place of JSON.parse, for what is returned: JavaScript's rounds
 *   numbers of more than 15 digits
 * @property {(one: Try) => unknown} [onTry] is called after each try, for a log
 */

const TRY = 40; // seconds for one try, all of its answer included
const LIFETIME = 23 * 3600; // of a draft; the service remembers its key for 24 hours
const APART = 3600; // so far two clocks may be apart
const RELEASED = Date.UTC(2026, 0) / 1000; // before which no clock is right
const MOST = 2 ** 20; // bytes of an answer, or 16 times as many of one that was read
const MOST_OF_ENTRY = 2 ** 26;
const ORDERS = "/v1/orders";
const PROBLEM = "urn:problem-type:storefront:";
// Of a request that was right when it was sent: something on its way has changed it, or leads elsewhere.
const CHANGED = ["idempotency-key-missing", "idempotency-key-invalid", "unsupported-media-type", "invalid-query",
  "not-found", "method-not-allowed", "precondition-failed"];
const DATE = /^\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT$/; // IMF-fixdate of RFC 9110, 5.6.7
const ASK = "ask the shop by its key whether the order exists, and do not keep the draft";

/** What has not come: see its classes. status and answer are of the last answer, if there was one; problem
 * is its problem document if the service wrote it; code is the end of its type, such as "order-refused". */
export class StorefrontError extends Error {
  /** @param {string} why @param {Answer} [answer] @param {Draft} [draft] */
  constructor(why, answer, draft) {
    let last = answer?.text || "no answer";
    if (answer?.status) last = `${answer.status}: ${last.slice(0, 1000)}`;
    if (draft) why = `the order with the key ${draft.key}: ${why}`;
    if (draft?.begun === 0 && new.target !== Refused) {
      why += `; a clock was wrong when it was made or sent, so its age is unknown: ${ASK}`;
    }
    super(`${why}: ${last}`);
    this.name = new.target.name;
    this.status = answer?.status ?? 0;
    this.answer = answer?.status ? answer.text : "";
    this.problem = answer?.problem;
    this.code = answer?.code ?? "";
    this.draft = draft;
  }
}

/** The service refused, as problem says. Of an order, no try of this Draft has created anything. One of a
 * copy, as Draft.from makes it, may still do so, unless a journal keeps the draft. */
export class Refused extends StorefrontError {}

/** Something in front of the service has answered. An order may exist: put right what the answer says, such
 * as the URL or the sign-in, and go on with the same draft. */
export class Blocked extends StorefrontError {}

/** No answer was final, or the last one does not say what became of earlier tries. An order may exist, or
 * still come to exist: keep the draft, and go on with it later. If it is too old, ask the shop. */
export class Unknown extends StorefrontError {}

/** The folder or the database of a journal has failed, as cause says. What the journal has is as it was, and no
 * more was sent: put right what the message says, and call again. */
export class JournalError extends Unknown {
  /** @param {any} cause @param {string} [advice] */
  constructor(cause, advice = ADVICE[cause?.name]) {
    super(`the journal has failed${advice ? `; ${advice}` : ""}`, new Answer(0, new Headers(), String(cause)));
    this.cause = cause;
  }
}

const FORBIDDEN = "the browser keeps nothing for this page, as in some private windows, or if the user wants it so";
/** @type {Record<string, string>} */
const ADVICE = { // by names of DOMExceptions
  QuotaExceededError: "there is no more room for this site: free some",
  VersionError: "a newer version of this page has changed it: load the page again",
  TimeoutError: "close or reload the other pages of this site, and call again",
  SecurityError: FORBIDDEN,
};

/** Returns what a folder or a database does, whose failure is a JournalError.
 * @template T @param {() => Promise<T>} work @returns {Promise<T>} */
async function stored(work) {
  try {
    return await work();
  } catch (err) {
    throw err instanceof StorefrontError ? err : new JournalError(err);
  }
}

/** An order that is to be placed, with its key. However often it is sent, it is one order at most. Make it
 * when the order is to be sent, as it can be sent for 23 hours, and store its JSON before it is, with the
 * shop and the account that it is for. */
export class Draft {
  /** @param {string} item @param {number} qty @param {Fields} [fields] */
  constructor(item, qty, fields) {
    this.key = random(16);
    this.body = JSON.stringify({ item, qty }); // of a later version, it may have more
    if (fields !== undefined) this.body = `${this.body.slice(0, -1)},"fields":${textOf(fields)}}`;
    this.made = Date.now() / 1000;
    this.begun = this.made; // since when it may have been sent; 0: a clock was wrong, and nobody knows
    ordered(this);
    tries.set(this, 0);
  }

  /** An error says that it is no draft, or that another version wrote it, which can go on with it.
   * @param {any} stored what JSON.stringify has made of a draft */
  static from({ version, key, body, made, begun = made, ...others }) {
    const unknown = Object.keys(others);
    if (version !== 1 || unknown.length > 0) {
      throw new RangeError(`another version has to go on with this draft of version ${version}: ${unknown}`);
    }
    /** @type {Draft} */
    const draft = Object.assign(Object.create(Draft.prototype), { key, body, made, begun });
    ordered(draft);
    return draft;
  }

  /** @returns {Stored} */
  toJSON() {
    const { key, body, made, begun } = this;
    return { version: 1, key, body, made, begun };
  }
}

/** Returns what a draft orders, as exact has it, or throws if it is none.
 * @param {Draft} draft */
function ordered({ key, body, made, begun }) {
  const order = JSON.parse(check(body));
  if (!/^[!#-+\--[\]-~]{1,255}$/.test(check(key)) || !Number.isFinite(made) || !Number.isFinite(begun)) {
    throw new RangeError("this is no draft");
  }
  if (!Number.isSafeInteger(order?.qty)) throw new RangeError(`${order?.qty} is no quantity`);
  check(order.item);
  if (order.fields !== undefined && !isObject(order.fields)) throw new RangeError("its fields are no object");
  return exact(body);
}

/** Returns the text of the fields of an order.
 * @param {Fields} fields */
function textOf(fields) {
  let why = "";
  try {
    const text = typeof fields === "string" ? fields : JSON.stringify(fields, (_, value) => {
      if (typeof value !== "number" || Number.isFinite(value)) return value;
      throw new RangeError(`JSON has no ${value}`);
    });
    if (isObject(JSON.parse(text))) return text;
  } catch (/** @type {any} */ err) {
    why = `: ${err.message}`;
  }
  throw new RangeError(`fields are an object, or the text of one in JSON${why}`);
}

const AGELESS = "not sent again";

/** Returns why a draft may not be sent, or nothing.
 * @param {{ made: number, begun: number }} draft */
function stale({ made, begun }) {
  const clock = Date.now() / 1000;
  if (clock < RELEASED) {
    return `the clock of this machine is wrong (${new Date(1000 * clock).toISOString()}): set it, and call again`;
  }
  if (begun === 0 || Math.max(made, begun) > clock + APART) return AGELESS;
  return clock < begun + LIFETIME ? "" : `too old to be sent again: ${ASK}`;
}

/** How many tries of a draft may have created the order, or may still create it. Of one that is not here, nobody
 * knows.
 * @type {WeakMap<Draft, number>} */
const tries = new WeakMap();
/** @param {Draft} draft @param {number} more */
const count = (draft, more) => tries.set(draft, (tries.get(draft) ?? 1) + more);

export class Shop {
  /** @param {string} url @param {Options} [options] */
  constructor(url, {
    headers = {}, account = "", patience = 12 * 3600, readPatience = 120, remember = 0, fetch, onTry,
    parse = JSON.parse,
  } = {}) {
    this.url = base(url);
    this.account = account;
    this.patience = patience;
    this.readPatience = readPatience;
    this.headers = headers;
    this.remember = remember;
    this.fetch = fetch;
    this.onTry = onTry;
    this.parse = parse;
    /** @type {Map<string, Kept>} */
    this.products = new Map();
    if (typeof headers !== "function") new Headers(headers); // throws if HTTP cannot say them
  }

  /** Sends a draft until an answer is final, and returns the order that was created. An error is Refused,
   * Blocked or Unknown. It is sent once at least.
   * @param {Draft} draft @param {Until} [until] @returns {Promise<Order>} */
  async order(draft, { patience = this.patience, signal } = {}) {
    const account = await this.signedIn(signal, undefined, draft);
    return (await this.settle(draft, patience, signal, account)).parsed;
  }

  /** Is order, for a journal. held is called before each try, which is not sent if it throws, and keep when it
   * turns out that a clock is or was wrong, after which no later call may send the draft.
   * @param {Draft} draft @param {number} patience @param {AbortSignal | undefined} signal
   * @param {string} account @param {() => Promise<void>} [held] @param {() => Promise<void>} [keep]
   * @returns {Promise<Answer>} */
  async settle(draft, patience, signal, account, held = async () => {}, keep = async () => {}) {
    const pauses = new Pauses(patience, signal);
    const headers = { "Content-Type": "application/json", "Idempotency-Key": draft.key };
    /** @type {Answer | undefined} */
    let answer;
    let cuts = 3;
    const { made, begun } = draft;
    const doubt = async () => {
      if (draft.begun === 0) return;
      draft.begun = 0;
      await keep();
    };
    const young = async () => {
      const why = stale({ made, begun });
      if (why === AGELESS) await doubt();
      if (why) throw new Unknown(why, answer, draft);
    };
    const ready = async () => {
      const whose = await this.signedIn(signal, answer, draft);
      if (account !== whose) throw new Unknown("another account has signed in", answer, draft);
      await held();
      await young(); // who says who signs in may have waited for a person, or slept with the machine
      count(draft, 1);
    };
    const blocked = () => new Blocked("something in front of the service changes requests", answer, draft);
    for (;;) {
      await young();
      const sent = Date.now();
      answer = await this.send("POST", ORDERS, headers, ready, { body: draft.body, signal });
      if (answer.status === 201 && isOrder(answer.exact(), draft)) return answer;
      const date = Date.parse(DATE.exec(answer.header("Date"))?.[0] ?? ""); // NaN is neither
      if (date < sent - 1000 * APART || date > Date.now() + 1000 * APART) await doubt();
      const refused = answer.refuses && answer.code !== "idempotency-key-reused";
      if (refused) count(draft, -1);
      const changed = CHANGED.includes(answer.code);
      const cut = (changed || answer.code === "malformed-body") && cuts-- > 0; // on its way
      if (!answer.again && !cut) {
        if (changed) throw blocked();
        if (refused && tries.get(draft) === 0) throw new Refused("refused", answer, draft);
        if (answer.refuses) throw new Unknown("refused, but the key may have an order", answer, draft);
        throw new Blocked("something in front of the service has answered", answer, draft);
      }
      if (await pauses.wait(answer)) continue;
      throw changed ? blocked() : new Unknown("no final answer", answer, draft);
    }
  }

  /** Returns whose sign-in it is now.
   * @param {AbortSignal} [signal] @param {Answer} [answer] @param {Draft} [draft] */
  async signedIn(signal, answer, draft) {
    const { account } = this;
    if (typeof account !== "function") return account;
    try {
      return await within(signal, async () => account());
    } catch (err) {
      throw Object.assign(new Unknown(`account() has failed: ${err}`, answer, draft), { cause: err });
    }
  }

  /** Opens the journal in a folder of Node.js, or in a database of the browser.
   * @param {string} name */
  async journal(name) {
    const node = globalThis.process?.getBuiltinModule;
    return new Journal(this, await stored(() => (node ? openFolder(name, node) : openDatabase(name))));
  }

  /** Yields the orders of the account, the newest first, page by page. As each read of orders, it throws Refused
   * if the shop does not let clients read them: the code is method-not-allowed, or not-found.
   * @param {Abort & { limit?: number }} [options] */
  orders({ limit, signal } = {}) {
    return this.walk(ORDERS, "after", limit, signal);
  }

  /** Returns an order, perhaps with more that the shop says of it. It throws Refused with the code order-not-found
   * if the account has none with this ID.
   * @param {string} id @param {Abort} [options] @returns {Promise<Order>} */
  async getOrder(id, { signal } = {}) {
    const account = await this.signedIn(signal);
    const path = `${ORDERS}/${segment(id)}`;
    return (await this.read(path, ({ object }) => object.id === id, { signal, account })).parsed;
  }

  /** Returns the order that a draft, or an entry of a journal, has become, or nothing if there is none so far. A
   * try that is on its way, or waits in the database while the shop takes no orders, may still create it: to give
   * it up, wait until the shop takes orders, and some minutes more. The shop remembers the key for 24 hours.
   * @param {{ key: string, body: string }} draft @param {Abort} [options] @returns {Promise<Order | undefined>} */
  async findOrder(draft, { signal } = {}) {
    return this.find(draft, await this.signedIn(signal), signal);
  }

  /** @param {{ key: string, body: string }} draft @param {string} account @param {AbortSignal} [signal]
   * @returns {Promise<Order | undefined>} */
  async find(draft, account, signal) {
    const query = encodeURIComponent(`"${draft.key}"`);
    const answer = await this.read(`${ORDERS}?idempotency_key=${query}`, (answer) => {
      const orders = answer.exact()?.sdata;
      const one = isPage(answer) && !answer.object.has_more && Array.isArray(orders) && orders.length < 2;
      return one && orders.every((order) => isOrder(order, draft));
    }, { signal, account });
    return answer.parsed.data[0];
  }

  /** Yields the users, page by page. An error says that the list was not read to its end.
   * @param {Abort & { limit?: number }} [options] */
  users({ limit, signal } = {}) {
    return this.walk("/v1/users", "after", limit, signal);
  }

  /** @param {Abort & { limit?: number }} [options] */
  widgets({ limit = 50, signal } = {}) {
    return this.walk("/v2/widgets", "start", limit, signal);
  }

  /** Returns a product. With maxAge, it may be as many seconds old. It throws Refused with the code
   * product-not-found if there is none.
   * @param {string} id @param {Abort & { maxAge?: number }} [options] @returns {Promise<Item>} */
  async product(id, { maxAge, signal } = {}) {
    const path = `/v1/products/${segment(id)}`;
    const kept = this.products.get(id);
    const answer = await this.read(path, ({ object }) => object.id === id, { signal, maxAge, kept });
    if (answer.status === 304 && kept) return this.parse(kept.text);
    const tag = answer.header("ETag");
    this.products.delete(id);
    // A weak tag may be that of what another account gets, too.
    if (tag.startsWith('"') && !/no-store/i.test(answer.header("Cache-Control"))) {
      this.products.set(id, { tag, text: answer.text, asker: answer.asker });
    }
    for (const oldest of this.products.keys()) {
      if (this.products.size <= this.remember) break;
      this.products.delete(oldest);
    }
    return answer.parsed;
  }

  /** @private @param {string} path @param {string} parameter @param {number} [limit]
   * @param {AbortSignal} [signal] @returns {AsyncGenerator<Item, void, void>} */
  async *walk(path, parameter, limit, signal) {
    const query = new URLSearchParams(limit === undefined ? {} : { limit: `${limit}` });
    const account = path === ORDERS ? await this.signedIn(signal) : undefined;
    let last = "", seen = new Set();
    const goesOn = (/** @type {Answer} */ answer) => isPage(answer) &&
      [last, ...answer.object.data.map((/** @type {Item} */ { id }) => inBytes(id))].every((id, i, all) =>
        i === 0 || all[i - 1] === "" || (path === ORDERS ? id < all[i - 1] : id > all[i - 1]));
    for (;;) {
      const answer = await this.read(path, goesOn, { signal, account, query });
      const { data, has_more, next } = answer.object;
      if (data.length > 0) {
        last = inBytes(data.at(-1).id);
        seen = new Set();
      }
      if (has_more && seen.has(next)) throw new Blocked("the list goes round in a circle", answer);
      yield* answer.parsed.data;
      if (!has_more) return;
      seen.add(next);
      query.set(parameter, next);
    }
  }

  /** Reads until an answer is final. An account that is given is the one who may ask. A query that is given is
   * that of a list: pages that do not come to their end become shorter.
   * @private @param {string} path @param {(answer: Answer) => boolean} usable
   * @param {Abort & { maxAge?: number, kept?: Kept, account?: string, query?: URLSearchParams }} options */
  async read(path, usable, { signal, maxAge, kept, account, query }) {
    let pauses = new Pauses(this.readPatience, signal);
    /** @type {HeaderFields} */
    const headers = maxAge === undefined ? {} : { "Cache-Control": `max-age=${maxAge}` };
    const ready = async () => {
      if (account === undefined || account === (await this.signedIn(signal))) return;
      throw new Unknown("another account has signed in");
    };
    for (;;) {
      const limit = Number(query?.get("limit") ?? 50);
      const target = `${path}${query?.size ? `?${query}` : ""}`;
      const answer = await this.send("GET", target, headers, ready, { kept, signal });
      if (answer.status === 200 && answer.object && usable(answer)) return answer;
      if (answer.status === 304 && kept?.asker === answer.asker) return answer;
      if (answer.coded || (![200, 304].includes(answer.status) && !answer.again) || answer.code === "not-cached") {
        const closed = path.startsWith(ORDERS) && ["not-found", "method-not-allowed"].includes(answer.code);
        const why = closed ? "this shop does not let clients read orders: " : "";
        const errors = answer.problem?.errors; // of a version that is not known, or nonsense
        const own = closed || (Array.isArray(errors) && errors.every((one) =>
          one?.parameter === "idempotency_key" ||
          (one?.parameter === "limit" && (limit < one.minimum || limit > one.maximum))));
        const refused = answer.code && (own || !CHANGED.includes(answer.code));
        throw new (refused ? Refused : Blocked)(`${why}GET ${target}`, answer);
      }
      if (answer.broken && query && limit > 1) {
        query.set("limit", `${Math.floor(limit / 2)}`);
        pauses = new Pauses(this.readPatience, signal);
      }
      if (!(await pauses.wait(answer))) throw new Unknown(`no final answer to GET ${target}`, answer);
    }
  }

  /** Sends a request once. ready is called before, with the headers of the program at hand.
   * @private @param {string} method @param {string} path @param {HeaderFields} fields
   * @param {() => Promise<void>} ready @param {Abort & { body?: string, kept?: Kept }} options */
  async send(method, path, fields, ready, { body, kept, signal }) {
    const start = now();
    let answer = new Answer(0, new Headers(), "");
    /** @type {Headers | undefined} */
    let headers;
    try {
      headers = await within(signal, () => this.own());
    } catch (err) { // who says who signs in may be away, as the shop may be
      answer = new Answer(0, new Headers(), `headers() has failed: ${err}`);
    }
    if (headers) {
      const own = headers, asker = JSON.stringify([...own]);
      await ready();
      for (const [name, value] of Object.entries(fields)) own.set(name, value);
      if (kept?.asker === asker) own.set("If-None-Match", kept.tag);
      /** @type {Received | undefined} */
      let head;
      const begins = (/** @type {Received} */ received) => (head = received);
      try {
        answer = await within(signal, (signal) => this.exchange(path, { method, body, headers: own, signal }, begins));
      } catch (/** @type {any} */ err) {
        const why = err?.cause ?? err; // which may be one for each address of the shop
        // No answer, or a part of one, whose Date tells of clocks, too.
        answer = new Answer(0, head?.headers ?? new Headers(), String(why?.errors ?? why));
        // What has broken off at once may come another time.
        answer.broken = head?.status === 200 && (["RangeError", "TimeoutError"].includes(err?.name) || now() - start > 10);
      }
      answer.asker = asker;
    }
    const { status, text } = answer;
    const one = { method, path, key: fields["Idempotency-Key"] ?? "", status, answer: text, seconds: now() - start };
    (async () => this.onTry?.(one))().catch((err) => console.warn(`storefront: onTry has failed: ${err}`));
    return answer;
  }

  /** @private @returns {Promise<Headers>} */
  async own() {
    return new Headers(typeof this.headers === "function" ? await this.headers() : this.headers);
  }

  /** @private @param {string} path @param {Sent} request @param {(head: Received) => void} begins is given the
   * head of an answer @returns {Promise<Answer>} */
  async exchange(path, request, begins) {
    const node = globalThis.process?.getBuiltinModule;
    const send = this.fetch ?? (node ? fetchBy(node) : fetch);
    const response = await send(this.url + path, {
      ...request, redirect: "manual", cache: "no-store", // a browser's may have what another account was sent
    });
    const status = response.status || 302; // browsers do not say which redirect it is
    begins(response);
    const [good, most] = request.method === "GET" ? [200, 16 * MOST] : [201, MOST];
    let text = "", left = status === good ? most : MOST;
    if (!response.body) return new Answer(status, response.headers, await response.text(), this.parse);
    const reader = response.body.getReader(), decoder = new TextDecoder();
    for (let part; left >= 0 && !(part = await reader.read()).done; left -= part.value.length) {
      text += decoder.decode(part.value, { stream: true });
    }
    if (left < 0) {
      reader.cancel().catch(() => {});
      if (status === good) throw new RangeError("the answer is too long");
    }
    return new Answer(status, response.headers, text + decoder.decode(), this.parse);
  }
}

/** Returns a fetch that is the HTTP client of Node.js. What Node.js has as fetch takes a 100 (Continue) that was not
 * asked for, as some proxies send it, for the end of the connection, and a 101 for no answer.
 * @param {typeof process.getBuiltinModule} node @returns {(url: string, request: Sent) => Promise<Received>} */
function fetchBy(node) {
  const { Readable, pipeline } = node("node:stream");
  const { createBrotliDecompress, createUnzip } = node("node:zlib");
  return async (url, { method, headers, body, signal }) => {
    const { request } = node(url.startsWith("https:") ? "node:https" : "node:http");
    const fields = new Headers({ Accept: "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "storefront.mjs" });
    for (const [name, value] of headers) fields.set(name, value);
    /** @type {import("node:http").IncomingMessage} */
    const answer = await new Promise((done, fail) => {
      request(url, { method, headers: Object.fromEntries(fields), signal })
        .on("response", done)
        .on("upgrade", (answer, socket) => (socket.destroy(), done(answer)))
        .on("error", fail)
        .end(body);
    });
    const status = answer.statusCode ?? 0, coding = answer.headers["content-encoding"] ?? "";
    const head = { status, headers: new Headers(/** @type {HeaderFields} */ (answer.headers)), text: async () => "" };
    if ([101, 204, 304].includes(status)) {
      answer.resume(); // there is none, and its connection is free
      return { ...head, body: null };
    }
    const decoder = /^((x-)?gzip|deflate)$/i.test(coding) ? createUnzip()
      : /^br$/i.test(coding) ? createBrotliDecompress() : undefined;
    return { ...head, body: Readable.toWeb(decoder ? pipeline(answer, decoder, () => {}) : answer) };
  };
}

/** Returns what work does, unless it takes longer than a try, or is aborted. Then it is left, whatever it does.
 * @template T @param {AbortSignal | undefined} signal @param {(signal: AbortSignal) => Promise<T>} work
 * @returns {Promise<T>} */
async function within(signal, work) {
  const end = new AbortController();
  const abort = () => end.abort(signal?.reason);
  const late = () => end.abort(new DOMException(`no answer within ${TRY} s`, "TimeoutError"));
  const timer = setTimeout(late, TRY * 1000);
  signal?.addEventListener("abort", abort);
  try {
    if (signal?.aborted) throw signal.reason;
    return await Promise.race([work(end.signal), new Promise((_, fail) => {
      end.signal.addEventListener("abort", () => fail(end.signal.reason));
    })]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/** Keeps drafts until they are orders. The program names each order, for example after its basket: of one
 * name there is one order, by however many processes it is asked for, and wherever one of them is killed.
 *
 * A name belongs to the URL and the account of shop: what the journal has of others is left alone. */
export class Journal {
  /** @param {Shop} shop @param {Store} store */
  constructor(shop, store) {
    this.shop = shop;
    this.store = store;
  }

  /** Returns the order of this name. If the journal does not have it, it sends the draft of the name, or a
   * new one for the item. It goes on with what ended with an error, also in an earlier process. It waits for
   * another process that is at it.
   * @param {string} name @param {string} [item] @param {number} [qty]
   * @param {Until & { fields?: Fields }} [options] @returns {Promise<Order>} */
  async order(name, item, qty, { patience = this.shop.patience, signal, fields } = {}) {
    const end = now() + patience;
    const id = await this.id(name, signal);
    const key = this.key(id);
    return this.locked(key, { patience, signal }, async (held) => {
      const kept = await this.load(key);
      const isAsked = item !== undefined || qty !== undefined || fields !== undefined;
      const asked = isAsked && new Draft(/** @type {string} */ (item), /** @type {number} */ (qty), fields);
      const draft = kept?.draft ?? asked;
      if (!draft) throw new RangeError(`there is no draft of ${name}`);
      const keep = (outcome = "") => this.write(held, id, draft, outcome);
      if (!kept) {
        const why = stale(draft);
        if (why) throw new Unknown(why, undefined, draft);
        await keep();
      } else {
        if (asked && canonical(ordered(draft)) !== canonical(ordered(asked))) {
          throw new RangeError(`${name} is another order: ${draft.body}`);
        }
        await stored(() => this.store.flush()); // who wrote it may have been killed before that
        if (kept.created) return kept.created.parsed;
        const { refused } = kept.entry;
        if (refused) {
          if (stale(draft)) {
            const answer = new Answer(refused.status ?? 422, new Headers(), JSON.stringify(refused));
            throw new Refused("refused, and not sent again", answer, draft);
          }
          tries.set(draft, 0);
          await keep(); // it is open until the next answer
        }
        await stored(() => this.store.touch(key));
      }
      const ready = async () => {
        await held();
        if ((await this.load(key))?.draft.key === draft.key) return;
        throw new Unknown("the draft has gone from the journal", undefined, draft);
      };
      // What the shop has said holds, even if it cannot be kept: then the draft is open, and gets the same order.
      const note = (/** @type {string} */ what, /** @type {string} */ text) =>
        keep(`,"${what}":${text.replace(/[\r\n]/g, " ")}`).catch((err) => {
          console.warn(`storefront: the journal does not keep what became of ${name}: ${err}`);
        });
      try {
        const answer = await this.shop.settle(draft, end - now(), signal, id.account, ready, keep);
        await note("order", answer.text);
        return answer.parsed;
      } catch (err) {
        if (err instanceof Refused) await note("refused", err.answer);
        throw err;
      }
    });
  }

  /** Asks the shop what became of a name, and sends nothing: see findOrder of Shop.
   * @param {string} name @param {Abort} [options] @returns {Promise<Order | undefined>} */
  async findOrder(name, { signal } = {}) {
    const kept = await this.load(this.key(await this.id(name, signal)));
    if (!kept) throw new RangeError(`there is no draft of ${name}`);
    return kept.created ? kept.created.parsed : this.shop.find(kept.draft, kept.entry.account, signal);
  }

  /** Returns the names of drafts of which nobody knows what became: go on with them at the start, and from
   * time to time. In a folder, the one whose last try is the longest ago comes first; a database has them in
   * random sequence. What is no entry, or was written by another version, stays as it is, and is named by
   * console.warn. */
  async pending() {
    const { shop, account } = await this.id("");
    const keys = await stored(() => this.store.keys());
    /** @type {[number, string][]} */
    const found = [];
    while (keys.length > 0) { // so many files are open at a time
      await Promise.all(keys.splice(0, 100).map(async (key) => {
        try {
          const { entry, tried } = (await this.load(key)) ?? {};
          const open = entry && !entry.order && !entry.refused;
          if (open && entry.shop === shop && entry.account === account) found.push([tried ?? 0, entry.name]);
        } catch (err) {
          console.warn(`storefront: the journal leaves out ${key}: ${err}`);
        }
      }));
    }
    return found.sort(([a], [b]) => a - b).map(([, name]) => name);
  }

  /** Returns what the journal knows of a name: its draft, and order or refused, the problem, once the answer
   * was final.
   * @param {string} name @returns {Promise<Entry | undefined>} */
  async read(name) {
    const { entry, created } = (await this.load(this.key(await this.id(name)))) ?? {};
    return entry && created ? { ...entry, order: created.parsed } : entry;
  }

  /** @private @param {string} name @param {AbortSignal} [signal] @returns {Promise<ID>} */
  async id(name, signal) {
    return { shop: this.shop.url, account: line(await this.shop.signedIn(signal)), name: check(name) };
  }

  /** @private @param {ID} id */
  key({ shop, account, name }) {
    return this.store.key(`${line(shop)}\n${line(account)}\n${check(name)}`);
  }

  /** @private @param {string} key */
  async load(key) {
    const kept = await stored(() => this.store.read(key));
    if (!kept) return undefined;
    const entry = /** @type {Entry} */ (JSON.parse(kept.text));
    const { shop, account, name, order, refused, ...draftOnly } = entry;
    const draft = Draft.from(draftOnly);
    if (this.key({ shop, account, name }) !== key) throw new Error(`this is the entry of ${name}`);
    if (order && !isOrder(exact(kept.text).sorder, draft)) throw new Error("its order is another");
    const created = order && new Answer(201, new Headers(), textOfOrder(kept.text, order), this.shop.parse);
    return { entry, draft, created, tried: kept.tried };
  }

  /** Removes what the journal knows of a name, whatever that is. Do it when the program has the order in its
   * own books, or has said that there is none.
   * @param {string} name @param {Until} [until] */
  async forget(name, { patience = this.shop.patience, signal } = {}) {
    const key = this.key(await this.id(name, signal));
    return this.locked(key, { patience, signal }, async (held) => {
      await held();
      await stored(() => this.store.remove(key));
    });
  }

  /** Lets go of the browser's database, until the next call. In Node.js, nothing is open between calls. */
  async close() {
    return this.store.close();
  }

  /** Does work while no other process has an entry.
   * @private @template T @param {string} key @param {Until} until
   * @param {(held: () => Promise<void>) => Promise<T>} work @returns {Promise<T>} */
  async locked(key, until, work) {
    const { held, release } = await stored(() => this.store.lock(key, until));
    return work(held).finally(release);
  }

  /** @private @param {() => Promise<void>} held @param {ID} id @param {Draft} draft
   * @param {string} [outcome] a member in JSON, with a comma before it */
  async write(held, id, draft, outcome = "") {
    await held();
    const entry = JSON.stringify({ ...draft.toJSON(), ...id });
    return stored(() => this.store.write(this.key(id), `${entry.slice(0, -1)}${outcome}}`));
  }
}

/** @typedef {{ held: () => Promise<void>, release: () => unknown }} Lock of an entry; held throws if another process
 *   would not wait for it any more */

/**
 * @typedef {object} Store
 * @property {(id: string) => string} key of the entry of an order
 * @property {() => Promise<string[]>} keys of all entries
 * @property {(key: string) => Promise<{ text: string, tried: number } | undefined>} read
 * @property {(key: string, text: string) => Promise<void>} write returns when it is on the disk
 * @property {(key: string) => Promise<void>} remove
 * @property {() => Promise<void>} flush returns when what was read is on the disk
 * @property {(key: string) => Promise<void>} touch says that a draft is tried
 * @property {(key: string, until: Until) => Promise<Lock>} lock
 * @property {() => void} close
 */

/** @param {string} name @returns {Promise<Store>} */
async function openDatabase(name) {
  const { indexedDB, navigator } = globalThis;
  if (!navigator?.locks) throw new JournalError(new Error("no Web Locks"), "it needs a page from HTTPS or localhost");
  if (!indexedDB) throw new JournalError(new Error("no IndexedDB"), FORBIDDEN);
  /** @type {Promise<IDBDatabase> | undefined} */
  let opening;
  const opened = () => {
    const current = (opening ??= new Promise((done, fail) => {
      const request = indexedDB.open(`storefront ${name}`, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("drafts");
      request.onerror = () => fail(request.error);
      request.onblocked = () => fail(new DOMException("another page has an older version open", "TimeoutError"));
      request.onsuccess = () => {
        const database = request.result;
        // Another page waits to delete or upgrade it, or the browser has closed it: the next call opens it again.
        database.onversionchange = database.onclose = () => {
          database.close();
          opening = undefined;
        };
        done(database);
      };
    }));
    current.catch(() => (opening = undefined));
    return within(undefined, () => current); // another page may be deleting it
  };
  /** @template T @param {IDBTransactionMode} mode @param {(drafts: IDBObjectStore) => IDBRequest<T>} work
   * @returns {Promise<T>} */
  const run = async (mode, work) => {
    const database = await opened();
    return new Promise((done, fail) => {
      const transaction = database.transaction("drafts", mode, { durability: "strict" });
      const request = work(transaction.objectStore("drafts"));
      transaction.oncomplete = () => done(request.result);
      transaction.onabort = () => fail(transaction.error ?? new Error("aborted"));
    });
  };
  await opened();
  return {
    key: (id) => id,
    keys: async () => /** @type {string[]} */ (await run("readonly", (drafts) => drafts.getAllKeys())),
    async read(key) {
      const text = await run("readonly", (drafts) => drafts.get(key));
      return text === undefined ? undefined : { text, tried: Math.random() };
    },
    write: async (key, text) => void (await run("readwrite", (drafts) => drafts.put(text, key))),
    flush: async () => {},
    touch: async () => {},
    close() {
      opening?.then((database) => database.close(), () => {});
      opening = undefined;
    },
    remove: (key) => run("readwrite", (drafts) => drafts.delete(key)),
    lock: (key, { patience = 0, signal }) => new Promise((done, fail) => {
      const lock = `storefront ${name} ${key}`;
      const take = () => new Promise((release) => done({ held: async () => {}, release: () => release(undefined) }));
      const wait = () => {
        const end = new AbortController();
        const over = () => end.abort(new Unknown("another page is sending this order"));
        const timer = setTimeout(over, 1000 * Math.min(patience, 1e6));
        signal?.addEventListener("abort", over);
        if (signal?.aborted) over();
        const waited = () => {
          clearTimeout(timer);
          signal?.removeEventListener("abort", over);
        };
        const taken = navigator.locks.request(lock, { signal: end.signal }, () => (waited(), take()));
        taken.catch((err) => (waited(), fail(err)));
      };
      // A lock that is free is had without patience, too.
      navigator.locks.request(lock, { ifAvailable: true }, (lock) => (lock ? take() : wait())).catch(fail);
    }),
  };
}

/** A folder on a local disk. Node.js has no locks of files that go with their process, but a listening socket
 * does. While a process has names, it listens on a socket in the folder, and claims each with a file that has
 * the socket's name in its own. It has the name if it then sees no other claim whose socket answers: of two, at
 * least the later one sees the other's.
 * @param {string} folder @param {typeof process.getBuiltinModule} node @returns {Promise<Store>} */
async function openFolder(folder, node) {
  const { createHash } = node("node:crypto");
  const { constants, renameSync, promises: fs } = node("node:fs");
  const { createServer, connect } = node("node:net");
  const { resolve, dirname, join } = node("node:path");
  folder = resolve(folder);
  const locks = join(folder, "locks");
  // The path of a socket has some 100 bytes at most. Linux has a short one for every open folder.
  const linux = process.platform === "linux";
  if (!linux && locks.length > 60) throw new Error(`the path ${locks} is too long`);
  /** @param {number} ms */
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  /** @param {string} path @param {string | number} [flags] */
  const open = async (path, flags) => {
    for (let left = 600; ; left--) {
      try {
        return await fs.open(path, flags, 0o600);
      } catch (/** @type {any} */ err) {
        if (err.code !== "EMFILE" || left === 0) throw err;
      }
      await sleep(100); // until this process has fewer files and connections open
    }
  };
  /** @param {string} path */
  const flush = async (path) => {
    const file = await open(path);
    await file.sync().finally(() => file.close());
  };
  await fs.mkdir(folder, { recursive: true, mode: 0o700 });
  await flush(dirname(folder));

  /** @param {string} path @returns {Promise<boolean>} */
  const answers = (path) => new Promise((done) => {
    const socket = connect(path);
    const end = (/** @type {boolean} */ alive) => (socket.destroy(), done(alive));
    socket.once("connect", () => end(true));
    socket.once("error", (/** @type {any} */ err) => end(!["ECONNREFUSED", "ENOENT"].includes(err.code)));
  });
  /** @param {string} file */
  const remove = (file) => fs.rm(join(locks, file), { force: true });
  /** Calls use with a path of the folder of the locks.
   * @template T @param {(near: string) => Promise<T>} use */
  const nearLocks = async (use) => {
    await fs.mkdir(locks, 0o700).catch((err) => {
      if (err.code !== "EEXIST") throw err;
    });
    const dir = await open(locks);
    return use(linux ? `/proc/self/fd/${dir.fd}` : locks).finally(() => dir.close());
  };
  const listen = () => {
    const id = random(16), server = createServer((socket) => socket.destroy()).unref();
    const ready = nearLocks(async (near) => {
      await new Promise((done, fail) => {
        const path = join(near, `${id}.tmp`);
        server.on("error", fail).listen({ path, exclusive: true }, () => done(undefined));
      });
      renameSync(join(near, `${id}.tmp`), join(near, `${id}.sock`)); // now it listens
      return fs.lstat(join(near, `${id}.sock`), { bigint: true });
    });
    return { id, server, ready, claims: 0 };
  };
  /** @type {ReturnType<typeof listen> | undefined} */
  let listener; // of new claims
  /** Claims an entry, and returns nothing if another has it. Whatever fails, the entry is free again: what
   * the folder keeps of a claim means nothing once its socket is closed.
   * @param {string} key */
  const claim = async (key) => {
    const own = listener ??= listen();
    own.claims++;
    const prefix = key.replace(/json$/, "");
    const file = `${prefix}${random(8)}.${own.id}.claim`;
    /** @type {import("node:fs").BigIntStats | undefined} */
    let socket;
    let claimed = false, fault = false;
    const release = async () => {
      await remove(file).catch(() => (fault = true));
      own.claims--;
      if (listener === own && (fault || own.claims === 0)) listener = undefined;
      if (own.claims > 0) return;
      own.server.close();
      await remove(`${own.id}.sock`).catch(() => {});
    };
    // Whether the claim is where others look: the folder may have been moved or replaced.
    const seen = async () => {
      const now = await fs.lstat(join(locks, `${own.id}.sock`), { bigint: true }).catch(() => undefined);
      const there = await fs.lstat(join(locks, file)).catch(() => undefined);
      fault ||= !there || now?.ino !== socket?.ino || now?.dev !== socket?.dev;
      return !fault;
    };
    const held = async () => {
      if (!(await seen())) throw new Unknown("the claim has gone from the folder of the journal");
    };
    try {
      socket = await own.ready;
      claimed = await nearLocks(async (near) => {
        await fs.writeFile(join(near, file), "");
        for (const other of await fs.readdir(near)) {
          const id = /^[0-9a-f]{16}\.([0-9a-f]{32})\.claim$/.exec(other.slice(prefix.length))?.[1];
          if (!id || other === file || !other.startsWith(prefix)) continue;
          if (await answers(join(near, `${id}.sock`))) return false;
          await remove(other);
          await remove(`${id}.sock`);
        }
        return seen();
      });
      return claimed ? { held, release } : undefined;
    } catch (/** @type {any} */ err) {
      fault = !socket || err.code !== "EMFILE";
      if (err.code === "EMFILE") return undefined; // so many orders are on their way in this process
      throw err;
    } finally {
      if (!claimed) await release();
    }
  };

  /** @param {string} key */
  const path = (key) => join(folder, key);
  return {
    key: (id) => `${createHash("sha256").update(id).digest("hex")}.json`, // short, and without case
    keys: async () => (await fs.readdir(folder)).filter((file) => file.endsWith(".json")).sort(),
    async read(key) {
      // A pipe would be waited for.
      const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW;
      const file = await open(path(key), flags).catch((err) => {
        if (err.code !== "ENOENT") throw err;
        return undefined;
      });
      if (!file) return undefined;
      try {
        const info = await file.stat();
        if (!info.isFile() || info.size > MOST_OF_ENTRY) throw new Error("this is no file, or a long one");
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.readFile());
        return { text, tried: info.mtimeMs > Date.now() ? 0 : info.mtimeMs };
      } finally {
        await file.close();
      }
    },
    async write(key, text) {
      const file = await open(`${path(key)}.tmp`, "w");
      await file.writeFile(text).then(() => file.sync()).finally(() => file.close());
      await fs.rename(`${path(key)}.tmp`, path(key));
      await flush(folder);
    },
    async remove(key) {
      await fs.rm(path(key), { force: true });
      await flush(folder);
    },
    flush: () => flush(folder),
    touch: (key) => fs.utimes(path(key), new Date(), new Date()),
    close: () => {},
    async lock(key, { patience = 0, signal }) {
      const end = now() + patience;
      let claimed;
      while (!(claimed = await claim(key))) {
        if (signal?.aborted || now() > end) throw new Unknown("another process is sending this order");
        await sleep(50 + 200 * Math.random());
      }
      return claimed;
    },
  };
}

/** An answer. Its status is 0 if none came, or a part of one; then text says why. */
class Answer {
  /** @param {number} status @param {Headers} headers @param {string} text @param {(text: string) => any} [parse] */
  constructor(status, headers, text, parse = JSON.parse) {
    this.status = status;
    this.headers = headers;
    this.text = text;
    this.parse = parse;
    this.asker = ""; // the headers of the program with which it was asked for
    /** @type {any} */
    this.object = undefined; // as JSON.parse has it: what it is does not depend on the program
    try {
      const value = status ? JSON.parse(text) : null;
      if (isObject(value)) this.object = value;
    } catch {}
    const type = status >= 400 ? this.object?.type : undefined;
    /** @type {Problem | undefined} */
    this.problem = typeof type === "string" && type.startsWith(PROBLEM) ? this.object : undefined;
    this.code = this.problem ? type.slice(PROBLEM.length) : "";
    // Of a text that nobody has decoded, nothing is known, whatever its status.
    this.coded = !this.object && /^20[01]$/.test(`${status}`) &&
      !/^(|identity|(x-)?gzip|deflate|br)$/i.test(this.header("Content-Encoding"));
    this.broken = false; // whether a 200 was too long, or came too slowly
    this.again = !this.coded && ([0, 201, 408, 409, 429].includes(status) || (status >= 500 && status !== 501));
    // Whether the service has refused this request, which so has created nothing.
    this.refuses = this.problem !== undefined && status < 500 && status !== 409;
    const seconds = this.header("Retry-After"); // or a date, or anything
    this.retryAfter = /^\d+$/.test(seconds) ? Math.min(Number(seconds), 3600) : 0;
  }

  /** Is object, as the program has it returned.
   * @returns {any} */
  get parsed() {
    return this.parse === JSON.parse ? this.object : this.parse(this.text);
  }

  /** Is object, as exact has it.
   * @returns {any} */
  exact() {
    try {
      return this.object && exact(this.text);
    } catch {}
  }

  /** @param {string} name */
  header(name) {
    return this.headers.get(name) ?? "";
  }
}

class Pauses {
  /** @param {number} patience @param {AbortSignal} [signal] */
  constructor(patience, signal) {
    this.end = now() + patience;
    this.signal = signal;
    this.limit = 0.25;
  }

  /** Waits before the next try, and reports whether there is time for it.
   * @param {Answer} answer @returns {Promise<boolean>} */
  async wait(answer) {
    const { signal } = this;
    const seconds = answer.retryAfter + Math.random() * this.limit;
    if (signal?.aborted || now() + seconds > this.end) return false;
    this.limit = Math.min(2 * this.limit, 60);
    await new Promise((done) => {
      const timer = setTimeout(wake, seconds * 1000);
      function wake() {
        clearTimeout(timer);
        signal?.removeEventListener("abort", wake);
        done(undefined);
      }
      signal?.addEventListener("abort", wake);
    });
    return !signal?.aborted;
  }
}

/** @param {number} bytes */
function random(bytes) {
  const chosen = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(chosen, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Throws if a text is none, or has half a surrogate pair, which JSON and UTF-8 cannot say.
 * @param {string} text */
function check(text) {
  if (typeof text === "string" && !/\p{Cs}/u.test(text)) return text;
  throw new RangeError(`${JSON.stringify(text)} is no text`);
}

/** @param {string} text */
function line(text) {
  if (check(text).includes("\n")) throw new RangeError(`${JSON.stringify(text)} is more than a line`);
  return text;
}

function now() {
  return performance.now() / 1000;
}

/** @param {any} value */
function isID(value) {
  return typeof value === "string" && value !== "";
}

/** @param {any} value */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Returns the text of the order in an entry. All clients write it as the last member: if it is not,
 * JSON.parse has read it.
 * @param {string} entry @param {Order} order */
function textOfOrder(entry, order) {
  const last = entry.slice(0, entry.lastIndexOf("}")).replace(/^.*?,\s*"order"\s*:/s, "");
  try {
    JSON.parse(last);
    return last;
  } catch {
    return JSON.stringify(order);
  }
}

/** Whether an answer, as exact has it, is the order of a draft: proxies have mixed up answers. Fields are
 * compared by value: the service writes them in its own form.
 * @param {any} order @param {{ body: string }} draft */
function isOrder(order, draft) {
  try {
    const sent = exact(draft.body);
    const same = (/** @type {string} */ name) => canonical(order[name]) === canonical(sent[name]);
    return /^s./s.test(order.sid) && ["sitem", "sqty", "sfields"].every(same);
  } catch {
    return false; // no object, or one that is nested too deeply
  }
}

/** Reads JSON for comparisons, as JSON.parse rounds numbers: one becomes "n" and its value, and each string, also
 * the name of a member, "s" and itself.
 * @param {string} text @returns {any} */
function exact(text) {
  JSON.parse(text); // throws if it is none
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) =>
    JSON.stringify(token.startsWith('"') ? `s${check(JSON.parse(token))}` : `n${decimal(token)}`)));
}

/** Returns a number of JSON in one form for each value: an integer without a zero at its end, and a power of ten.
 * @param {string} number */
function decimal(number) {
  const [, sign, whole, fraction = "", power = "0"] = /** @type {RegExpExecArray} */ (
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE](.*))?$/.exec(number));
  const [, digits, zeros] = /** @type {RegExpExecArray} */ (/^0*((?:\d*[1-9])?)(0*)$/.exec(whole + fraction));
  return digits && `${sign}${digits}e${BigInt(power.replace("+", "")) + BigInt(zeros.length - fraction.length)}`;
}

/** Returns the text of what exact has read, with members in one sequence.
 * @param {any} value */
function canonical(value) {
  return JSON.stringify(value ?? null, (_, value) => (!isObject(value) ? value :
    Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))));
}

/** @param {Answer} answer */
function isPage({ object: { data, next, has_more } }) {
  const goesOn = has_more === true ? isID(next) : has_more === false && next == null;
  return Array.isArray(data) && data.every((item) => isID(item?.id)) && goesOn;
}

/** Returns a text that compares with others as their bytes in UTF-8 do, which strings of UTF-16 do not.
 * @param {string} id */
function inBytes(id) {
  return Array.from(id, (c) => /** @type {number} */ (c.codePointAt(0)).toString(16).padStart(6, "0")).join("");
}

/** Returns the URL of a shop in one form, as entries of journals have it.
 * @param {string} url */
function base(url) {
  let to;
  try {
    const page = globalThis.document?.baseURI ?? globalThis.location?.href;
    to = new URL(`${url.replace(/\/+$/, "")}${ORDERS}`, page);
  } catch {}
  const isOther = /^\s*[a-z][\w+.-]*:(?!\/\/[^/\\])/i.test(url); // such as localhost:8080
  if (!to || isOther || !/^https?:$/.test(to.protocol) || to.href !== to.origin + to.pathname ||
    !to.pathname.endsWith(ORDERS)) {
    throw new RangeError("the URL of a shop is http(s)://host:port/path, without a user, ? and #");
  }
  return to.href.slice(0, -ORDERS.length);
}

/** Returns an ID as a segment of a path.
 * @param {string} id */
function segment(id) {
  if (["", ".", "..", "/"].includes(id)) throw new RangeError("no URL leads to what has this ID");
  return encodeURIComponent(check(id));
}
