// Does with sdk/javascript/storefront.mjs what lines of JSON on standard input say, and prints what
// came of it: see doc.go in integration/clients.

import { appendFileSync, promises as fs } from "node:fs";
import { createInterface } from "node:readline";
import { Draft, Refused, Shop, StorefrontError } from "../../../../sdk/javascript/storefront.mjs";

const { CLOCK, JOURNAL, KILL, SLEEPS, STEPS, STOREFRONT_ACCOUNT, STOREFRONT_PATIENCE, STOREFRONT_URL, TRY,
  http_proxy } = process.env;
const say = (outcome) => console.log(JSON.stringify(outcome));

if (STEPS) {
  let steps = 0;
  const stepped = (name, call) =>
    function (...args) {
      steps++;
      if (steps === Number(KILL)) process.kill(process.pid, "SIGKILL");
      appendFileSync(STEPS, `${name}\n`);
      return call.apply(this, args);
    };
  const file = await fs.open(import.meta.filename);
  const handle = Object.getPrototypeOf(file);
  await file.close();
  handle.sync = stepped("flush", handle.sync);
  fs.rename = stepped("rename", fs.rename);
}
const real = globalThis.setTimeout;
globalThis.setTimeout = (f, ms, ...args) => {
  if (!SLEEPS || f.name !== "wake") return real(f, TRY && ms === 40_000 ? TRY * 1000 : ms, ...args);
  say({ sleeps: ms / 1000 });
  return real(f, 0);
};
if (CLOCK) Date.now = () => CLOCK * 1000;

let signedIn = STOREFRONT_ACCOUNT;
const shop = new Shop(STOREFRONT_URL, {
  remember: 10, patience: Number(STOREFRONT_PATIENCE ?? 12 * 3600), account: STOREFRONT_ACCOUNT,
  headers: () => ({ "User-Agent": "storefront.mjs", ...(signedIn && { Authorization: signedIn }) }),
  fetch: http_proxy && ((url, init) => fetch(url.replace("http://shop.example", http_proxy), init)),
});
const journal = JOURNAL && (await shop.journal(JOURNAL));
const drafts = new Map();

async function act({ account, can, item, qty, fields, find, get, list, product }) {
  if (can) return { can: ["resume", "lists", "products", "fields", "history", "find"] };
  if (list === "pending") return { ids: await journal.pending() };
  if (list) {
    const ids = [];
    for await (const { id } of shop[list]()) ids.push(id);
    return { ids };
  }
  if (account) {
    signedIn = account;
    return {};
  }
  if (get) return { got: JSON.stringify(await shop.getOrder(get)) };
  if (product) return { name: (await shop.product(product)).name };
  if (find) {
    const found = journal ? await journal.findOrder(item) : await shop.findOrder(drafts.get(item));
    return found ? { id: found.id } : { created: false };
  }
  if (journal) return { id: (await journal.order(item, qty && item, qty, { fields })).id };
  if (!drafts.has(item)) drafts.set(item, new Draft(item, qty, fields));
  const { id } = await shop.order(drafts.get(item));
  drafts.delete(item);
  return { id };
}

for await (const line of createInterface({ input: process.stdin })) {
  const ask = JSON.parse(line);
  try {
    say({ ...ask, ...(await act(ask)) });
  } catch (err) {
    const created = err instanceof Refused && !ask.find ? { created: false } : {};
    say({
      ...ask,
      error: err instanceof StorefrontError ? `${err.name}: ${err.message}` : `${err.stack}`,
      ...created,
    });
  }
}
