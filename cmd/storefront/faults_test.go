package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/commandtest"
	"example.com/storefront/internal/must"
)

func TestFaultReportSaysWhatAClientDidWrong(t *testing.T) {
	p := commandtest.Start(t, "-trouble", "7")
	page := ""
	for page == "" && p.Out.Scan() {
		page = regexp.MustCompile(`http://\S+/-/\S+`).FindString(p.Out.Text())
	}
	client := &http.Client{Timeout: time.Second}
	const wrong = "</span> one-key" // behind "failed"
	body := ""
	for i := 0; i < 100 && !strings.Contains(body, wrong); i++ {
		order := fmt.Sprintf(`{"item":"teapot %d","qty":1}`, i/2)
		r := must.Get(http.NewRequest("POST", p.Base+"/v1/orders", strings.NewReader(order)))(t)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprint("key ", i))
		r.Header.Set("User-Agent", "a key for each try")
		if result, err := client.Do(r); err == nil {
			result.Body.Close()
		}
		_, body = commandtest.Get(t, page)
	}
	if !strings.Contains(body, "<h2>a key for each try</h2>") || !strings.Contains(body, wrong) {
		t.Errorf("%s does not say that one-key failed: %s", page, body)
	}
	said := p.End(t)
	for _, want := range []string{"a key for each try: orders (", "failed one-key in order "} {
		if !strings.Contains(said, want) {
			t.Errorf("at the end, %q is not in\n%s", want, said)
		}
	}
}
