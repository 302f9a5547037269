// A client for the storefront, to copy. docs/wire.md has the rules that it follows.

async function place(url, key, order) {
  const end = Date.now() + 12 * 3600e3;
  for (let pause = 250; Date.now() < end; pause = Math.min(2 * pause, 60e3)) {
    let status = 0, wait = null, answer = "", created;
    try {
      const response = await fetch(url + "/v1/orders", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": key },
        body: JSON.stringify(order),
        redirect: "manual", // do not follow it
        signal: AbortSignal.timeout(40e3),
      });
      answer = await response.text();
      status = response.status || 302; // browsers do not say which redirect it is
      wait = response.headers.get("Retry-After");
      if (status === 201) created = JSON.parse(answer);
    } catch {} // no answer, a part of one, or no JSON
    if (created?.id) return created;
    if (![0, 201, 408, 409, 429].includes(status) && (status < 500 || status === 501)) {
      throw new Error(`the order with the key ${key}: ${status}: ${answer}`);
    }
    const seconds = /^\d+$/.test(wait) ? Math.min(Number(wait), 3600) : 0;
    await new Promise((done) => setTimeout(done, seconds * 1000 + Math.random() * pause));
  }
  throw new Error(`the order with the key ${key}: no answer`);
}

const key = crypto.randomUUID(); // to be kept with the order, before it is sent
const created = await place("http://localhost:8080", key, { item: "teapot", qty: 2 });
console.log("created", created.id);
