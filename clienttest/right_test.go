package clienttest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"example.com/storefront/clienttest"
)

// A client does what docs/wire.md says until one of its functions is set.
type client struct {
	http *http.Client
	url  string
	habits
}

// habits are what wrong clients do in another way.
type habits struct {
	key func(c *client, item string) string
}

func newClient(service clienttest.Service) *client {
	return &client{url: service.URL, http: &http.Client{
		Transport: service.Transport, Timeout: 40 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type openError struct {
	key  string
	body []byte
	text string
}

func (e *openError) Error() string { return "the order with the key " + e.key + ": " + e.text }

func (c *client) CreateOrder(ctx context.Context, item string, qty int64) (string, error) {
	body, err := json.Marshal(map[string]any{"item": item, "qty": qty})
	if err != nil {
		return "", err
	}
	return c.place(ctx, rand.Text(), body)
}

func (c *client) ResumeOrder(ctx context.Context, err error) (string, error) {
	open, ok := errors.AsType[*openError](err)
	if !ok {
		return "", err
	}
	return c.place(ctx, open.key, open.body)
}

func (c *client) place(ctx context.Context, key string, body []byte) (string, error) {
	end := time.Now().Add(12 * time.Hour)
	for pause := time.Second / 4; time.Now().Before(end); pause = min(2*pause, time.Minute) {
		status, header, answer := c.send(ctx, key, body)
		switch {
		case status == 201:
			var order struct{ ID string }
			if json.Unmarshal(answer, &order) == nil && order.ID != "" {
				return order.ID, nil
			}
		case status == 0, status == 408, status == 409, status == 429, status >= 500 && status != 501:
		default:
			return "", &openError{key, body, fmt.Sprintf("%d: %s", status, answer)}
		}
		wait, _ := strconv.Atoi(header.Get("Retry-After"))
		select {
		case <-time.After(time.Duration(min(max(wait, 0), 3600))*time.Second + mathrand.N(pause)):
		case <-ctx.Done():
			return "", &openError{key, body, ctx.Err().Error()}
		}
	}
	return "", &openError{key, body, "no answer"}
}

func (c *client) send(ctx context.Context, key string, body []byte) (int, http.Header, []byte) {
	req, _ := http.NewRequestWithContext(ctx, "POST", c.url+"/v1/orders", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, nil
	}
	return res.StatusCode, res.Header, answer
}

func (c *client) ListUsers(ctx context.Context) ([]string, error) {
	return c.list(ctx, "/v1/users", "after")
}
func (c *client) ListWidgets(ctx context.Context) ([]string, error) {
	return c.list(ctx, "/v2/widgets", "start")
}

func (c *client) list(ctx context.Context, path, name string) (ids []string, err error) {
	query := url.Values{"limit": {"100"}}
	for {
		var page struct {
			Data []struct{ ID string }
			Next string
		}
		if err := c.get(ctx, path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		if page.Data == nil {
			return nil, errors.New("no page")
		}
		for _, item := range page.Data {
			ids = append(ids, item.ID)
		}
		if page.Next == "" {
			return ids, nil
		}
		query.Set(name, page.Next)
	}
}

func (c *client) GetProduct(ctx context.Context, id string) (string, error) {
	var product struct{ ID, Name string }
	err := c.get(ctx, "/v1/products/"+url.PathEscape(id), &product)
	if err == nil && product.ID != id {
		err = errors.New("no product")
	}
	return product.Name, err
}

func (c *client) get(ctx context.Context, target string, v any) error {
	var err error
	for range 5 {
		req, _ := http.NewRequestWithContext(ctx, "GET", c.url+target, nil)
		var res *http.Response
		if res, err = c.http.Do(req); err != nil {
			continue
		}
		var body []byte
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
		switch {
		case err != nil:
		case res.StatusCode == 200:
			if err = json.Unmarshal(body, v); err == nil {
				return nil
			}
		case res.StatusCode < 500:
			return errors.New(res.Status)
		default:
			err = errors.New(res.Status)
		}
		time.Sleep(time.Second)
	}
	return err
}

func TestRightClient(t *testing.T) {
	clienttest.RunSynctest(t, func(t *testing.T, s clienttest.Service) clienttest.Client { return newClient(s) })
}

func TestRightClientRun(t *testing.T) {
	clienttest.Run(t, func(t *testing.T, s clienttest.Service) clienttest.Client { return newClient(s) })
}
