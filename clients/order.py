# A client for the storefront, to copy. docs/wire.md has the rules that it follows.

import http.client, json, random, re, time, urllib.request, uuid

class OrderFailed(Exception):
    """The last answer to an order was final, and not the order."""

class AnyStatus(urllib.request.HTTPErrorProcessor):
    def http_response(self, request, response):
        return response  # follow no redirect, raise no HTTPError
    https_response = http_response

opener = urllib.request.build_opener(AnyStatus)

def place(url, key, order):
    """Sends an order until an answer is final, and returns the order that was created."""
    request = urllib.request.Request(url + "/v1/orders", json.dumps(order).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": key})
    pause, end = 0.25, time.monotonic() + 12 * 3600
    while time.monotonic() < end:
        status, wait, answer = 0, "", b""
        try:
            end_of_try = time.monotonic() + 40
            with opener.open(request, timeout=40) as response:
                while part := response.read1(65536):  # one wait for the network
                    answer += part
                    if time.monotonic() > end_of_try:
                        raise TimeoutError
                if response.length:  # bytes that did not come
                    raise http.client.IncompleteRead(answer)
                status, wait = response.status, response.headers.get("Retry-After", "")
        except (OSError, http.client.HTTPException):
            pass  # no answer, or a part of one
        if status == 201:
            try:
                created = json.loads(answer)
                if isinstance(created, dict) and created.get("id"):
                    return created
            except ValueError:
                pass  # no JSON
        elif status not in (0, 408, 409, 429) and (status < 500 or status == 501):
            raise OrderFailed(f"the order with the key {key}: {status}: {answer.decode(errors='replace')}")
        seconds = min(int(wait[:9]), 3600) if re.fullmatch("[0-9]+", wait) else 0
        time.sleep(seconds + random.uniform(0, pause))
        pause = min(2 * pause, 60)
    raise OrderFailed(f"the order with the key {key}: no answer")


if __name__ == "__main__":
    key = str(uuid.uuid4())  # to be kept with the order, before it is sent
    created = place("http://localhost:8080", key, {"item": "teapot", "qty": 2})
    print("created", created["id"])
