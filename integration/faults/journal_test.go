package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/storefront/client"
	"example.com/storefront/integration/internal/dbserver"
	"example.com/storefront/integration/internal/faulttest"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/integration/internal/testdb"
	"example.com/storefront/internal/must"
)

// shopperVariable makes this program a shopper: the folder, its number, the URL of the shop and how
// many orders both shoppers place.
const shopperVariable = "STOREFRONT_SHOPPER"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(shopperVariable)); len(args) == 4 {
		if err := runShopper(args[0], args[1], args[2], args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestJournalKills kills two programs with one journal, the replicas that they ask, and their
// database.
func TestJournalKills(t *testing.T) {
	f := faulttest.New(t)
	server := dbserver.StartPostgres(t)
	f.Start(2, server.DSN())
	dir := process.Folder(t)
	var shoppers []*process.Process
	start := func(n int) *process.Process {
		cmd := exec.Command(must.Get(os.Executable())(t))
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %d", shopperVariable, dir, n, f.URLs[n], f.Orders))
		return must.Get(process.Start(cmd, filepath.Join(dir, fmt.Sprint("log", n))))(t)
	}
	for n := range 2 {
		shoppers = append(shoppers, start(n))
	}
	killShopper := func(n int) {
		f.Kills["shopper"]++
		shoppers[n].Kill()
		shoppers[n] = start(n)
	}
	killDatabase := func() {
		f.Kills["PostgreSQL"]++
		server.Restart(t)
	}
	faults := []func(){func() { killShopper(0) }, f.KillReplica, func() { killShopper(1) }, killDatabase}
	next, every := 0, f.Orders/(len(faults)+1)
	if f.Rand != nil {
		every = 100
	}
	for n := 0; ; n++ {
		if next += every; next >= f.Orders || f.Rand == nil && n == len(faults) {
			break
		}
		fault := faults[n%len(faults)]
		if f.Rand != nil {
			fault = faults[f.Rand.IntN(len(faults))]
		}
		process.WaitFor(t, fmt.Sprint(next, " orders are believed"), 20*time.Minute, nil, func() error {
			if known, err := beliefs(dir); err != nil || len(known) < next {
				return fmt.Errorf("%d are believed, %v", len(known), err)
			}
			return nil
		})
		fault()
	}
	for n, p := range shoppers {
		if <-p.Ended; p.State != nil {
			t.Errorf("a shopper ended with %v: %s", p.State, process.LogTail(filepath.Join(dir, fmt.Sprint("log", n))))
		}
	}
	for _, r := range f.Replicas {
		r.End()
	}
	db := dbserver.Open(t, "pgx", server.DSN())
	stored := make(map[string][]string) // IDs by item
	for _, o := range testdb.StoredOrders(t, db) {
		stored[o.Item] = append(stored[o.Item], o.ID)
	}
	believed := must.Get(beliefs(dir))(t)
	for n := range f.Orders {
		item := fmt.Sprint("item-", n)
		if ids := stored[item]; len(ids) != 1 || ids[0] != believed[item] {
			t.Errorf("%s: the shop has %v, and the programs believe in %q", item, ids, believed[item])
		}
	}
	if len(stored) != f.Orders || len(believed) != f.Orders {
		t.Errorf("%d drafts became orders of %d items, and orders of %d items are believed", f.Orders, len(stored),
			len(believed))
	}
	t.Logf("%v killed: %d drafts, %d believed", f.Kills, f.Orders, len(believed))
}

// runShopper places every second order, and helps the other shopper to place the rest, as a program does
// that may be killed at any moment. A file that another of its kind made before says which drafts
// it has. What it believes, it adds to a file before it removes it from the journal.
func runShopper(dir, number, url, orders string) error {
	all, err := strconv.Atoi(orders)
	if err != nil {
		return err
	}
	c, err := client.New(url, &client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	journal, err := client.OpenJournal(filepath.Join(dir, "journal"), c)
	if err != nil {
		return err
	}
	drafts, err := draftsOf(filepath.Join(dir, "drafts"+number), number == "1", all)
	if err != nil {
		return err
	}
	believe, err := believer(filepath.Join(dir, "believed"+number))
	if err != nil {
		return err
	}
	ctx := context.Background()
	for {
		known, err := beliefs(dir)
		if err != nil || len(known) == all {
			return err
		}
		var ordering sync.WaitGroup
		places := make(chan struct{}, 8)
		for i, draft := range drafts {
			switch {
			case known[draft.Item()] != "":
			case i%2 == 0:
				if err := journal.Put(ctx, draft); err != nil {
					return err
				}
			default:
				places <- struct{}{}
				ordering.Go(func() {
					defer func() { <-places }()
					order, err := journal.Order(ctx, draft)
					if err == nil && believe(draft, order.ID) == nil {
						journal.Remove(ctx, draft)
					}
				})
			}
		}
		for entry, err := range journal.Resume(ctx) {
			if err == nil && believe(entry.Draft, entry.Order.ID) == nil {
				entry.Remove()
			}
		}
		ordering.Wait()
		time.Sleep(10 * time.Millisecond) // before it looks again what the other has done
	}
}

// draftsOf returns the drafts in a file, which it makes first if there is none.
func draftsOf(name string, odd bool, all int) (drafts []*client.Draft, err error) {
	data, err := os.ReadFile(name)
	if err == nil {
		for line := range strings.Lines(string(data)) {
			draft := new(client.Draft)
			if err := draft.UnmarshalText([]byte(line)); err != nil {
				return nil, err
			}
			drafts = append(drafts, draft)
		}
		return drafts, nil
	}
	for n := range all {
		if n%2 == 1 != odd {
			continue
		}
		draft := client.NewDraft(fmt.Sprint("item-", n), 1)
		text, err := draft.MarshalText()
		if err != nil {
			return nil, err
		}
		drafts, data = append(drafts, draft), append(append(data, text...), '\n')
	}
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return nil, err
	}
	return drafts, os.Rename(name+".new", name)
}

// believer returns what adds an order to a file, of which it first cuts off half a line.
func believer(name string) (believe func(draft *client.Draft, id string) error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(strings.LastIndexByte(string(data), '\n') + 1)); err != nil {
		return nil, err
	}
	return func(draft *client.Draft, id string) error {
		_, err := fmt.Fprintf(f, "%s %s\n", draft.Item(), id) // one write, so lines do not mix
		return errors.Join(err, f.Sync())
	}, nil
}

// beliefs returns the IDs that the shoppers believe in, by item.
func beliefs(dir string) (map[string]string, error) {
	known := make(map[string]string)
	for _, number := range []string{"0", "1"} {
		data, err := os.ReadFile(filepath.Join(dir, "believed"+number))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			item, id, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			switch {
			case !strings.HasSuffix(line, "\n"):
			case known[item] != "" && known[item] != id:
				return nil, fmt.Errorf("two IDs of %s are believed: %s and %s", item, known[item], id)
			default:
				known[item] = id
			}
		}
	}
	return known, nil
}
