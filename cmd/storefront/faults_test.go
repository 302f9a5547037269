package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/storefront/internal/must"
)

func TestFaultReportSaysWhatAClientDidWrong(t *testing.T) {
	p := start(t, "-trouble", "7")
	for p.out.Scan() {
		p.printed = append(p.printed, p.out.Text())
		if strings.Contains(p.out.Text(), "/-/") {
			break
		}
	}
	page := regexp.MustCompile(`http://\S+`).FindString(p.printed[len(p.printed)-1])
	client := &http.Client{Timeout: time.Second}
	const wrong = "</span> one-key" // behind "failed"
	body := ""
	for i := 0; i < 100 && !strings.Contains(body, wrong); i++ {
		order := fmt.Sprintf(`{"item":"teapot %d","qty":1}`, i/2)
		r := must.Get(http.NewRequest("POST", p.base+"/v1/orders", strings.NewReader(order)))(t)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprint("key ", i))
		r.Header.Set("User-Agent", "a key for each try")
		if result, err := client.Do(r); err == nil {
			result.Body.Close()
		}
		_, body = fetch(t, page)
	}
	if !strings.Contains(body, "<h2>a key for each try</h2>") || !strings.Contains(body, wrong) {
		t.Errorf("%s does not say that one-key failed: %s", page, body)
	}
	must.OK(t, p.Process.Signal(os.Interrupt))
	var said strings.Builder
	for p.out.Scan() {
		fmt.Fprintln(&said, p.out.Text())
	}
	for _, want := range []string{"a key for each try: orders (", "failed one-key in order "} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("at the end, %q is not in\n%s", want, &said)
		}
	}
	p.wantSuccess(t)
}

func TestNoFaultsWithoutTheFlag(t *testing.T) {
	p := start(t)
	if status, body := fetch(t, p.base+"/-/trouble"); status != 404 {
		t.Errorf("%d %s, want 404", status, body)
	}
	p.end(t, os.Interrupt)
}
