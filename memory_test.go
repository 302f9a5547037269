package storefront

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// costs calls f in goroutines that then wait, as those of idle connections do, and returns how large the
// stack of each is, and how much it has allocated, in bytes.
func costs(f func()) (stack, allocated int) {
	const goroutines = 8
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var called, ended sync.WaitGroup
	idle := make(chan struct{})
	for range goroutines {
		called.Add(1)
		ended.Go(func() {
			f()
			called.Done()
			<-idle
		})
	}
	called.Wait()
	runtime.ReadMemStats(&after)
	close(idle)
	ended.Wait()
	return (int(after.StackInuse) - int(before.StackInuse)) / goroutines,
		int(after.TotalAlloc-before.TotalAlloc) / goroutines
}

func TestTextOfAClientCostsNoStackAndLittleMemory(t *testing.T) {
	service := quiet(new(MemStore))
	uses := map[string]func(text string){
		"an order": func(text string) {
			do(service, newOrderRequest("k", strings.NewReader(text)))
		},
		"an order in chunks": func(text string) {
			do(service, newOrderRequest("k", io.MultiReader(strings.NewReader(text))))
		},
		"fields": func(text string) {
			do(reading(new(MemStore)), newOrderRequest("k", strings.NewReader(`{"item":"a","qty":1,"fields":`+text+"}")))
		},
		"NewResource": func(text string) { NewResource("r", json.RawMessage(text)) },
		"UnmarshalJSON": func(text string) {
			new(Resource).UnmarshalJSON([]byte(strings.Replace(text, "{", `{"id":"r",`, 1)))
		},
		"Load": func(text string) {
			new(MemStore).Load(strings.NewReader(`{"users":[` + strings.Replace(text, "{", `{"id":"r",`, 1) + `]}`))
		},
	}
	const size = 60_000
	var members, nested strings.Builder
	for i := 0; members.Len() < size; i++ {
		fmt.Fprintf(&members, `"%d":1,`, i)
	}
	for i := 0; nested.Len() < size; i++ {
		fmt.Fprintf(&nested, `{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"%d":`, i)
	}
	for name, text := range map[string]string{
		"arrays":             strings.Repeat("[", size),
		"few arrays":         strings.Repeat("[", 999),
		"objects":            strings.Repeat(`{"a":`, size/5),
		"in turn":            strings.Repeat(`[{"a":`, size/6),
		"in a member":        `{"item":"teapot","qty":2,"a":` + strings.Repeat("[", 990) + strings.Repeat("]", 990) + "}",
		"objects in members": strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990),
		"members":            "{" + members.String() + `"a":1}`,
		"many in each":       nested.String(),
		"elements":           `{"a":[` + strings.Repeat("[],", size/3) + "1]}",
		"escapes":            `{"item":"` + strings.Repeat(`\u00e9`, size/6) + `"}`,
		"surrogates":         `{"item":"` + strings.Repeat(`\ud83d\ude00`, size/12) + `\ud83d"}`,
		"digits":             `{"qty":1.` + strings.Repeat("0", size) + "1}",
		"no JSON":            strings.Repeat("x", size),
	} {
		for use, f := range uses {
			t.Run(name+"/"+use, func(t *testing.T) {
				stack, allocated := costs(func() { f(text) })
				if most := 32 << 10; stack > most {
					t.Errorf("the stack has %d bytes, more than %d", stack, most)
				}
				if most := 64*len(text) + 64<<10; allocated > most {
					t.Errorf("it allocates %d bytes for a text of %d, more than %d", allocated, len(text), most)
				}
			})
		}
	}
}

// A length is quickly declared, and what it promises may never come.
func TestDeclaredLengthTakesNoMemory(t *testing.T) {
	first := 0
	body := readerFunc(func(b []byte) (int, error) {
		if first == 0 { // then the rest would be dropped
			first = len(b)
		}
		return 0, io.ErrUnexpectedEOF
	})
	r := newOrderRequest("k", body)
	r.ContentLength = maxOrderBody
	do(New(new(MemStore)), r).wantProblem(t, 400, "malformed-body")
	if first == 0 || first > 4<<10 {
		t.Errorf("there is room for %d bytes before any has come", first)
	}
}
