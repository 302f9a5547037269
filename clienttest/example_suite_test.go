package clienttest_test

import (
	"context"
	"errors"
	"testing"

	"example.com/storefront/clienttest"
)

// A shopClient makes the client of a program, [Shop], one that clienttest can test.
type shopClient struct{ *Shop }

var _ clienttest.Resumer = shopClient{}

func (c shopClient) CreateOrder(ctx context.Context, item string, qty int64) (string, error) {
	order, err := c.Order(ctx, item, qty)
	return order.ID, err
}

func (c shopClient) ResumeOrder(ctx context.Context, err error) (string, error) {
	open, ok := errors.AsType[*OpenOrder](err)
	if !ok {
		return "", err
	}
	order, err := c.Place(ctx, open.Key, open.Body)
	return order.ID, err
}

func TestShop(t *testing.T) {
	clienttest.RunSynctest(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
		return shopClient{&Shop{URL: service.URL, Transport: service.Transport}}
	})
}

func ExampleRunSynctest() {
	_ = func(t *testing.T) { // func TestShop(t *testing.T)
		clienttest.RunSynctest(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
			return shopClient{&Shop{URL: service.URL, Transport: service.Transport}}
		})
	}
}
