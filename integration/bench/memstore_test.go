package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/storefront"
)

// BenchmarkMemStore measures collections of growing sizes, filled in random
// order of ID. It reads a thousand IDs spread over the collection, both directly
// from the store and through the service.
func BenchmarkMemStore(b *testing.B) {
	for _, size := range []int{1_000, 1_000_000, 10_000_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkMemStore(b, size) })
	}
}

func benchmarkMemStore(b *testing.B, size int) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	store := new(storefront.MemStore)
	newUser := func(n int) storefront.Resource {
		return storefront.MustResource(fmt.Sprintf("user_%09d", n), map[string]string{"name": "A name of usual length"})
	}
	var putting time.Duration
	order := rand.Perm(size)
	for chunk := range slices.Chunk(order, 1000) {
		users := make([]storefront.Resource, len(chunk))
		for i, n := range chunk {
			users[i] = newUser(n)
		}
		start := time.Now()
		for _, user := range users {
			store.Users.Put(user)
		}
		putting += time.Since(start)
	}
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("user_%09d", order[i*(size/1000)])
	}
	order = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("put", func(b *testing.B) { // has been done above
		b.ReportMetric(float64(putting.Nanoseconds())/float64(size), "ns/op")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(size), "bytes/resource")
	})

	service := storefront.New(usersAsProducts{store})
	products, pages := make([]*http.Request, len(ids)), make([]*http.Request, len(ids))
	for i, id := range ids {
		products[i] = httptest.NewRequest("GET", "/v1/products/"+id, nil)
		pages[i] = httptest.NewRequest("GET", "/v1/users?limit=50&after="+nextThatNames("/v1/users?limit=2", id), nil)
	}
	w := discarder{}
	serve := func(r *http.Request) {
		clear(w)
		service.ServeHTTP(w, r)
	}
	read := func(name string, read func(i int)) {
		b.Run(name, func(b *testing.B) {
			// The cost of garbage collection grows with the heap and would hide
			// what is being measured.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			for i := 0; b.Loop(); i++ {
				read(i % len(ids))
			}
		})
		runtime.GC()
	}
	read("get", func(i int) { store.Users.Get(ids[i]) })
	read("page-50", func(i int) { store.ListUsers(context.Background(), ids[i], 51) })
	read("service-get", func(i int) { serve(products[i]) })
	read("service-page-50", func(i int) { serve(pages[i]) })

	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		user := newUser(size)
		for {
			select {
			case <-stop:
				return
			default:
				store.Users.Put(user)
			}
		}
	})
	read("get-while-writing", func(i int) { store.Users.Get(ids[i]) })
	close(stop)
	writer.Wait()
}

// BenchmarkMemStoreOrders measures the memory that an order takes.
func BenchmarkMemStoreOrders(b *testing.B) {
	store := new(storefront.MemStore)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := 0
	for b.Loop() {
		n++
		key := storefront.IdempotencyKey{Value: fmt.Sprintf("%036d", n)}
		store.CreateOrder(context.Background(), key, storefront.Order{ID: fmt.Sprintf("ord_%026d", n), Item: "teapot", Qty: 2})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "bytes/order")
	runtime.KeepAlive(store)
}

// usersAsProducts is a store whose users serve as products, too.
type usersAsProducts struct{ *storefront.MemStore }

func (s usersAsProducts) GetProduct(_ context.Context, id string) (storefront.Resource, error) {
	user, _ := s.Users.Get(id)
	return user, nil
}

// nextThatNames returns the cursor that names this ID: the next of page, which is a list
// with two users or one widget.
func nextThatNames(page, id string) string {
	if next, ok := named.Load(page + id); ok {
		return next.(string)
	}
	store := new(storefront.MemStore)
	for _, id := range []string{"!", id, id + "0"} {
		store.Users.Put(storefront.MustResource(id, nil))
		store.Widgets.Put(storefront.MustResource(id, nil))
	}
	w := httptest.NewRecorder()
	storefront.New(store).ServeHTTP(w, httptest.NewRequest("GET", page, nil))
	var answer struct{ Next string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Next == "" {
		panic(w.Body.String())
	}
	named.Store(page+id, answer.Next)
	return answer.Next
}

var named sync.Map // what nextThatNames has returned
