// Package clienttest checks clients of the service of package storefront, as package
// storetest checks its stores: against services that behave as badly as networks, proxies
// and shops do.
//
// A client is tested with one call:
//
//	func TestClient(t *testing.T) {
//		clienttest.RunSynctest(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
//			http := &http.Client{Transport: service.Transport, Timeout: 40 * time.Second}
//			return client{shop.New(service.URL, http)}
//		})
//	}
//
//	// A client makes a program's own client one that clienttest can test.
//	type client struct{ *shop.Client }
//
//	func (c client) CreateOrder(ctx context.Context, item string, qty int64) (id string, err error) {
//		order, err := c.PlaceOrder(ctx, shop.Item(item), qty)
//		return order.ID, err
//	}
//
// Each subtest is named after a fault, such as an answer that is lost after the order was
// created, and has subtests in turn, which are named after what the suite demands of a
// client: one-key, retry-after and so on. A failure says which promise the client broke, what
// would happen to a shop, and what was sent and answered when. docs/wire.md has the rules.
// Begin with the first failure. As with any subtests, -run chooses some:
//
//	go test -run 'TestClient/orders/.*lost/one-key'
//
// A minor version may add faults, and demands that docs/wire.md makes.
//
// # Chance
//
// Each run has all faults, and all variants of each. What they leave to chance, such as where
// an answer is cut, is decided by the flag -clienttest.seed, which is 1 by default. A seed gives
// a right client the same verdict each time.
//
// # Optional methods
//
// A client may also be a [Resumer], a [Patient], a [FieldsCreator], a [Lister], a [ProductGetter], a
// [HistoryLister] and an [OrderFinder]. For those that it is not, the suite skips what they are needed
// for. The compiler reports a method that is missing or mistyped where the test file has this line:
//
//	var _ clienttest.Resumer = client{}
package clienttest

import (
	"context"
	"flag"
	"net/http"
	"testing"
	"time"

	"example.com/storefront/internal/conformance"
	"example.com/storefront/internal/conformance/drive"
	"example.com/storefront/internal/faults"
	"example.com/storefront/internal/must"
)

var seed = flag.Uint64("clienttest.seed", 1, "what the faults of package clienttest leave to chance")

// A Service is what a client is to talk to.
type Service struct {
	// URL is the base URL: orders are sent to URL + "/v1/orders". It has no slash at its
	// end.
	URL string
	// Transport leads to the service. With [RunSynctest], nothing else does; with [Run], a
	// client may use a transport of its own.
	Transport http.RoundTripper
}

// A Client places orders. It is usually a type of the test around a client to be tested.
type Client interface {
	// CreateOrder places an order as the program would, with all tries that it takes, and
	// returns the ID of the order that the service created. Each call is a new order, even
	// if item and qty are those of an order before. An error says that nobody knows whether there
	// is an order, unless it is [ErrNotCreated]. ctx has no deadline; it is done when the suite
	// waits no longer.
	CreateOrder(ctx context.Context, item string, qty int64) (id string, err error)
}

// ErrNotCreated is in the tree of an error (see [errors.Is]) by which a client says that there is no
// order, such as because the shop has refused it: the program may place another one, with a new key.
// Where one of the tries has created the order after all, that is a failure.
var ErrNotCreated = conformance.ErrNotCreated

// A Resumer is a client that can go on with an order that ended with an error, once
// somebody has put right what was wrong: a URL, a password.
type Resumer interface {
	// ResumeOrder goes on with the order for which CreateOrder has returned err, which is not
	// [ErrNotCreated]: it sends
	// the same order again, with the same key, or returns an error if the first try is too long
	// ago. The rest is as with CreateOrder.
	ResumeOrder(ctx context.Context, err error) (id string, _ error)
}

// A Patient is a Resumer whose program leaves an order to a queue when CreateOrder has tried for
// some time, and goes on with ResumeOrder.
type Patient interface {
	Resumer
	// Patience returns for how long CreateOrder goes on at least, where other clients do for 10
	// minutes at least. The suite then calls ResumeOrder once a minute, as the queue would, until
	// an answer was final. ResumeOrder sends the order once at least, and needs no patience.
	Patience() time.Duration
}

// A FieldsCreator is a client whose orders can have fields.
type FieldsCreator interface {
	// CreateOrderWithFields is CreateOrder with fields: the text of a JSON object, with what is often encoded
	// wrongly, such as 9007199254740993, 24.50, 1E400 and members without a name. The order has the same
	// fields by value: a number keeps all its digits.
	CreateOrderWithFields(ctx context.Context, item string, qty int64, fields string) (id string, err error)
}

// A Lister is a client that walks through lists.
type Lister interface {
	// ListUsers returns the IDs of all users in the sequence in which they came. An error
	// says that the list could not be read to its end; IDs beside it are ignored.
	ListUsers(ctx context.Context) (ids []string, err error)
	// ListWidgets is the same for widgets.
	ListWidgets(ctx context.Context) (ids []string, err error)
}

// A ProductGetter is a client that reads products, and may keep them for as long as the
// service allows.
type ProductGetter interface {
	// GetProduct returns the member name of the product, which is a string, and an error if
	// there is no such product or it could not be read. It is called several times, with
	// time in between, and never twice at the same time.
	GetProduct(ctx context.Context, id string) (name string, err error)
}

// A HistoryLister is a client that reads back its orders.
type HistoryLister interface {
	// ListOrders returns the IDs of all orders of the client's account, the newest first. The rest is as
	// with [Lister].
	ListOrders(ctx context.Context) (ids []string, err error)
}

// An OrderFinder is a client that asks the shop what became of an order.
type OrderFinder interface {
	// FindOrder looks by the key for the order for which CreateOrder has returned err, which is not
	// [ErrNotCreated], and returns its ID. The error is ErrNotCreated if the shop says that it has none so far;
	// any other says that this could not be learned. It sends no order.
	FindOrder(ctx context.Context, err error) (id string, _ error)
}

// RunSynctest checks a client in bubbles of [testing/synctest], in which time passes only
// while all goroutines wait, so that hours of waiting take no time. newClient returns a
// client of a program that has just started, for which it is called about 270 times. The
// client takes the time from package time, uses [Service.Transport] and waits for nothing
// else outside of the bubble. What it leaves running is ended in t.Cleanup, or package synctest
// panics two hours after the client has returned, and shows it. A run takes about a second.
func RunSynctest(t *testing.T, newClient func(t *testing.T, service Service) Client) {
	t.Helper()
	run(t, &suite{Run: drive.Run{Pace: faults.Days, Seed: *seed}, newClient: newClient})
}

// Run is like [RunSynctest] for clients that need real time or a real network. It checks less: not
// what takes hours, as the end of tries and long outages do. The services are at loopback addresses,
// 127.0.0.0/8. The clients meet all faults at the same time, 48 of them, so that a run takes about a
// minute, and ten seconds with -short, which leaves out answers that come late or never end, and how
// waits grow and differ. newClient is called from one goroutine, but the methods of all clients are
// called at the same time.
func Run(t *testing.T, newClient func(t *testing.T, service Service) Client) {
	t.Helper()
	run(t, &suite{Run: drive.Run{Pace: realTime(), Seed: *seed}, newClient: newClient, places: 48})
}

// RunProgram is like [Run] for a client in any language: a program that reads what it is asked for
// from its standard input, a line each, and prints what came of it, also a line each. docs/testing.md
// has the lines, and "go run ./cmd/storefront -faults 7 -- PROGRAM" is the same without a Go test.
// For each client, the command is started with [Service.URL] in the variable STOREFRONT_URL, 16 at a
// time. It must end within two seconds of its standard input. What it writes to its standard error is shown
// when it has answered, or with the failure if it dies.
func RunProgram(t *testing.T, command ...string) {
	t.Helper()
	newClient := must.Get(drive.Program(context.Background(), command))(t)
	run(t, &suite{Run: drive.Run{New: newClient, Pace: realTime(), Seed: *seed}, places: drive.Processes})
}

// realTime leaves out what takes most of a minute with -short.
func realTime() faults.Pace {
	if testing.Short() {
		return faults.Seconds
	}
	return faults.Minutes
}
