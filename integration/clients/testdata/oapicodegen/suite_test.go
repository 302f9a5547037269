package oapicodegen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/clienttest"
)

// A suiteClient is the generated client with what docs/wire.md says about tries.
type suiteClient struct{ *ClientWithResponses }

var (
	_ clienttest.Lister        = suiteClient{}
	_ clienttest.ProductGetter = suiteClient{}
)

func (c suiteClient) CreateOrder(ctx context.Context, item string, qty int64) (string, error) {
	key := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, 12*time.Hour)
	defer cancel()
	for pause := time.Second / 4; ; pause = min(2*pause, time.Minute) {
		res, err := c.CreateOrderWithResponse(ctx, &CreateOrderParams{IdempotencyKey: key}, NewOrder{Item: item, Qty: Qty(qty)})
		var wait int
		if err == nil { // it is not nil, too, for JSON that is no order
			switch s := res.StatusCode(); {
			case s == 201 && res.JSON201 != nil && res.JSON201.Id != "":
				return res.JSON201.Id, nil
			case s != 201 && s != 408 && s != 409 && s != 429 && (s < 500 || s == 501):
				return "", fmt.Errorf("the order with the key %s: %s", key, res.Status())
			}
			wait, _ = strconv.Atoi(res.HTTPResponse.Header.Get("Retry-After"))
		}
		select {
		case <-time.After(time.Duration(min(max(wait, 0), 3600))*time.Second + mathrand.N(pause)):
		case <-ctx.Done():
			return "", fmt.Errorf("the order with the key %s: %w", key, ctx.Err())
		}
	}
}

func (c suiteClient) ListUsers(ctx context.Context) (ids []string, _ error) {
	for params := new(ListUsersParams); ; {
		res, err := c.ListUsersWithResponse(ctx, params)
		if err != nil || res.JSON200 == nil || res.JSON200.Data == nil {
			return nil, errors.Join(err, errors.New("no page"))
		}
		for _, user := range res.JSON200.Data {
			ids = append(ids, user.Id)
		}
		if params.After = res.JSON200.Next; params.After == nil {
			return ids, nil
		}
	}
}

func (c suiteClient) ListWidgets(ctx context.Context) (ids []string, _ error) {
	for params := (ListWidgetsParams{Limit: 100}); ; {
		res, err := c.ListWidgetsWithResponse(ctx, &params)
		if err != nil || res.JSON200 == nil || res.JSON200.Data == nil {
			return nil, errors.Join(err, errors.New("no page"))
		}
		for _, widget := range res.JSON200.Data {
			ids = append(ids, widget.Id)
		}
		if params.Start = res.JSON200.Next; params.Start == nil {
			return ids, nil
		}
	}
}

func (c suiteClient) GetProduct(ctx context.Context, id string) (string, error) {
	res, err := c.GetProductWithResponse(ctx, id, nil)
	if err != nil || res.JSON200 == nil || res.JSON200.Id != id {
		return "", errors.Join(err, errors.New("no product"))
	}
	name, _ := res.JSON200.Get("name")
	text, _ := name.(string)
	return text, nil
}

func TestGeneratedClientPassesTheSuite(t *testing.T) {
	clienttest.RunSynctest(t, func(t *testing.T, service clienttest.Service) clienttest.Client {
		client, err := NewClientWithResponses(service.URL, WithHTTPClient(&http.Client{
			Transport: service.Transport, Timeout: 40 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))
		if err != nil {
			t.Fatal(err)
		}
		return suiteClient{client}
	})
}
