# Does with sdk/python/storefront.py what lines of JSON on standard input say, and prints what came of
# it: see doc.go in integration/clients.

import json, os, signal, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../../sdk/python"))
sys.dont_write_bytecode = True
import storefront

steps = 0


def stepped(name, call):
    def step(*args, **kwargs):
        global steps
        steps += 1
        if steps == int(os.environ.get("KILL", 0)):
            os.kill(os.getpid(), signal.SIGKILL)
        with open(os.environ["STEPS"], "a") as file:
            print(name, file=file)
        return call(*args, **kwargs)

    return step


if "STEPS" in os.environ:
    storefront._flush, os.replace = stepped("flush", storefront._flush), stepped("rename", os.replace)
if "SLEEPS" in os.environ:
    time.sleep = lambda seconds: say({"sleeps": seconds})
if "CLOCK" in os.environ:
    time.time = lambda: float(os.environ["CLOCK"])
storefront.TRY = float(os.environ.get("TRY", storefront.TRY))

patience = float(os.environ.get("STOREFRONT_PATIENCE", storefront.PATIENCE))
account = os.environ.get("STOREFRONT_ACCOUNT", "")
shop = storefront.Shop(os.environ["STOREFRONT_URL"], account=account, remember=10, patience=patience,
                       headers=lambda: {"Authorization": account} if account else {})
journal = shop.journal(os.environ["JOURNAL"]) if "JOURNAL" in os.environ else None
drafts = {}


def say(outcome):
    print(json.dumps(outcome), flush=True)


def do(ask):
    global account
    if "can" in ask:
        return {"can": ["resume", "lists", "products", "fields", "history", "find"]}
    if ask.get("list") == "pending":
        return {"ids": journal.pending()}
    if "list" in ask:
        return {"ids": [item["id"] for item in getattr(shop, ask["list"])()]}
    if "account" in ask:
        account = ask["account"]
        return {}
    if "get" in ask:
        return {"got": json.dumps(shop.get_order(ask["get"]))}
    if "product" in ask:
        return {"name": shop.product(ask["product"])["name"]}
    if "find" in ask:
        order = journal.find_order(ask["item"]) if journal else shop.find_order(drafts[ask["item"]])
        return {"id": order["id"]} if order else {"created": False}
    if journal:
        order = ask["item"] if "qty" in ask else None, ask.get("qty"), ask.get("fields")
        return {"id": journal.order(ask["item"], *order)["id"]}
    draft = drafts.setdefault(ask["item"], storefront.Draft(ask["item"], ask["qty"], ask.get("fields")))
    order = shop.order(draft)
    del drafts[ask["item"]]
    return {"id": order["id"]}


for line in sys.stdin:
    ask = json.loads(line)
    try:
        say({**ask, **do(ask)})
    except Exception as err:
        created = {"created": False} if isinstance(err, storefront.Refused) and "find" not in ask else {}
        say({**ask, "error": f"{type(err).__name__}: {err}", **created})
