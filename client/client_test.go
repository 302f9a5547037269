package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/clienttest"
	"example.com/storefront/internal/must"
)

func TestClient(t *testing.T) {
	client.SetLongestRead(t, longest)
	clienttest.RunSynctest(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
		return &tested{newClient(t, service), nil}
	})
}

func TestJournal(t *testing.T) {
	client.SetLongestRead(t, longest)
	clienttest.RunSynctest(t, newJournaled)
}

func TestClientInRealTime(t *testing.T) {
	client.SetLongestRead(t, longest)
	clienttest.Run(t, newJournaled)
}

// longest is how much the tested clients read of pages without end. The default costs seconds.
const longest = 1 << 20

func newJournaled(t *testing.T, service clienttest.Service) clienttest.Client {
	c := newClient(t, service)
	return &tested{c, open(t, t.TempDir(), c)}
}

func newClient(t *testing.T, service clienttest.Service) *client.Client {
	t.Helper()
	return must.Get(client.New(service.URL, &client.Options{
		HTTPClient: &http.Client{Transport: service.Transport},
		Patience:   15 * time.Minute, // where nothing helps, 12 hours would be a thousand tries
		PageSize:   3,
		Products:   10,
		Logger:     slog.New(slog.DiscardHandler),
	}))(t)
}

// tested makes a client one that clienttest can test.
type tested struct {
	*client.Client
	journal *client.Journal // or nil
}

var _ interface {
	clienttest.Resumer
	clienttest.FieldsCreator
	clienttest.Lister
	clienttest.ProductGetter
	clienttest.HistoryLister
	clienttest.OrderFinder
} = (*tested)(nil)

func (c *tested) CreateOrder(ctx context.Context, item string, qty int64) (id string, err error) {
	return c.send(ctx, client.NewDraft(item, qty))
}

func (c *tested) CreateOrderWithFields(ctx context.Context, item string, qty int64, fields string) (string,
	error) {
	draft, err := client.NewDraftWithOptions(item, qty, &client.DraftOptions{Fields: json.RawMessage(fields)})
	if err != nil {
		return "", err
	}
	return c.send(ctx, draft)
}

func (c *tested) send(ctx context.Context, draft *client.Draft) (id string, err error) {
	send := c.Order
	if c.journal != nil {
		send = c.journal.Order
	}
	order, err := send(ctx, draft)
	if _, ok := errors.AsType[*client.RefusedError](err); ok {
		err = errors.Join(clienttest.ErrNotCreated, err)
	}
	return order.ID, err
}

func (c *tested) ResumeOrder(ctx context.Context, err error) (id string, _ error) {
	return c.send(ctx, draftOf(err))
}

// draftOf returns the draft of an error of Order.
func draftOf(err error) *client.Draft {
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		return refused.Draft
	}
	if blocked, ok := errors.AsType[*client.BlockedError](err); ok {
		return blocked.Draft
	}
	if unknown, ok := errors.AsType[*client.UnknownError](err); ok {
		return unknown.Draft
	}
	return nil
}

func (c *tested) FindOrder(ctx context.Context, err error) (id string, _ error) {
	order, err := c.GetOrderByKey(ctx, draftOf(err).Key())
	if errors.Is(err, storefront.ErrNotFound) {
		err = clienttest.ErrNotCreated
	}
	return order.ID, err
}

func (c *tested) ListUsers(ctx context.Context) (ids []string, err error) {
	return idsOf(c.Users(ctx), storefront.Resource.ID)
}

func (c *tested) ListWidgets(ctx context.Context) (ids []string, err error) {
	return idsOf(c.Widgets(ctx), storefront.Resource.ID)
}

func (c *tested) ListOrders(ctx context.Context) (ids []string, err error) {
	return idsOf(c.Orders(ctx), func(o client.Order) string { return o.ID })
}

func idsOf[T any](list iter.Seq2[T, error], id func(T) string) (ids []string, err error) {
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id(item))
	}
	return ids, nil
}

func (c *tested) GetProduct(ctx context.Context, id string) (name string, err error) {
	product, err := c.Product(ctx, id, nil)
	if err != nil {
		return "", err
	}
	return member(product, "name"), nil
}
