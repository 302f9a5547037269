// Command golang has the clients of libraries for Go, as people write them. With a name it speaks the
// lines of `storefront -trouble`; alone, it prints each name, with the versions of its modules.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-resty/resty/v2"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	resty3 "resty.dev/v3"

	"example.com/storefront/integration/libraries/golang/oapicodegen"
)

var (
	base = os.Getenv("STOREFRONT_URL")
	url  = base + "/v1/orders"

	oapiCodegen string // its version, which the build says
)

type order struct {
	ID   string `json:"id,omitempty"`
	Item string `json:"item"`
	Qty  int64  `json:"qty"`
}

// A client places an order and returns its ID.
type client struct {
	name    string
	modules []string
	place   func(key string, o order) (id string, err error)
}

func encode(o order) []byte {
	body, _ := json.Marshal(o)
	return body
}

func request(ctx context.Context, key string, o order) *http.Request {
	r, _ := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(encode(o)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return r
}

// decode is what people write: what is no error is an order.
func decode(res *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		return "", fmt.Errorf("status %d", res.StatusCode)
	}
	var o order
	err = json.NewDecoder(res.Body).Decode(&o)
	return o.ID, err
}

// careful is the loop of docs/wire.md around one try.
func careful(do func(context.Context) (*http.Response, error)) (string, error) {
	for pause, began := 250*time.Millisecond, time.Now(); time.Since(began) < 12*time.Hour; {
		res, body, err := once(do)
		var o order
		if err == nil {
			switch status := res.StatusCode; {
			case status == 201:
				if json.Unmarshal(body, &o) == nil && o.ID != "" {
					return o.ID, nil
				}
			case status < 500 && status != 408 && status != 409 && status != 429, status == 501:
				return "", fmt.Errorf("status %d: %s", status, body)
			}
			seconds, _ := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 63)
			time.Sleep(time.Duration(min(seconds, 3600)) * time.Second)
		}
		time.Sleep(mathrand.N(pause))
		pause = min(2*pause, time.Minute)
	}
	return "", errors.New("no answer")
}

func once(do func(context.Context) (*http.Response, error)) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	res, err := do(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, body, err
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func params(key string) *oapicodegen.CreateOrderParams {
	return &oapicodegen.CreateOrderParams{IdempotencyKey: key}
}

func newOrder(o order) oapicodegen.NewOrder { return oapicodegen.NewOrder{Item: o.Item, Qty: o.Qty} }

func clients() []client {
	bare := &http.Client{CheckRedirect: noRedirect}

	const retryable = "github.com/hashicorp/go-retryablehttp"
	byDefault := retryablehttp.NewClient()
	byDefault.Logger = nil
	tuned := retryablehttp.NewClient()
	tuned.Logger, tuned.RetryMax, tuned.RetryWaitMin = nil, 5, 250*time.Millisecond
	tuned.HTTPClient.Timeout = 40 * time.Second
	tuned.CheckRetry = func(ctx context.Context, res *http.Response, err error) (bool, error) {
		if res != nil && (res.StatusCode == 408 || res.StatusCode == 409) {
			return true, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, res, err)
	}
	single := retryablehttp.NewClient()
	single.Logger, single.RetryMax, single.ErrorHandler = nil, 0, retryablehttp.PassthroughErrorHandler
	single.HTTPClient.CheckRedirect = noRedirect
	retry := func(c *retryablehttp.Client, ctx context.Context, key string, o order) (*http.Response, error) {
		r, err := retryablehttp.FromRequest(request(ctx, key, o))
		if err != nil {
			return nil, err
		}
		return c.Do(r)
	}

	const restyModule = "github.com/go-resty/resty/v2"
	rest := func(c *resty.Client, key string, o order) (string, error) {
		var created order
		res, err := c.R().SetHeader("Idempotency-Key", key).SetBody(o).SetResult(&created).Post(url)
		if err == nil && res.IsError() {
			err = errors.New(res.Status())
		}
		return created.ID, err
	}
	restyTuned := resty.New().SetRetryCount(5).SetRetryWaitTime(250 * time.Millisecond).
		SetTimeout(40 * time.Second).AddRetryCondition(func(r *resty.Response, err error) bool {
		return err != nil || r.StatusCode() == 429 || r.StatusCode() >= 500
	})
	restySingle := resty.New().SetRedirectPolicy(resty.RedirectPolicyFunc(noRedirect)).
		SetDoNotParseResponse(true)

	const resty3Module = "resty.dev/v3"
	rest3 := func(c *resty3.Client, key string, o order) (string, error) {
		var created order
		res, err := c.R().SetHeader("Idempotency-Key", key).SetBody(o).SetResult(&created).Post(url)
		if err == nil && res.IsStatusFailure() {
			err = errors.New(res.Status())
		}
		return created.ID, err
	}
	resty3Tuned := resty3.New().SetRetryCount(5).SetRetryWaitTime(250*time.Millisecond).
		SetTimeout(40*time.Second).SetRetryAllowNonIdempotent(true).
		AddRetryConditions(resty3.RetryConditionStatusTooManyRequests, resty3.RetryConditionStatus5XX)
	resty3Single := resty3.New().SetRedirectPolicy(resty3.RedirectNoPolicy()).SetResponseDoNotParse(true)

	const generator = "github.com/oapi-codegen/oapi-codegen/v2"
	generated := func(http *http.Client, key string, o order) (string, error) {
		c, err := oapicodegen.NewClientWithResponses(base, oapicodegen.WithHTTPClient(http))
		if err != nil {
			return "", err
		}
		res, err := c.CreateOrderWithResponse(context.Background(), params(key), newOrder(o))
		switch {
		case err != nil:
			return "", err
		case res.JSON201 == nil:
			return "", errors.New(res.Status())
		}
		return res.JSON201.Id, nil
	}

	const heimdallModule = "github.com/gojek/heimdall/v7"
	backoff := heimdall.NewExponentialBackoff(250*time.Millisecond, 10*time.Second, 2, 100*time.Millisecond)
	heim := httpclient.NewClient(httpclient.WithHTTPTimeout(40*time.Second), httpclient.WithRetryCount(5),
		httpclient.WithRetrier(heimdall.NewRetrier(backoff)))

	const failsafe = "github.com/failsafe-go/failsafe-go"
	policy := failsafehttp.NewRetryPolicyBuilder().WithBackoff(250*time.Millisecond, 10*time.Second).
		WithMaxRetries(5).Build()
	safe := &http.Client{Transport: failsafehttp.NewRoundTripper(nil, policy), Timeout: 40 * time.Second}

	return []client{
		{"net/http, one try", nil, func(key string, o order) (string, error) {
			return decode(http.DefaultClient.Do(request(context.Background(), key, o)))
		}},
		{"net/http, loop of wire.md", nil, func(key string, o order) (string, error) {
			return careful(func(ctx context.Context) (*http.Response, error) {
				return bare.Do(request(ctx, key, o))
			})
		}},
		{"go-retryablehttp", []string{retryable}, func(key string, o order) (string, error) {
			return decode(retry(byDefault, context.Background(), key, o))
		}},
		{"go-retryablehttp, 408 and 409 retried, 40 s", []string{retryable},
			func(key string, o order) (string, error) {
				return decode(retry(tuned, context.Background(), key, o))
			}},
		{"go-retryablehttp, loop of wire.md", []string{retryable}, func(key string, o order) (string, error) {
			return careful(func(ctx context.Context) (*http.Response, error) {
				return retry(single, ctx, key, o)
			})
		}},
		{"resty", []string{restyModule}, func(key string, o order) (string, error) {
			return rest(resty.New(), key, o)
		}},
		{"resty, retries", []string{restyModule}, func(key string, o order) (string, error) {
			return rest(restyTuned, key, o)
		}},
		{"resty, loop of wire.md", []string{restyModule}, func(key string, o order) (string, error) {
			return careful(func(ctx context.Context) (*http.Response, error) {
				r := restySingle.R().SetContext(ctx).SetHeader("Idempotency-Key", key).SetBody(o)
				res, err := r.Post(url)
				return res.RawResponse, err
			})
		}},
		{"resty v3", []string{resty3Module}, func(key string, o order) (string, error) {
			return rest3(resty3.New(), key, o)
		}},
		{"resty v3, POST retried", []string{resty3Module}, func(key string, o order) (string, error) {
			return rest3(resty3Tuned, key, o)
		}},
		{"resty v3, loop of wire.md", []string{resty3Module}, func(key string, o order) (string, error) {
			return careful(func(ctx context.Context) (*http.Response, error) {
				r := resty3Single.R().SetContext(ctx).SetHeader("Idempotency-Key", key).SetBody(o)
				res, err := r.Post(url)
				return res.RawResponse, err
			})
		}},
		{"oapi-codegen", []string{generator}, func(key string, o order) (string, error) {
			return generated(http.DefaultClient, key, o)
		}},
		{"oapi-codegen, go-retryablehttp", []string{generator, retryable},
			func(key string, o order) (string, error) {
				return generated(tuned.StandardClient(), key, o)
			}},
		{"oapi-codegen, loop of wire.md", []string{generator}, func(key string, o order) (string, error) {
			c, err := oapicodegen.NewClient(base, oapicodegen.WithHTTPClient(bare))
			if err != nil {
				return "", err
			}
			return careful(func(ctx context.Context) (*http.Response, error) {
				return c.CreateOrder(ctx, params(key), newOrder(o))
			})
		}},
		{"heimdall, retries", []string{heimdallModule}, func(key string, o order) (string, error) {
			return decode(heim.Do(request(context.Background(), key, o)))
		}},
		{"heimdall, loop of wire.md", []string{heimdallModule}, func(key string, o order) (string, error) {
			one := httpclient.NewClient(httpclient.WithHTTPClient(bare))
			return careful(func(ctx context.Context) (*http.Response, error) {
				return one.Do(request(ctx, key, o))
			})
		}},
		{"failsafe-go, retries", []string{failsafe}, func(key string, o order) (string, error) {
			return decode(safe.Do(request(context.Background(), key, o)))
		}},
	}
}

func main() {
	versions := map[string]string{"github.com/oapi-codegen/oapi-codegen/v2": oapiCodegen}
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		versions[m.Path] = m.Version
	}
	for _, c := range clients() {
		if len(os.Args) < 2 {
			fmt.Printf("%s", c.name)
			for _, m := range c.modules {
				fmt.Printf("\t%s %s", strings.TrimPrefix(m, "github.com/"), versions[m])
			}
			if c.modules == nil {
				fmt.Printf("\t%s", strings.Replace(info.GoVersion, "go", "go ", 1))
			}
			fmt.Println()
		} else if c.name == os.Args[1] {
			serve(c)
		}
	}
}

func serve(c client) {
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		var outcome map[string]any
		json.Unmarshal(in.Bytes(), &o)
		json.Unmarshal(in.Bytes(), &outcome)
		if o.Item == "" {
			outcome["error"] = "orders only"
		} else if id, err := c.place(rand.Text(), o); err != nil {
			outcome["error"] = err.Error()
		} else {
			outcome["id"] = id
		}
		out.Encode(outcome)
	}
}
