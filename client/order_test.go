package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/storefront"
	"example.com/storefront/client"
	"example.com/storefront/internal/must"
)

func TestErrorSaysWhatToDoNext(t *testing.T) {
	refusal := problem(422, "order-refused")
	type answers []http.HandlerFunc
	for _, test := range []struct {
		name    string
		answers answers
		want    string
	}{
		{"refused", answers{refusal}, "Refused"},
		{"refused for good", slices.Repeat(answers{problem(400, "malformed-body")}, 4), "Refused"},
		{"refused while another may be taken", answers{lost, refusal}, "Unknown"},
		{"refused by the key, of which something on the way has made another order",
			answers{problem(422, "idempotency-key-reused")}, "Unknown"},
		{"refused after a header was lost", answers{problem(400, "idempotency-key-missing"), refusal}, "Refused"},
		{"with another key, type, condition", answers{problem(400, "idempotency-key-invalid"),
			problem(415, "unsupported-media-type"), problem(400, "malformed-body"),
			problem(412, "precondition-failed")}, "Blocked"},
		{"with a query, to another path, by another method", answers{problem(400, "invalid-query"), lost,
			problem(404, "not-found"), problem(405, "method-not-allowed"), problem(404, "not-found")}, "Blocked"},
		{"an order in a coding", answers{says(201, "\x1f\x8b", "Content-Encoding", "br")}, "Blocked"},
		{"a page without end", answers{says(200, "<html>"+long)}, "Blocked"},
		{"a refusal without end", answers{says(422, `{"type":"urn:problem-type:storefront:order-refused"}`+long)},
			"Blocked"},
		{"401 of the shop's program", answers{storefront.Problem{Status: 401}.ServeHTTP}, "Blocked"},
		{"404 after an answer was lost", answers{lost, says(404, "")}, "Blocked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shop, store := newScript(test.answers...)
				draft := client.NewDraft("teapot", 2)
				c := shopOf(t, shop, client.Options{})
				order, err := c.Order(t.Context(), draft)
				if fmt.Sprintf("%T", err) != "*client."+test.want+"Error" || order.ID != "" {
					t.Fatalf("Order returned %v and a %T (%v), want it %s", order, err, err, test.want)
				}
				if draftOf(err) != draft {
					t.Error("the error has not got the draft")
				}
				if unknown, ok := errors.AsType[*client.UnknownError](err); ok && unknown.Refused == nil {
					t.Error("it does not say that the last try was refused")
				}
				if strings.Contains(err.Error(), draft.Key()) {
					t.Errorf("the key is in the error: %v", err)
				}
				if len(shop.answers) > 0 {
					t.Errorf("%d answers were not asked for", len(shop.answers))
				}
				// Whatever it was, the program can go on with the draft.
				if order, err = c.Order(t.Context(), draft); err != nil || order.Item != "teapot" || order.Qty != 2 {
					t.Errorf("Order returned %v, %v once nothing was wrong", order, err)
				}
				if n := len(store.Orders()); n != 1 {
					t.Errorf("the shop has %d orders, want 1", n)
				}
			})
		})
	}
}

// long is more than a client reads of an answer.
var long = strings.Repeat(" ", 1<<20)

func TestFieldsOfADraft(t *testing.T) {
	type address struct {
		Zip  string `json:"zip"`
		Note string `json:"note,omitempty"`
	}
	for _, row := range []struct {
		fields any
		want   string // in the body; "": an error
	}{
		{nil, `}`}, {storefront.Fields(""), `}`},
		{address{Zip: "01067"}, `,"fields":{"zip":"01067"}}`},
		{&address{"1", "<é>\ufffd"}, `,"fields":{"zip":"1","note":"<é>` + "\ufffd" + `"}}`},
		{map[string]any{"b": int64(1) << 60, "a": json.Number("2.0")}, `,"fields":{"a":2.0,"b":1152921504606846976}}`},
		{map[string]string{}, `,"fields":{}}`}, {map[string]string{`\ufffd`: `\\ufffd`}, `,"fields":{"\\ufffd":"\\\\ufffd"}}`},
		{json.RawMessage(` { "n" : 9007199254740993 , "x":1E400, "t":"\ufffd"} `),
			`,"fields":{"n":9007199254740993,"x":1E400,"t":"` + "\ufffd" + `"}}`},
		{storefront.Fields(`{"":{}}`), `,"fields":{"":{}}}`},
		{map[string]string(nil), ""}, {(*address)(nil), ""}, {json.RawMessage(nil), ""}, {json.RawMessage("null"), ""},
		{"text", ""}, {[]byte(`{"a":1}`), ""}, {[]int{1}, ""}, {func() {}, ""}, {math.NaN(), ""},
		{json.RawMessage(`{"a":1,"a":2}`), ""}, {json.RawMessage(`{"a":"\ud800"}`), ""}, {json.RawMessage("{"), ""},
		{json.RawMessage("[]"), ""}, {json.RawMessage(`{"a":"` + "\xff" + `"}`), ""},
		{address{Zip: "\xff"}, ""}, {map[string]int{"\xed\xa0\x80": 1}, ""}, {map[string]string{"a": "\uffff"}, ""},
		{map[string]string{"a": `\` + "\xff"}, ""},
	} {
		draft, err := client.NewDraftWithOptions("teapot", 2, &client.DraftOptions{Fields: row.fields})
		if row.want == "" || err != nil {
			if row.want != "" || err == nil || draft != nil {
				t.Errorf("%T %q: %v, %v, want %q", row.fields, row.fields, draft, err, row.want)
			}
			continue
		}
		var kept struct{ Body string }
		must.OK(t, json.Unmarshal([]byte(text(t, draft)), &kept))
		if want := `{"item":"teapot","qty":2` + row.want; kept.Body != want {
			t.Errorf("%T %q: %s, want %s", row.fields, row.fields, kept.Body, want)
		}
		if again := draftFrom(t, text(t, draft)); again.Fields() != draft.Fields() {
			t.Errorf("%q was read as %q", draft.Fields(), again.Fields())
		}
	}
	if draft, err := client.NewDraftWithOptions("teapot", 2, nil); err != nil || draft.Fields() != "" {
		t.Errorf("without options: %v, %v", draft, err)
	}
}

// TestItemThatJSONCannotSayIsRefused by whatever a draft can be given to, and is neither kept nor sent.
func TestItemThatJSONCannotSayIsRefused(t *testing.T) {
	for name, draft := range map[string]*client.Draft{
		"invalid UTF-8": client.NewDraft("tea\xffpot", 2), "half of a surrogate pair": client.NewDraft("\xed\xa0\x80", 2),
		"a noncharacter": client.NewDraft("tea\uffffpot", 2), "no key": new(client.Draft),
	} {
		shop, _ := newScript()
		dir := t.TempDir()
		c := shopOf(t, shop, client.Options{})
		journal := open(t, dir, c)
		for entrance, try := range map[string]func() error{
			"Client.Order":  func() error { _, err := c.Order(t.Context(), draft); return err },
			"Journal.Order": func() error { _, err := journal.Order(t.Context(), draft); return err },
			"Put":           func() error { return journal.Put(t.Context(), draft) },
			"MarshalText":   func() error { _, err := draft.MarshalText(); return err },
			"json.Marshal":  func() error { _, err := json.Marshal(draft); return err },
		} {
			err := try()
			if _, ok := errors.AsType[*client.RefusedError](err); !ok || draftOf(err) != draft {
				t.Errorf("%s, %s: %v, want a RefusedError", name, entrance, err)
			}
		}
		if got := resume(t, journal); len(got)+len(files(t, dir))+len(shop.sent) > 0 {
			t.Errorf("%s: Resume yields %v, and %d requests were sent", name, got, len(shop.sent))
		}
	}
}

// TestOnlyWhatWasSentMayHaveCreated has no token at first.
func TestOnlyWhatWasSentMayHaveCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, _ := newScript(problem(422, "order-refused"))
		n := 0
		_, err := shopOf(t, shop, client.Options{SignIn: func(*http.Request) error {
			if n++; n == 1 {
				return errors.New("there is no token now")
			}
			return nil
		}}).Order(t.Context(), client.NewDraft("teapot", 2))
		if _, ok := errors.AsType[*client.RefusedError](err); !ok {
			t.Errorf("Order returned %v, want a RefusedError", err)
		}
	})
}

// at is a time of now as drafts have it.
func at(ago time.Duration) string {
	return fmt.Sprint(float64(time.Now().Add(-ago).UnixMilli()) / 1000)
}

func TestDraftIsNotSentForLongerThanItsKeyLives(t *testing.T) {
	for _, test := range []struct {
		made, begun time.Duration // ago
		says        string        // why it is not sent
	}{
		{made: client.Lifetime - time.Minute},
		{made: client.Lifetime + time.Minute, says: "too old"},
		{made: 100 * time.Hour, begun: client.Lifetime - time.Minute},
		{made: 100 * time.Hour, begun: client.Lifetime + time.Minute, says: "too old"},
		{made: -59 * time.Minute},
		{made: -61 * time.Minute, says: "do not keep it"},
	} {
		kept := kept("made", at(test.made))
		if test.begun != 0 {
			kept = strings.Replace(kept, "}\n", `,"begun":`+at(test.begun)+"}\n", 1)
		}
		shop, _ := newScript()
		_, err := shopOf(t, shop, client.Options{}).Order(t.Context(), draftFrom(t, kept))
		_, ok := errors.AsType[*client.UnknownError](err)
		if sent := test.says == ""; ok == sent || (len(shop.sent) > 0) != sent ||
			!sent && !strings.Contains(err.Error(), test.says) {
			t.Errorf("a draft made %v ago and begun %v ago: %v, sent: %v", test.made, test.begun, err, len(shop.sent) > 0)
		}
	}
}

func TestNothingIsSentWhenTheContextIsDone(t *testing.T) {
	shop, _ := newScript(problem(422, "order-refused"))
	c, draft := shopOf(t, shop, client.Options{}), client.NewDraft("teapot", 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the program ends")
	cancel(cause)
	_, err := c.Order(ctx, draft)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || len(shop.sent) > 0 {
		t.Errorf("Order returned %v, and %d tries were sent", err, len(shop.sent))
	}
	// So it is sure that a refusal is of the only try.
	_, err = c.Order(t.Context(), draft)
	if _, ok := errors.AsType[*client.RefusedError](err); !ok {
		t.Errorf("Order returned %v, want a RefusedError", err)
	}
}

func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, draft := time.Now(), client.NewDraft("teapot", 2)
		c := shopOf(t, &script{shop: says(503, "")}, client.Options{Patience: time.Hour})
		_, err := c.Order(t.Context(), draft)
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Minute || draftOf(err) != draft {
			t.Errorf("after %v, Order returned %v", took, err)
		}
	})
}

func TestOnTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop, _ := newScript(lost, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			says(201, `{"id":"ord_1","item":"teapot","qty":2}`)(w, r)
		}, lost, says(404, "<html>"))
		var tries []string
		c := shopOf(t, shop, client.Options{
			OnTry: func(ctx context.Context, try client.Try) {
				item := "none"
				if try.Draft != nil {
					item = try.Draft.Item()
				}
				tries = append(tries, fmt.Sprintf("%s %s %d %v %s %v", try.Method, try.Path, try.Status, try.Duration,
					item, try.Err))
			},
			SignIn: func(r *http.Request) error {
				if len(tries) == 0 {
					return errors.New("there is no token now")
				}
				return nil
			},
		})
		must.Get(c.Order(t.Context(), client.NewDraft("teapot", 2)))(t)
		c.GetOrderByKey(t.Context(), "k")
		want := []string{"POST /v1/orders 0 0s teapot signing in: there is no token now",
			`POST /v1/orders 0 0s teapot Post "http://shop.test/base/v1/orders": unexpected EOF`,
			"POST /v1/orders 201 3s teapot <nil>",
			`GET /v1/orders 0 0s none Get "http://shop.test/base/v1/orders": unexpected EOF`, // without the key
			"GET /v1/orders 404 0s none <nil>"}
		if !slices.Equal(tries, want) {
			t.Errorf("tries %q, want %q", tries, want)
		}
	})
}

// TestEachTryIsOneRequest has a server close a connection that was kept, for which net/http would
// send a request with an Idempotency-Key again by itself.
func TestEachTryIsOneRequest(t *testing.T) {
	service := storefront.New(new(storefront.MemStore))
	requests, tries := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests == 2 {
			service.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		service.ServeHTTP(w, r)
	}))
	defer server.Close()
	c, err := client.New(server.URL, &client.Options{HTTPClient: server.Client(), SignIn: func(*http.Request) error {
		tries++
		return nil
	}})
	must.OK(t, err)
	for range 2 {
		must.Get(c.Order(t.Context(), client.NewDraft("teapot", 2)))(t)
	}
	if requests != 3 || tries != 3 {
		t.Errorf("%d tries were %d requests, want 3", tries, requests)
	}
}

func TestNewChecks(t *testing.T) {
	for _, url := range []string{"localhost:8080", "htps://shop.example", "http://:8080", "http://shop.example:99999",
		"http://ada:secret@shop.example:0", "http://shop.example:", "http://http://shop.example", "http:///shop",
		"http://shop.example:x", "", "shop.example", "ftp://shop.example", "http://", "http://shop.example/?a=b",
		"http://shop.example/#a", "http://ada:secret@sh op.example", "http://ada:secret@shop.example/?a=b", "ftp://ada:secret@shop.example"} {
		_, err := client.New(url, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) returned %v", url, err)
		}
	}
	for _, opts := range []client.Options{{Patience: time.Minute}, {Patience: 21 * time.Hour}, {Patience: -1},
		{PageSize: -1}, {Products: -1}, {Account: "\xff"}} {
		if _, err := client.New("http://shop.example", &opts); err == nil {
			t.Errorf("New took %+v", opts)
		}
	}
}

// kept is a draft of 2 teapots that was made now, with members in place of its own.
func kept(members ...string) string {
	own := map[string]string{"version": "1", "key": `"k"`, "made": at(0),
		"body": `"{\"item\":\"teapot\",\"qty\":2}"`}
	for i := 0; i < len(members); i += 2 {
		own[members[i]] = members[i+1]
	}
	text := ""
	for name, value := range own {
		if value != "" {
			text += fmt.Sprintf(",%q:%s", name, value)
		}
	}
	return "{" + text[1:] + "}\n"
}

func TestDraftText(t *testing.T) {
	for _, draft := range []*client.Draft{client.NewDraft("Café <b>& 茶", 1<<53-1), client.NewDraft("", -1<<63),
		draftFrom(t, kept("begun", at(time.Hour))), draftFrom(t, kept("made", "0")), draftFrom(t, kept("begun", "0")),
		draftFrom(t, kept("body", `"{\"QTY\":null, \"qty\":2e0,\"item\":\"\\u0074ea\",\"fields\":[]}"`))} {
		again := draftFrom(t, text(t, draft))
		if again.Key() != draft.Key() || again.Item() != draft.Item() || again.Qty() != draft.Qty() ||
			text(t, again) != text(t, draft) {
			t.Errorf("%s was read as %s", text(t, draft), text(t, again))
		}
	}
	body := func(text string) string {
		literal, _ := json.Marshal(text)
		return kept("body", string(literal))
	}
	for _, row := range []struct{ text, says string }{
		{``, "empty"}, {`null`, "no JSON object"}, {`[]`, "no JSON object"}, {kept() + kept(), ""},
		{`{}`, "candidates"}, {`{"key":"k","item":"teapot","qty":2,"made":"2026-11-20T20:52:11Z"}`, "candidates"},
		{kept("version", `"1"`), "version"}, {kept("version", "-1"), "version"},
		{kept("version", "3", "key", "7", "made", "{}"), "a later release"},
		{kept("note", "null"), `"note": a later release`}, {kept("Key", `"k"`), "a later release"},
		{strings.Replace(kept(), "{", `{"made":1,`, 1), "duplicate"},
		{kept("key", ""), "key"}, {kept("key", `"a b"`), "key"}, {kept("key", `"a,b"`), "key"},
		{kept("key", "7"), "key"}, {kept("made", ""), "made"}, {kept("made", "-1"), "made"},
		{kept("made", "1e400"), "made"}, {kept("made", `"2026"`), "made"}, {kept("begun", "null"), "begun"},
		{kept("body", ""), "body"}, {kept("body", `{"item":"teapot","qty":2}`), "body"}, {body("[]"), "body"},
		{body(`{"item":"teapot"}`), "body"}, {body(`{"item":"teapot","qty":2.5}`), "body"},
		{body(`{"item":7,"qty":2}`), "body"}, {body(`{"item":"teapot","qty":2,"qty":2}`), "body"},
		{body(`{"item":"tea\ud800pot","qty":2}`), "body"},
		{strings.Replace(kept(), "teapot", "tea\xffpot", 1), "UTF-8"},
	} {
		draft := client.NewDraft("kettle", 1)
		err := draft.UnmarshalText([]byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.says) || draft.Item() != "kettle" {
			t.Errorf("%q is read as %s with %v, want an error with %q", row.text, draft.Item(), err, row.says)
		}
	}
}
