"""The clients of libraries for Python, as people write them: `clients.py NAME` speaks the lines of
`storefront -trouble`; alone, it prints each name, with the versions of its packages."""

import http.client
import importlib.metadata
import json
import os
import platform
import random
import sys
import threading
import time
import urllib.request
import uuid
from urllib.parse import urlsplit

URL = os.environ.get("STOREFRONT_URL", "") + "/v1/orders"


def headers(key):
    return {"Content-Type": "application/json", "Idempotency-Key": key}


def careful(once):
    """The loop of docs/wire.md around one try, which returns its status, headers and body."""
    pause, end = 0.25, time.monotonic() + 12 * 3600
    while time.monotonic() < end:
        status, wait, text = 0, "", ""
        try:
            status, head, text = once()
            wait = head.get("Retry-After", "")
            order = json.loads(text) if status == 201 else {}
            if isinstance(order, dict) and order.get("id"):
                return order["id"]
        except Exception:  # each library has its own; of 201, the body may be no JSON
            pass
        if status not in (0, 201, 408, 409, 429) and (status < 500 or status == 501):
            raise RuntimeError(f"status {status}: {text}")
        seconds = min(int(wait), 3600) if wait and wait.isascii() and wait.isdigit() else 0
        time.sleep(seconds + random.uniform(0, pause))
        pause = min(2 * pause, 60)
    raise RuntimeError("no answer")


def within(seconds, work):
    """Limits a try in all: these libraries only limit each wait for the network."""
    result = []

    def run():
        try:
            result.append((work(), None))
        except Exception as e:
            result.append((None, e))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        raise TimeoutError("the try took too long")
    if result[0][1]:
        raise result[0][1]
    return result[0][0]


def with_urllib(key, order):
    r = urllib.request.Request(URL, json.dumps(order).encode(), headers(key))
    with urllib.request.urlopen(r, timeout=40) as answer:
        return json.load(answer)["id"]


def urllib_loop(key, order):
    for n in range(6):
        try:
            return with_urllib(key, order)
        except OSError:  # urllib.error.HTTPError is one
            if n == 5:
                raise
            time.sleep(0.25 * 2**n)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def urllib_careful(key, order):
    opener = urllib.request.build_opener(NoRedirect)

    def once():
        r = urllib.request.Request(URL, json.dumps(order).encode(), headers(key))
        try:
            answer = opener.open(r, timeout=40)
        except urllib.error.HTTPError as e:
            answer = e
        with answer:
            return answer.status, answer.headers, answer.read()
    return careful(lambda: within(40, once))


def http_client_careful(key, order):
    def once():
        c = http.client.HTTPConnection(urlsplit(URL).netloc, timeout=40)
        try:
            c.request("POST", "/v1/orders", json.dumps(order), headers(key))
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()
    return careful(lambda: within(40, once))


def with_requests(key, order):
    import requests
    answer = requests.post(URL, json=order, headers=headers(key), timeout=40)
    answer.raise_for_status()
    return answer.json()["id"]


def requests_retry(key, order):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util.retry import Retry
    session = requests.Session()
    retry = Retry(total=5, backoff_factor=0.25, allowed_methods=["POST"],
                  status_forcelist=[408, 409, 429, 500, 502, 503, 504])
    session.mount("http://", HTTPAdapter(max_retries=retry))
    answer = session.post(URL, json=order, headers=headers(key), timeout=40)
    answer.raise_for_status()
    return answer.json()["id"]


def requests_careful(key, order):
    import requests

    def once():
        answer = requests.post(URL, json=order, headers=headers(key), timeout=40, allow_redirects=False)
        return answer.status_code, answer.headers, answer.content
    return careful(lambda: within(40, once))


def urllib3_retry(key, order):
    import urllib3
    retry = urllib3.Retry(total=5, backoff_factor=0.25, allowed_methods=["POST"],
                          status_forcelist=[408, 409, 429, 500, 502, 503, 504])
    answer = urllib3.PoolManager().request("POST", URL, body=json.dumps(order), headers=headers(key),
                                           timeout=40, retries=retry)
    if answer.status >= 400:
        raise RuntimeError(f"status {answer.status}")
    return json.loads(answer.data)["id"]


def with_httpx(key, order):
    import httpx
    with httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=40) as client:
        answer = client.post(URL, json=order, headers=headers(key))
        answer.raise_for_status()
        return answer.json()["id"]


def httpx_careful(key, order):
    import httpx

    def once():
        answer = httpx.post(URL, json=order, headers=headers(key), timeout=40)
        return answer.status_code, answer.headers, answer.content
    return careful(lambda: within(40, once))


def with_aiohttp(key, order):
    import aiohttp
    import asyncio

    async def place():
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.post(URL, json=order, headers=headers(key)) as answer:
                return (await answer.json())["id"]
    return asyncio.run(place())


def aiohttp_careful(key, order):
    import aiohttp
    import asyncio

    async def once():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=40)) as session:
            async with session.post(URL, json=order, headers=headers(key), allow_redirects=False) as answer:
                return answer.status, answer.headers, await answer.read()
    return careful(lambda: asyncio.run(once()))


CLIENTS = {
    "urllib, one try": (with_urllib,),
    "urllib, a loop": (urllib_loop,),
    "urllib, loop of wire.md": (urllib_careful,),
    "http.client, loop of wire.md": (http_client_careful,),
    "requests": (with_requests, "requests"),
    "requests with Retry, POST allowed": (requests_retry, "requests", "urllib3"),
    "requests, loop of wire.md": (requests_careful, "requests"),
    "urllib3 with Retry, POST allowed": (urllib3_retry, "urllib3"),
    "httpx, retries=5": (with_httpx, "httpx"),
    "httpx, loop of wire.md": (httpx_careful, "httpx"),
    "aiohttp": (with_aiohttp, "aiohttp"),
    "aiohttp, loop of wire.md": (aiohttp_careful, "aiohttp"),
}

if len(sys.argv) < 2:
    for name, (_, *packages) in CLIENTS.items():
        versions = [p + " " + importlib.metadata.version(p) for p in packages]
        print(name, *(versions or ["Python " + platform.python_version()]), sep="\t")
    sys.exit()
place = CLIENTS[sys.argv[1]][0]
for line in sys.stdin:
    outcome = json.loads(line)
    try:
        if "item" not in outcome:
            raise RuntimeError("orders only")
        outcome["id"] = str(place(str(uuid.uuid4()), dict(outcome)))
    except Exception as e:
        outcome["error"] = str(e) or type(e).__name__
    print(json.dumps(outcome), flush=True)
os._exit(0)
