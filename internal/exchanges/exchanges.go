// Package exchanges replays the recorded exchanges in testdata/contract, whose
// README.md describes them, on a [storefront.MemStore].
package exchanges

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.com/storefront"
)

// Files returns the recorded files in the folder dir, at least one.
func Files(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there are no recorded exchanges in %s", dir)
	}
	return files, err
}

// Check replays file, on a store with the resources of store.json in the same folder, and
// returns how the responses break the recorded ones, one line for each fault. Of a request
// without one, it returns the response as it would be recorded. Every handler that the file
// needs is passed through wrap, unless that is nil.
//
// Check sleeps when time passes in the file. It is meant to be called in a
// [testing/synctest] bubble, whose clock begins at the time at which the files begin.
func Check(file string, wrap func(http.Handler) http.Handler) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	contents, err := os.ReadFile(filepath.Join(filepath.Dir(file), "store.json"))
	if err != nil {
		return err
	}
	store := new(storefront.MemStore)
	if err := store.Load(bytes.NewReader(contents)); err != nil {
		return fmt.Errorf("store.json: %w", err)
	}
	steps, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	exchanges, err := replay(steps, store, wrap)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var faults []error
	for _, e := range exchanges {
		if e.want == nil {
			faults = append(faults, fmt.Errorf("%s:%d: no response is recorded for this request. It is\n\n%s",
				file, e.line, e.got))
			continue
		}
		for _, fault := range e.want.faults(e.got) {
			faults = append(faults, fmt.Errorf("%s:%d: %s", file, e.line, fault))
		}
	}
	return errors.Join(faults...)
}

// A step is a line such as "-- request --" and the text that follows it.
type step struct {
	line int
	verb string
	arg  string
	text string
}

var marker = regexp.MustCompile(`^-- (\S+)(?: (.*))? --$`)

func parse(text string) ([]step, error) {
	var steps []step
	var about strings.Builder
	for i, line := range strings.SplitAfter(text, "\n") {
		if m := marker.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			steps = append(steps, step{line: i + 1, verb: m[1], arg: m[2]})
		} else if len(steps) == 0 {
			about.WriteString(line)
		} else {
			steps[len(steps)-1].text += line
		}
	}
	if strings.TrimSpace(about.String()) == "" {
		return nil, errors.New("the first line must say what the exchange shows")
	}
	if len(steps) == 0 {
		return nil, errors.New("there is no request")
	}
	return steps, nil
}

// An exchange is the response to a request, the one just received and the recorded one.
type exchange struct {
	line int // of the request
	got  response
	want *recorded // nil if there is none
}

func replay(steps []step, store *storefront.MemStore,
	wrap func(http.Handler) http.Handler) ([]exchange, error) {
	current := &currentStore{store}
	h, err := newService(current, "", wrap)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	var exchanges []exchange
	for i, step := range steps {
		var err error
		switch step.verb {
		case "request":
			var r *http.Request
			if r, err = step.request(); err == nil {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				header := w.Result().Header
				if id, ok := strings.CutPrefix(header.Get("Location"), "orders/"); ok {
					header.Set("Location", "orders/"+strings.Trim(nameRandomParts(`"`+id+`"`, names), `"`))
				}
				got := response{w.Code, header, nameRandomParts(w.Body.String(), names)}
				exchanges = append(exchanges, exchange{line: step.line, got: got})
			}
		case "response":
			if i == 0 || steps[i-1].verb != "request" {
				err = errors.New("a response must follow its request")
			} else {
				exchanges[len(exchanges)-1].want, err = parseRecorded(step.text)
			}
		case "after":
			var d time.Duration
			d, err = time.ParseDuration(step.arg)
			time.Sleep(d)
		case "service":
			h, err = newService(current, step.arg, wrap)
		case "store":
			err = current.become(step.arg, store)
		case "put":
			err = store.Load(strings.NewReader(step.arg))
		case "order":
			err = create(store, step.arg)
		case "delete":
			name, id, _ := strings.Cut(step.arg, " ")
			collection := map[string]*storefront.Collection{
				"users": &store.Users, "products": &store.Products, "widgets": &store.Widgets,
			}[name]
			if collection == nil {
				err = fmt.Errorf("there are no %s", name)
				break
			}
			collection.Delete(id)
		default:
			err = errors.New("there is no such step")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", step.line, step.verb, err)
		}
	}
	return exchanges, nil
}

// create has the store create an order, with an ID of its own.
func create(store storefront.Store, text string) error {
	var order storefront.Order
	var of struct{ Scope, Key string }
	if err := errors.Join(json.Unmarshal([]byte(text), &order), json.Unmarshal([]byte(text), &of)); err != nil {
		return err
	}
	key := storefront.IdempotencyKey{Scope: of.Scope, Value: of.Key}
	_, err := store.CreateOrder(context.Background(), key, order)
	return err
}

// newService returns the handler with options such as "Shared MaxAge=10s".
func newService(store *currentStore, options string,
	wrap func(http.Handler) http.Handler) (http.Handler, error) {
	opts := &storefront.Options{Logger: slog.New(slog.DiscardHandler)}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&opts.PageSize, "PageSize", 0, "")
	flags.IntVar(&opts.MaxPageSize, "MaxPageSize", 0, "")
	flags.IntVar(&opts.CacheSize, "CacheSize", 0, "")
	flags.DurationVar(&opts.MaxAge, "MaxAge", 0, "")
	flags.DurationVar(&opts.ListMaxAge, "ListMaxAge", 0, "")
	flags.BoolVar(&opts.Shared, "Shared", false, "")
	flags.BoolVar(&opts.OrderFields, "OrderFields", false, "")
	flags.BoolFunc("Orders", "", func(string) error { opts.Orders = store; return nil })
	flags.Func("Vary", "", func(names string) error {
		opts.Vary = strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
		return nil
	})
	flags.Func("Scope", "", func(name string) error {
		opts.Scope = func(r *http.Request) string { return r.Header.Get(name) }
		return nil
	})
	for option := range strings.FieldsSeq(options) {
		if err := flags.Parse([]string{"-" + option}); err != nil {
			return nil, err
		}
	}
	h := storefront.NewWithOptions(store, opts)
	if wrap != nil {
		h = wrap(h)
	}
	return h, nil
}

// request parses a request as it is on the wire, but with lines that end in LF
// and a Content-Length that may be left out.
func (s step) request() (*http.Request, error) {
	head, body, _ := strings.Cut(strings.TrimRight(s.text, "\n"), "\n\n")
	lowerHead := strings.ToLower(head)
	switch {
	case strings.Contains(lowerHead, "\ntransfer-encoding:"):
		body = strings.ReplaceAll(body, "\n", "\r\n") + "\r\n\r\n"
	case body != "" && !strings.Contains(lowerHead, "\ncontent-length:"):
		head += "\nContent-Length: " + strconv.Itoa(len(body))
	}
	wire := strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		return nil, err
	}
	switch s.arg {
	case "":
	case "that stalls":
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), stalledReader{}))
	default:
		return nil, fmt.Errorf("there is no request %q", s.arg)
	}
	return r, nil
}

// A stalledReader is a connection whose read deadline has passed.
type stalledReader struct{}

func (stalledReader) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

var random = regexp.MustCompile(`("ord_|"urn:storefront:incident:)([0-9a-v]{26}|[A-Z2-7]{26})"`)

// nameRandomParts replaces the random part of each ID by a number with as many characters:
// the first ID gets 1, the next different one 2, and so on. It changes nothing else.
func nameRandomParts(body string, names map[string]string) string {
	return random.ReplaceAllStringFunc(body, func(found string) string {
		m := random.FindStringSubmatch(found)
		if names[m[2]] == "" {
			names[m[2]] = fmt.Sprintf("RANDOM%020d", len(names)+1)
		}
		return m[1] + names[m[2]] + `"`
	})
}

// A currentStore is a store, and its OrderReader, that can be replaced.
type currentStore struct{ readStore }

type readStore interface {
	storefront.Store
	storefront.OrderReader
}

// become makes s the working store or one that fails.
func (s *currentStore) become(state string, working readStore) error {
	refusal := new(storefront.Refusal)
	fields, refuses := strings.CutPrefix(state, "refusing ")
	failure, ok := map[string]error{
		"unavailable": fmt.Errorf("db-3: %w", storefront.ErrUnavailable),
		"in-progress": fmt.Errorf("db-3: %w", storefront.ErrInProgress),
		"failing":     errors.New("db-3: disk full"),
	}[state]
	switch {
	case state == "working":
		s.readStore = working
	case refuses:
		s.readStore = failingStore{fmt.Errorf("db-3: %w", refusal)}
		return json.Unmarshal([]byte(fields), refusal)
	case ok:
		s.readStore = failingStore{failure}
	default:
		return fmt.Errorf("it cannot be %q", state)
	}
	return nil
}

// A failingStore always fails.
type failingStore struct{ failure error }

func (s failingStore) ListUsers(context.Context, string, int) ([]storefront.Resource, error) {
	return nil, s.failure
}

func (s failingStore) CreateOrder(context.Context, storefront.IdempotencyKey, storefront.Order) (
	storefront.Order, error) {
	return storefront.Order{}, s.failure
}

func (s failingStore) GetProduct(context.Context, string) (storefront.Resource, error) {
	return storefront.Resource{}, s.failure
}

func (s failingStore) ListWidgets(context.Context, string, int) ([]storefront.Resource, error) {
	return nil, s.failure
}

func (s failingStore) GetOrder(context.Context, string, string) (storefront.Resource, error) {
	return storefront.Resource{}, s.failure
}

func (s failingStore) ListOrders(context.Context, string, string, int) ([]storefront.Resource, error) {
	return nil, s.failure
}

func (s failingStore) GetOrderByKey(context.Context, string, string) (storefront.Resource, error) {
	return storefront.Resource{}, s.failure
}
