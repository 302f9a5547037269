"""A client for the storefront, one file to copy. It needs Python 3.9 or later and nothing else.

    shop = Shop("http://localhost:8080")
    journal = shop.journal("orders")                 # a folder
    order = journal.order("basket 17", "teapot", 2)  # one order, even if this is killed

It keeps the rules of docs/wire.md, "How to retry well".
"""

from __future__ import annotations

import contextlib, email.utils, errno, hashlib, http.client, io, json, logging, os, random, re, secrets
import ssl, stat, threading, time, urllib.request
from decimal import Decimal
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Union
from urllib.parse import quote, urlencode

TRY = 40.0  # seconds for one try, all of its answer included
CONNECT = 10.0  # of them for a connection to one address
PATIENCE = 12 * 3600.0  # for an order, in one call
READ_PATIENCE = 120.0
LIFETIME = 23 * 3600.0  # of a draft; the service remembers its key for 24 hours
AHEAD = 3600.0  # so far a clock may be from another, or from itself when it made a draft
SET = 1767225600.0  # 2026: a clock that says an earlier time was not set since the machine was started
ASK = "ask the shop by its key whether the order exists, and forget the draft"
WRONG_CLOCK = f"a clock was wrong when this draft was made or sent, so its age is unknown: {ASK}: do not keep it"
MOST = 1 << 20  # bytes of an answer, or 16 times as many of one that was read
MOST_OF_ENTRY = 1 << 26
ORDERS = "/v1/orders"
PROBLEM = "urn:problem-type:storefront:"

Headers = Union[Mapping[str, str], Callable[[], Mapping[str, str]]]
Fields = Union[Mapping[str, Any], str]  # what json.dumps makes an object of, or the text of one


class Try(NamedTuple):
    """A try of a request, for on_try. The status is 0 if no answer came, or a part of one, or if headers()
    has failed; then answer says why. key is the Idempotency-Key of an order, or empty."""

    method: str
    path: str
    key: str
    status: int
    answer: str
    seconds: float


class StorefrontError(Exception):
    """What has not come. status and answer are of the last answer, if there was one; problem is its
    problem document if the service wrote it; code is the end of its type, such as "order-refused"."""

    def __init__(self, why: str, answer: Optional[_Answer] = None, draft: Optional[Draft] = None):
        self.status = answer.status if answer else 0
        self.answer = answer.text if answer else ""
        self.problem = answer.problem if answer else None
        self.code: str = self.problem["type"][len(PROBLEM) :] if self.problem else ""
        self.draft = draft
        what = f"the order with the key {draft.key}: " if draft else ""
        last = f"{self.status}: {self.answer[:1000]}" if self.status else self.answer or "no answer"
        super().__init__(f"{what}{why}: {last}")


class Refused(StorefrontError):
    """The service refused, as problem says. Of an order, no try of this Draft has created anything: one of
    another Draft with the same key may still be on its way."""


class Blocked(StorefrontError):
    """Something in front of the service has answered, or changes what is sent. An order may exist: put right
    what the answer says, such as the URL or the sign-in, and go on with the same draft."""


class Unknown(StorefrontError):
    """No answer was final, or the last one does not say what became of earlier tries. An order may exist,
    or still come to exist: keep the draft, and go on with it later. If it is too old, or a clock was
    wrong, ask the shop."""


class Draft:
    """An order before it is placed, with its key. However often it is sent, it is one order at most. Make it
    just before the order is sent, as it can be sent for 23 hours, and store its JSON first, with the shop and
    the account that it is for. A copy, and one from JSON, knows nothing of the tries of the original.

    fields are an object of the shop's own, or the text of one, which is sent as it is."""

    def __init__(self, item: str, qty: int, fields: Optional[Fields] = None):
        body = json.dumps({"item": item, "qty": qty})
        if fields is not None:
            try:
                text = fields if isinstance(fields, str) else json.dumps(fields, allow_nan=False)
                if not isinstance(_exact(text), dict):
                    raise ValueError("another value")
            except (RecursionError, TypeError, ValueError) as err:
                raise ValueError(f"fields are an object, or the text of one in JSON: {err}") from err
            body = f'{body[:-1]}, "fields": {text}}}'
        self._set({"version": 1, "key": secrets.token_hex(16), "body": body, "made": time.time()})
        self._open = 0  # tries that may have created the order, or may still create it

    def to_json(self) -> str:
        return json.dumps(self._members())

    @classmethod
    def from_json(cls, text: str) -> Draft:
        """A ValueError says that it is no draft, or that another version wrote it, which can go on with it."""
        return cls._of(json.loads(text))

    @classmethod
    def _of(cls, stored: Any) -> Draft:
        draft = cls.__new__(cls)
        draft._set(stored)
        draft._open = 1  # nobody knows
        return draft

    def __reduce__(self) -> Any:  # for copy and pickle
        return type(self).from_json, (self.to_json(),)

    def _set(self, stored: Any) -> None:
        try:
            others = dict(stored)
            version = others.pop("version", None)
            if version != 1 or version is True:
                raise ValueError(f"its version is {version!r}, not 1")
            self.key, self.body, self.made = others.pop("key"), others.pop("body"), others.pop("made")
            # Since when it may have been sent; 0 if it is not sent any more, as a clock was wrong.
            self.begun = others.pop("begun", self.made)
            self._doubted = False  # whether a clock was wrong, so that no later process may send it
            if others:
                raise ValueError(f"it has unknown members: {', '.join(others)}")
            self.made, self.begun = _number(self.made), _number(self.begun)
            self._sent = _exact(self.body)  # in it, members of later versions are sent, too
            # Text has no half surrogate pair.
            json.dumps([self._sent, self.body], ensure_ascii=False, default=str).encode()
            qty, fields = self._sent["qty"], self._sent.get("fields", {})
            whole = isinstance(qty, tuple) and Decimal(qty[0]).copy_abs() < 1 << 53
            whole = whole and qty[0] == qty[0].to_integral_value()
            if not (isinstance(self._sent["item"], str) and whole and isinstance(fields, dict)):
                raise ValueError("its body has no item and quantity, or other fields than an object")
            if not re.fullmatch(r"[!#-+\--\[\]-~]{1,255}", self.key):
                raise ValueError("the key is none")
        except Exception as err:
            raise ValueError(f"no draft, or one that another version has to go on with: {err!r}") from err

    def _members(self) -> dict[str, Any]:
        begun = 0 if self._doubted else self.begun
        return {"version": 1, "key": self.key, "body": self.body, "made": self.made, "begun": begun}

    def _unsendable(self) -> str:
        """Says why it is not sent any more, or is empty. One from ahead would seem to be new later."""
        now = time.time()
        if self.begun and now < SET:
            utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            return f"the clock of this machine is wrong ({utc}): set it, and call again"
        if self.begun and max(self.made, self.begun) > now + AHEAD:
            self.begun, self._doubted = 0, True
        if not self.begun:
            return WRONG_CLOCK
        if now >= self.begun + LIFETIME:
            return f"too old to be sent again: {ASK}"
        return ""


_counting = threading.Lock()  # for _open of drafts, which may be sent by several threads and shops


class Shop:
    """A storefront. Its methods may be called by several threads at once.

    headers are sent with each request, such as a sign-in; a function is called before each try. account says
    whose sign-in that is, by a name that stays, or as a function: an order is sent as long as it is the same.
    remember is how many products are kept, so that the service need not send again what has not changed.
    patience is for how many seconds one call of order goes on: twelve hours, or less for those who have a
    queue. on_try is called after each Try, for a log.
    """

    def __init__(self, url: str, *, headers: Headers = {}, account: Union[str, Callable[[], str]] = "",
                 patience: float = PATIENCE, remember: int = 0, read_patience: float = READ_PATIENCE,
                 context: Optional[ssl.SSLContext] = None, on_try: Optional[Callable[[Try], object]] = None):
        self.url = _base(url)
        self._account: Callable[[], Any] = account if callable(account) else lambda: account
        self.patience, self.read_patience = patience, read_patience
        self._headers, self._remember, self._on_try = headers, remember, on_try
        # Tags, answers, and the headers for which they came.
        self._products: dict[str, tuple[str, str, dict[str, str]]] = {}
        self._lock = threading.Lock()  # for _products
        self._opener = urllib.request.build_opener(_HTTP, _HTTPS(context=context), _AnyStatus)
        if not callable(headers):
            self._own()

    def order(self, draft: Draft, *, patience: Optional[float] = None) -> dict[str, Any]:
        """Sends a draft until an answer is final, and returns the order that was created. An error is
        Refused, Blocked or Unknown. It is sent once at least."""
        patience = self.patience if patience is None else patience
        return self._order(draft, patience, self._account(), lambda: None, lambda: None).object or {}

    def _order(self, draft: Draft, patience: float, account: Any, held: Callable[[], None],
               mark: Callable[[], None]) -> _Answer:
        """mark is called when a clock was wrong, so that no later process may send the draft."""
        pauses = _Pauses(patience)
        cuts, answer = 3, None

        def check() -> None:
            if why := draft._unsendable():
                if draft._doubted:
                    mark()
                raise Unknown(why, answer, draft)

        def ready() -> None:
            if self._account() != account:
                raise Unknown("another account has signed in", answer, draft)
            held()  # and check again, as headers and account may have taken a day
            check()
            with _counting:
                draft._open += 1

        def end(kind: type[StorefrontError], why: str) -> StorefrontError:
            why += f"; {WRONG_CLOCK}" if draft._doubted and kind is not Refused else ""
            return kind(why, answer, draft)

        while True:
            check()
            headers = {"Content-Type": "application/json", "Idempotency-Key": draft.key}
            answer = self._send("POST", ORDERS, headers, ready, draft.body.encode())
            if answer.status == 201 and _is_order(answer.exact(), draft):
                return answer
            if answer.wrong_clock and not draft._doubted:
                draft._doubted = True
                mark()  # now, as the process may be killed
            if refused := answer.refuses and answer.code != "idempotency-key-reused":
                with _counting:
                    draft._open -= 1
            changed = answer.changed("")
            cut = changed or answer.code == "malformed-body"  # which it may have become on its way
            cuts -= cut
            if answer.again or cut and cuts >= 0:
                if pauses.wait(answer):
                    continue
                if not changed:
                    raise end(Unknown, "no final answer")
            if changed:
                raise end(Blocked, "something in front of the service changes requests")
            if refused and not draft._open:
                raise end(Refused, "refused")
            if answer.refuses:
                raise end(Unknown, "refused, but the key may have an order")
            raise end(Blocked, "something in front of the service has answered" + answer.coding)

    def orders(self, limit: Optional[int] = None) -> Iterator[dict[str, Any]]:
        """Yields the orders of the account, the newest first, page by page. As each read of orders, it raises
        Refused if the shop does not let clients read them: the code is method-not-allowed, or not-found."""
        return self._walk(ORDERS, "after", limit, self._account)

    def get_order(self, id: str) -> dict[str, Any]:
        """Returns an order, perhaps with more that the shop says of it. It raises Refused with the code
        order-not-found if the account has none with this ID."""
        return self._read(ORDERS + "/" + _segment(id), {}, lambda answer: answer.has(id)).object or {}

    def find_order(self, draft: Draft) -> Optional[dict[str, Any]]:
        """Returns the order that a draft has become, or None if there is none so far. A try that is on its
        way, or waits in the database while the shop takes no orders, may still create it: to give it up, wait
        until the shop takes orders, and some minutes more. The shop remembers the key for 24 hours."""
        return self._find(draft, self._account())

    def _find(self, draft: Draft, account: Any) -> Optional[dict[str, Any]]:
        def usable(answer: _Answer) -> bool:
            data = answer.exact().get("data")
            one = _is_page(answer) and (answer.object or {})["has_more"] is False
            one = one and isinstance(data, list) and len(data) < 2  # nothing, if it is nested too deeply
            return one and all(_is_order(order, draft) for order in data)

        path = ORDERS + "?idempotency_key=" + quote(f'"{draft.key}"', safe="")
        data = (self._read(path, {}, usable, account=lambda: account).object or {})["data"]
        return data[0] if data else None

    def journal(self, folder: str) -> Journal:
        return Journal(self, folder)

    def users(self, limit: Optional[int] = None) -> Iterator[dict[str, Any]]:
        """Yields the users, page by page. An error says that the list was not read to its end."""
        return self._walk("/v1/users", "after", limit)

    def widgets(self, limit: int = 50) -> Iterator[dict[str, Any]]:
        return self._walk("/v2/widgets", "start", limit)

    def product(self, id: str, *, max_age: Optional[int] = None) -> dict[str, Any]:
        """Returns a product. With max_age, it may be as many seconds old. It raises Refused with the code
        product-not-found if there is none."""
        path = "/v1/products/" + _segment(id)
        headers = {} if max_age is None else {"Cache-Control": f"max-age={max_age}"}
        with self._lock:
            tag, kept, asker = self._products.get(id, ("", "", {}))
        answer = self._read(path, headers, lambda answer: answer.has(id), tag, asker)
        if answer.status == 304:
            return _plain(kept)
        tag = answer.header("ETag")
        with self._lock:
            self._products.pop(id, None)
            # A weak tag may be that of what another account gets, too.
            if tag.startswith('"') and "no-store" not in answer.header("Cache-Control").lower():
                self._products[id] = tag, answer.text, answer.asker
            while len(self._products) > self._remember:
                del self._products[next(iter(self._products))]  # the oldest
        return answer.object or {}

    def _walk(self, path: str, parameter: str, limit: Optional[int],
              account: Optional[Callable[[], Any]] = None) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {} if limit is None else {"limit": limit}
        whose = account and account()
        last, seen = "", set()  # ID, and cursors since
        while True:
            target = path + ("?" + urlencode(query) if query else "")
            answer = self._read(target, {}, lambda answer: _is_page(answer, last, path == ORDERS),
                                account=account and (lambda: whose), smaller=limit != 1)
            if answer.unfit:
                limit = query["limit"] = max(1, int(limit or 50) // 2)
                continue
            page = answer.object or {}
            cursor = page.get("next")
            if cursor in seen:
                raise Blocked("the list goes round in a circle", answer)
            if page["data"]:
                last = page["data"][-1]["id"]
                seen.clear()
            yield from page["data"]
            if cursor is None:
                return
            seen.add(cursor)
            query[parameter] = cursor

    def _read(self, path: str, headers: dict[str, str], usable: Callable[[_Answer], bool], tag: str = "",
              asker: Mapping[str, str] = {}, account: Optional[Callable[[], Any]] = None,
              smaller: bool = False) -> _Answer:
        """Reads until an answer is final. An account that is given is the one who may ask. If what is read
        can be made smaller, an answer that does not fit is returned, too."""
        pauses = _Pauses(self.read_patience)

        def ready() -> None:
            if account and self._account() != account():
                raise Unknown("another account has signed in")

        while True:
            answer = self._send("GET", path, headers, ready, tag=tag, asker=asker)
            if answer.status == 200 and answer.object is not None and usable(answer):
                return answer
            if answer.status == 304 and tag and asker == answer.asker:
                return answer
            if smaller and answer.unfit:
                return answer
            if answer.changed(path):
                raise Blocked("something in front of the service has changed GET " + path, answer)
            coded = answer.status == 200 and answer.coding
            if coded or answer.status not in (200, 304) and not answer.again or answer.code == "not-cached":
                why = "GET " + path + answer.coding
                if path.startswith(ORDERS) and answer.code in ("not-found", "method-not-allowed"):
                    why = "this shop does not let clients read orders: " + why
                raise (Refused if answer.code else Blocked)(why, answer)
            if not pauses.wait(answer):
                raise Unknown("no final answer to GET " + path, answer)

    def _own(self) -> dict[str, str]:
        own = dict(self._headers() if callable(self._headers) else self._headers)
        for name, value in own.items():
            if not re.fullmatch(r"[\t -~\x80-\xff]*", f"{name}{value}"):
                raise ValueError(f"the header {name!r} has what HTTP cannot say")
        return own

    def _send(self, method: str, path: str, headers: Mapping[str, str], ready: Callable[[], None],
              body: Optional[bytes] = None, tag: str = "", asker: Mapping[str, str] = {}) -> _Answer:
        """Sends a request once. ready is called before, with the headers of the program at hand."""
        began = time.monotonic()
        try:
            own = self._own()
        except Exception as err:  # who says who signs in may be away, as the shop may be
            answer = _Answer(0, {}, f"headers() has failed: {err!r}".encode())
        else:
            ready()
            all = {"User-Agent": "storefront.py", **own, **headers}
            if tag and asker == own:
                all["If-None-Match"] = tag
            answer = self._exchange(urllib.request.Request(self.url + path, body, all, method=method))
            answer.asker = own
        if self._on_try:
            key = headers.get("Idempotency-Key", "")
            try:
                self._on_try(Try(method, path, key, answer.status, answer.text, time.monotonic() - began))
            except Exception:  # of which an order does not depend
                logging.getLogger("storefront").exception("on_try has failed")
        return answer

    def _exchange(self, request: urllib.request.Request) -> _Answer:
        began, start = time.time(), time.monotonic()
        status, date, long, text = 0, None, False, bytearray()
        try:
            with self._opener.open(request, timeout=TRY) as response:
                status, date = response.status, _date(response.headers.get("Date") or "")
                reads = request.get_method() == "GET"
                most = MOST * 16 if reads and response.status == 200 else MOST
                while len(text) <= most and (part := response.read1(1 << 16)):
                    text += part
                if len(text) > most:
                    if response.status == (200 if reads else 201):
                        long = True
                        raise OSError("the answer is too long")
                elif response.length:
                    raise http.client.IncompleteRead(text, response.length)
                answer = _Answer(response.status, response.headers, bytes(text[:most]))
        except (OSError, ValueError, http.client.HTTPException) as err:
            answer = _Answer(0, {}, str(err or type(err).__name__).encode())  # no answer, or a part of one
            # Something on the way may have a lower limit.
            answer.unfit = status == 200 and (long or time.monotonic() - start >= TRY / 4)
        answer.wrong_clock = date is not None and not began - AHEAD <= date <= time.time() + AHEAD
        return answer


class Journal:
    """Keeps drafts in a folder of a local disk until they are orders. The program names each order, for
    example after its basket: of one name there is one order, by however many processes it is asked for, and
    wherever one of them is killed. It needs flock, which Windows does not have.

    A name belongs to the URL and the account of shop: what the folder has of others is left alone."""

    def __init__(self, shop: Shop, folder: str):
        self.shop, self.folder = shop, os.path.abspath(folder)  # the working directory may change
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        _sync(os.path.dirname(self.folder))

    def order(self, name: str, item: Optional[str] = None, qty: Optional[int] = None,
              fields: Optional[Fields] = None, *, patience: Optional[float] = None) -> dict[str, Any]:
        """Returns the order of this name. If the journal does not have it, it sends the draft of the name, or
        a new one for the item. It goes on with what ended with an error, also in an earlier process. It
        waits for another process that is at it. With an OSError, the order may exist."""
        patience = self.shop.patience if patience is None else patience
        end = time.monotonic() + patience
        id = self._id(name)
        path = self._path(id)
        with self._locked(path, end) as held:
            asked = None
            if item is not None or qty is not None or fields is not None:
                asked = Draft(item, qty, fields)  # type: ignore[arg-type]
            loaded = self._load(path)
            if loaded is None:
                if asked is None:
                    raise KeyError(name)
                if why := asked._unsendable():
                    raise Unknown(why, None, asked)
                draft = asked
                self._write(held, id, draft)
            else:
                record, _, draft = loaded
                if asked and draft._sent != asked._sent:
                    raise ValueError(f"{name} is another order: {draft.body}")
                _sync(self.folder)  # who wrote it may have been killed before that
                if record.get("order"):
                    return record["order"]
                if problem := record.get("refused"):
                    if draft._unsendable():
                        answer = _Answer(0, {}, json.dumps(problem, default=str).encode())
                        answer.status, answer.problem = problem.get("status", 422), problem
                        raise Refused("refused, and not sent again", answer, draft)
                    draft._open = 0
                    self._write(held, id, draft)  # it is open until the next answer
                os.utime(path)  # others come first in pending

            def note(what: str, text: str) -> None:
                # What the shop has said holds, even if it cannot be kept: then the draft is open.
                try:
                    self._write(held, id, draft, **{what: re.sub(r"[\r\n]", " ", text)})
                except (OSError, Unknown) as err:  # or the lock has gone
                    why = "the journal does not keep what became of %r: %s"
                    logging.getLogger("storefront").warning(why, name, err)

            try:
                answer = self.shop._order(draft, end - time.monotonic(), id[1], held,
                                          lambda: self._write(held, id, draft))
            except Refused as err:
                note("refused", err.answer)
                raise
            note("order", answer.text)
            return answer.object or {}

    def pending(self) -> list[str]:
        """Returns the names of drafts of which nobody knows what became: go on with them at the start, and
        from time to time. The one whose last try is the longest ago comes first. A .json that is no entry, or
        that another version wrote, is left as it is, and named in the log "storefront"."""
        found, owner = [], self._id("")[:2]
        for file in sorted(os.listdir(self.folder)):
            if file.endswith(".json"):
                try:
                    loaded = self._load(os.path.join(self.folder, file))
                except (OSError, ValueError) as err:
                    logging.getLogger("storefront").warning("the journal leaves out %r: %s", file, err)
                    continue
                if loaded:  # or another process has forgotten it
                    record, tried, _ = loaded
                    ends = record.get("order") or record.get("refused")
                    if not ends and (record["shop"], record["account"]) == owner:
                        found.append((tried if tried <= time.time() else 0, record["name"]))
        return [name for _, name in sorted(found)]

    def read(self, name: str) -> Optional[dict[str, Any]]:
        """Returns the entry of a name: key, body and made of its draft, and order or refused, the problem,
        once the answer was final."""
        loaded = self._load(self._path(self._id(name)))
        return loaded and loaded[0]

    def find_order(self, name: str) -> Optional[dict[str, Any]]:
        """Asks the shop what became of a name, and sends nothing: see find_order of Shop."""
        id = self._id(name)
        loaded = self._load(self._path(id))
        if loaded is None:
            raise KeyError(name)
        record, _, draft = loaded
        return record.get("order") or self.shop._find(draft, id[1])

    def forget(self, name: str) -> None:
        """Removes what the journal knows of a name, whatever that is. Do it when the program has the order
        in its own books, or has said that there is none."""
        path = self._path(self._id(name))
        with self._locked(path, time.monotonic() + self.shop.patience) as held:
            held()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            _sync(self.folder)

    def _id(self, name: str) -> tuple[str, str, str]:
        account = self.shop._account()
        if not isinstance(account, str) or "\n" in account:
            raise ValueError(f"{account!r} is no account: it is a line of text")
        return self.shop.url, account, name

    def _path(self, id: tuple[str, str, str]) -> str:
        """Returns the file of an entry. A hash is short, and has no case, to which some disks do not look."""
        return os.path.join(self.folder, hashlib.sha256("\n".join(id).encode()).hexdigest() + ".json")

    def _load(self, path: str) -> Optional[tuple[dict[str, Any], float, Draft]]:
        """Returns what a file has, and when it was tried last. A ValueError says that it is no entry."""
        flags = os.O_NONBLOCK | os.O_NOFOLLOW  # or a pipe would be waited for
        try:
            with open(path, "rb", opener=lambda path, mode: os.open(path, mode | flags)) as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_OF_ENTRY:
                    raise ValueError("no entry, but no file or a long one")
                text = file.read().decode()
                record = _plain(text)
                own = ("shop", "account", "name", "order", "refused")
                draft = Draft._of({name: value for name, value in record.items() if name not in own})
                shop, account, name = (record[member] for member in own[:3])
                if "\n" in shop + account or self._path((shop, account, name)) != path:
                    raise ValueError(f"the entry of {name!r} is not in its own file")
                if record.get("order") and not _is_order(_exact(text)["order"], draft):
                    raise ValueError("its order is another")
                return record, info.st_mtime, draft
        except FileNotFoundError:
            return None
        except (AttributeError, LookupError, RecursionError, TypeError) as err:
            raise ValueError(f"no entry: {err!r}") from err

    def _write(self, held: Callable[[], None], id: tuple[str, str, str], draft: Draft,
               **outcome: str) -> None:
        """Returns when the record is on the disk, with an outcome that is JSON. The caller has the lock."""
        path = self._path(id)
        record = json.dumps({**draft._members(), **dict(zip(("shop", "account", "name"), id))})[:-1]
        record += "".join(f', "{name}": {text}' for name, text in outcome.items()) + "}"
        held()
        with open(os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(record.encode())
            file.flush()
            _flush(file.fileno())
        os.replace(path + ".tmp", path)
        _sync(self.folder)

    @contextlib.contextmanager
    def _locked(self, path: str, end: float) -> Iterator[Callable[[], None]]:
        """The lock of an entry is the kernel's, on a file, and goes with the process that has it. What it
        yields raises Unknown if others do not see the lock, as its folder was moved or replaced."""
        import fcntl
        path = path[: -len(".json")] + ".lock"

        def seen() -> bool:
            try:
                return os.path.samestat(os.fstat(file), os.stat(path))
            except FileNotFoundError:
                return False

        def held() -> None:
            if not seen():
                raise Unknown("the lock has gone from the folder of the journal")

        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise Unknown("another process is sending this order") from None
                    time.sleep(random.uniform(0.05, 0.25))
                    continue
                if not seen():
                    continue  # who had the lock has removed the file
                try:
                    yield held
                finally:
                    with contextlib.suppress(OSError):
                        if seen():
                            os.unlink(path)
                return
            finally:
                os.close(file)


def _sync(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        _flush(file)
    finally:
        os.close(file)


def _flush(file: int) -> None:
    """Is fsync. That of macOS leaves what was written in the cache of the disk, and this does not."""
    import fcntl
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC"))
    except (AttributeError, OSError) as err:  # another system, or a file system without it
        if getattr(err, "errno", 0) == errno.EIO:
            raise
        os.fsync(file)


class _Answer:
    """An answer. Its status is 0 if none came, or a part of one; then text says why."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes):
        self.status, self._headers = status, headers
        self.asker: dict[str, str] = {}  # the headers that are not of this client
        self.unfit = False  # the body of a 200 is too long, or was not over when the try was, or after long
        self.wrong_clock = False  # its Date is not of the time of the try, by the clock here
        self.text = body.decode(errors="replace")
        self.object: Optional[dict[str, Any]] = None
        with contextlib.suppress(ValueError, RecursionError):
            value = _plain(body.decode()) if status else None
            self.object = value if isinstance(value, dict) else None
        type = (self.object or {}).get("type")
        ours = status >= 400 and isinstance(type, str) and type.startswith(PROBLEM)
        self.problem = self.object if ours else None
        self.code = str(type)[len(PROBLEM) :] if ours else ""

    def exact(self) -> dict[str, Any]:
        """Is object with numbers that can be compared exactly, or empty if it is none."""
        with contextlib.suppress(ValueError, RecursionError):
            return _exact(self.text) if self.object else {}
        return {}

    def has(self, id: str) -> bool:
        return (self.object or {}).get("id") == id

    def header(self, name: str) -> str:
        return self._headers.get(name) or ""

    @property
    def again(self) -> bool:
        again = self.status in (0, 408, 409, 429) or self.status >= 500 and self.status != 501
        return again or self.status == 201 and not self.coding

    @property
    def coding(self) -> str:
        """Says in which coding the body is, although the request asks for none, or is empty."""
        coding = self.header("Content-Encoding")
        return f" with the content coding {coding!r}" if coding.lower() not in ("", "identity") else ""

    def changed(self, path: str) -> bool:
        """Whether the service refuses what only something on the way can have made of a request for a path.
        An order has none."""
        if self.code in ("not-found", "method-not-allowed"):
            return not path.startswith(ORDERS)
        if self.code != "invalid-query":
            return self.code in ("idempotency-key-missing", "idempotency-key-invalid",
                                 "unsupported-media-type", "precondition-failed")
        limit = re.search("[?&]limit=([^&]*)", path)  # the program's, which may be wrong
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            for fault in (self.problem or {}).get("errors") or []:
                if fault.get("parameter") == "idempotency_key":  # nobody has signed in
                    return False
                if limit and fault.get("parameter") == "limit":
                    return bool(fault.get("minimum", 1) <= int(limit[1]) <= fault.get("maximum", 1 << 53))
            return True
        return False

    @property
    def refuses(self) -> bool:
        """Whether the service has refused this request, which so has created nothing."""
        return self.problem is not None and self.status < 500 and self.status != 409

    @property
    def retry_after(self) -> float:
        value = self.header("Retry-After").strip()  # a date, or anything: it counts if it is a number
        return min(int(value[:9]), 3600) if re.fullmatch("[0-9]+", value) else 0


class _Pauses:
    def __init__(self, patience: float):
        self.end, self.limit = time.monotonic() + patience, 0.25

    def wait(self, answer: _Answer) -> bool:
        """Waits before the next try, and reports whether there is time for it."""
        seconds = answer.retry_after + random.uniform(0, self.limit)
        if time.monotonic() + seconds > self.end:
            return False
        time.sleep(seconds)
        self.limit = min(2 * self.limit, 60)
        return True


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_order(order: Any, draft: Draft) -> bool:
    """Whether what _exact has read is the order of a draft, as proxies have mixed up answers. Fields are
    compared by value: the service writes them in its own form."""
    try:
        same = all(order.get(name) == draft._sent.get(name) for name in ("item", "qty", "fields"))
        return same and _is_id(order.get("id"))
    except (AttributeError, RecursionError):
        return False


def _exact(text: str) -> Any:
    """Reads JSON. A number becomes a tuple, which is equal to another of the same value, however many digits
    they have, and to nothing else. 200 levels are left for what is around the text."""
    def number(text: str) -> Any:
        try:
            return (Decimal(text),)
        except ArithmeticError:  # its exponent has 19 digits or more
            return (text,)

    json.loads("[" * 200 + text + "]" * 200, parse_int=str, parse_float=str)
    return json.loads(text, parse_int=number, parse_float=number, parse_constant=_number)


def _plain(text: str) -> Any:
    """Reads JSON. Python has no int of more than 4300 digits."""
    def number(digits: str) -> Any:
        return int(digits) if len(digits) < 4300 else Decimal(digits)

    return json.loads(text, parse_int=number, parse_constant=_number)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _is_page(answer: _Answer, last: str = "", descending: bool = False) -> bool:
    """Whether it is a page that begins behind an ID. IDs go on in the sequence of their bytes."""
    page = answer.object or {}
    data, cursor = page.get("data"), page.get("next")
    if not (isinstance(data, list) and all(isinstance(i, dict) and _is_id(i.get("id")) for i in data)):
        return False
    ids = [id.encode(errors="surrogatepass") for id in (last, *(i["id"] for i in data)) if id]
    rising = all((b < a) if descending else (a < b) for a, b in zip(ids, ids[1:]))
    return rising and page.get("has_more") is (cursor is not None) and (cursor is None or _is_id(cursor))


def _date(value: str) -> Optional[float]:
    """Returns the time of a Date, or None (RFC 9110, Section 5.6.7)."""
    with contextlib.suppress(TypeError, ValueError):
        if re.fullmatch(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", value, re.ASCII):
            return email.utils.parsedate_to_datetime(value).timestamp()
    return None


def _base(url: str) -> str:
    """Returns the URL of a shop in one form, as entries of journals have it."""
    host = r"[^\s/?#@\\:\[\]%]+|\[[0-9a-f:.]+\]"
    to = re.fullmatch(rf"(https?)://({host})(:[0-9]{{1,5}})?(/[!-~]*)?", url, re.IGNORECASE)
    if not to or re.search(r"[?#\\]", to[4] or ""):
        raise ValueError("the URL of a shop is http(s)://host:port/path in ASCII, without a user, ? and #")
    scheme, host, port = to[1].lower(), to[2].lower(), int((to[3] or ":0")[1:])
    host.encode("idna")  # which raises a ValueError
    if to[3] and not 0 < port < 1 << 16:
        raise ValueError(f"the URL of a shop has the port {port}")
    default = {"http": 80, "https": 443}[scheme]
    return f"{scheme}://{host}" + (f":{port}" if port not in (0, default) else "") + (to[4] or "").rstrip("/")


def _segment(id: str) -> str:
    """Returns an ID as a segment of a path."""
    if id in ("", ".", "..", "/"):
        raise ValueError("no URL leads to what has this ID")
    return quote(id, safe="")


# For urllib, time limits are limits of each wait. Here, they are those of a whole try.


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        return response  # follow no redirect, raise no HTTPError

    https_response = http_response


class _HTTP(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(_Connection, req)


class _HTTPS(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        return self.do_open(_TLSConnection, req, context=self._context)


class _Raw(io.RawIOBase):
    def __init__(self, raw: Any, sock: Any):
        self.raw, self.sock, self.end = raw, sock, time.monotonic() + sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.sock.settimeout(left)
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def begin(self) -> None:
        super().begin()
        while 100 <= self.status < 200 and self.status != 101:  # not final, and begin knows only 100
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()

    def __init__(self, sock: Any, *args: Any, **kwargs: Any):
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Raw(self.fp.detach(), sock))


class _Connection(http.client.HTTPConnection):
    response_class = _Response

    def __init__(self, *args: Any, timeout: float = TRY, **kwargs: Any):
        super().__init__(*args, timeout=min(timeout, CONNECT), **kwargs)
        self.end = time.monotonic() + timeout

    def connect(self) -> None:
        super().connect()
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.sock.settimeout(left)

    def getresponse(self) -> Any:
        if self.sock:  # to send the body may have taken long
            self.sock.settimeout(max(self.end - time.monotonic(), 0.001))
        return super().getresponse()


class _TLSConnection(_Connection, http.client.HTTPSConnection):
    pass
