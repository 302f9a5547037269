package clients

import (
	"net/http"
	"sync/atomic"
	"testing"

	"example.com/storefront"
)

// Two calls send one draft, as two threads or a double click make them. The first is refused while the try of
// the second is on its way, which then creates the order. In Bash, a draft is a journal's alone.
func TestOneOfTwoCallsIsRefused(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		if l.name == "bash" {
			return
		}
		shop := newFolderShop(t)
		service := storefront.New(&shop.store)
		var first, second, ended = make(chan bool), make(chan bool), make(chan bool)
		var orders atomic.Int32
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/v1/users": // before the second call
				<-first
			case r.URL.Path == "/v2/widgets": // when the first has ended
				close(ended)
			case orders.Add(1) == 1:
				close(first)
				<-second
				refused(w, r)
				return
			default:
				close(second)
				<-ended
			}
			service.ServeHTTP(w, r)
		})
		runProgram(t, l, shop.URL, "", map[string]string{
			"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				const shop = new Shop(process.env.STOREFRONT_URL), draft = new Draft("teapot", 2);
				const call = () => shop.order(draft).then((order) => order.item, (err) => err.name);
				const one = call();
				for await (const _ of shop.users());
				const two = call(), said = [await one];
				for await (const _ of shop.widgets());
				said.push(await two);
				if (String(said) !== "Unknown,teapot") console.log(said);`,
			"python": `
import os, storefront
from concurrent.futures import ThreadPoolExecutor
shop, draft = storefront.Shop(os.environ["STOREFRONT_URL"]), storefront.Draft("teapot", 2)
with ThreadPoolExecutor() as threads:
    one = threads.submit(shop.order, draft)
    list(shop.users())
    two = threads.submit(shop.order, draft)
    said = one.exception()
    list(shop.widgets())
    if type(said) is not storefront.Unknown or two.result()["item"] != "teapot":
        print(repr(said))`,
		})
	})
}

// A copy of a draft does not know whether the original has an order.
func TestCopiesOfADraftAreRefused(t *testing.T) {
	python := inParallel(t, languages[2])
	shop := newFolderShop(t)
	shop.answers(refused)
	runProgram(t, python, shop.URL, "", map[string]string{"python": `
import copy, os, pickle, storefront
shop = storefront.Shop(os.environ["STOREFRONT_URL"])
def ends(draft):
    try:
        return shop.order(draft)
    except storefront.StorefrontError as err:
        return type(err).__name__
class Mine(storefront.Draft):
    pass
for how in (copy.copy, copy.deepcopy, lambda draft: storefront.Draft.from_json(draft.to_json()),
            *(lambda draft, i=i: pickle.loads(pickle.dumps(draft, i)) for i in range(pickle.HIGHEST_PROTOCOL + 1))):
    draft = Mine("teapot", 2, {"a": 9007199254740993})
    other = how(draft)
    if other.to_json() != draft.to_json() or (ends(other), ends(draft)) != ("Unknown", "Refused"):
        print(how, other.to_json(), ends(other), ends(draft))
`})
}

// What fails before a try is sent, such as to ask who signs in, is a try without an answer. A program is told of
// each, and what it does then is no fault of an order's.
func TestEachTryIsTold(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		shop, dir := newFolderShop(t), t.TempDir()
		service := storefront.New(&shop.store)
		shop.answers(func(w http.ResponseWriter, r *http.Request) {
			if shop.requests.Load() == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			service.ServeHTTP(w, r)
		})
		runProgram(t, l, shop.URL, dir, map[string]string{
			"bash": `
				is() { [[ $2 == "$3" ]] || echo "$1: $2, want $3"; }
				umask 027 # of the program
				tell() { echo "$1 $2 $3 ${5:+key} $(umask) $(head -c 6)" >&2; false; }
				export STOREFRONT_PATIENCE=60
				source storefront.sh
				STOREFRONT_ON_TRY=tell storefront order teapot teapot 2 >/dev/null 2>told
				is 'the order' $? 0
				is 'its tries' "$(<told)" $'POST /v1/orders 503 key 0027 \nPOST /v1/orders 201 key 0027 {"id":'
				[[ $(STOREFRONT_ON_TRY='echo told' storefront users 1 2>&1) == 'told GET /v1/users?limit=1 200 '* ]] || echo 'a read'
				STOREFRONT_CONFIG=none STOREFRONT_PATIENCE=0 storefront order other teapot 2 2>told
				is 'an order without its sign-in' $? 5; :`,
			"javascript": `
				import { Draft, Shop } from "./storefront.mjs";
				const is = (what, got, want) => String(got) === want || console.log(what, String(got), "want", want);
				let calls = 0;
				const tries = [];
				const headers = async () => { if (calls++ < 1) throw new Error("away"); return {}; };
				const onTry = (one) => { tries.push(one); throw new Error("of the hook"); };
				const shop = new Shop(process.env.STOREFRONT_URL, { headers, onTry });
				const draft = new Draft("teapot", 2);
				await shop.order(draft);
				is("its tries", tries.map((t) => [t.method, t.path, t.key === draft.key, t.status, t.seconds >= 0]),
					[0, 503, 201].map((status) => "POST,/v1/orders,true," + status + ",true").join());
				is("why", tries[0].answer, "headers() has failed: Error: away");
				is("its answer", JSON.parse(tries[2].answer).qty, "2");
				tries.length = 0;
				for await (const _ of shop.users()) console.log(_);
				is("a read", tries.map((t) => [t.method, t.path, t.key, t.status]), "GET,/v1/users,,200");
				calls = 0;
				const fails = async (options, item = "teapot") => {
					const shop = new Shop(process.env.STOREFRONT_URL, { patience: 0, ...options });
					return shop.order(new Draft(item, 2)).catch((err) => err.name);
				};
				is("refused, and nothing was sent before", await fails({ headers, patience: 60 }, ""), "Refused");
				// Nothing has an end here but a try.
				const real = setTimeout, never = () => new Promise(() => {});
				globalThis.setTimeout = (f, ms, ...args) => real(f, ms === 40_000 ? 40 : ms, ...args);
				is("headers without end", await fails({ headers: never }), "Unknown");
				is("fetch without end", await fails({ fetch: never }), "Unknown");`,
			"python": `
import json, os, storefront
def check(what, got, want):
    if got != want:
        print(what, got, "want", want)
calls, tries = 0, []
def headers():
    global calls
    calls += 1
    if calls == 1:
        raise OSError("away")
    return {}
def on_try(one):
    tries.append(one)
    raise OSError("of the hook")
shop = storefront.Shop(os.environ["STOREFRONT_URL"], headers=headers, on_try=on_try)
draft = storefront.Draft("teapot", 2)
shop.order(draft)
check("its tries", [(*one[:4], one.seconds >= 0) for one in tries],
      [("POST", "/v1/orders", draft.key, status, True) for status in (0, 503, 201)])
check("why", tries[0].answer, "headers() has failed: OSError('away')")
check("its answer", json.loads(tries[2].answer)["qty"], 2)
tries[:] = []
check("the list", list(shop.users()), [])
check("a read", [one[:4] for one in tries], [("GET", "/v1/users", "", 200)])
calls = 0
try:
    print(storefront.Shop(os.environ["STOREFRONT_URL"], headers=headers).order(storefront.Draft("", 2)))
except storefront.Refused: # as nothing was sent before
    pass`,
		})
	})
}
