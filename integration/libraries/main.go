// Command libraries runs the small clients that people write with the libraries of several languages
// against `storefront -trouble`, and compares what it says of them with what happened: what each client
// printed, and which orders the shop has. It prints the table of clients/libraries.md. It is run by hand,
// as it fetches packages of npm and Go; it needs Node.js, a JDK, curl, wget, jq, and Debian's
// python3-requests, python3-httpx and python3-aiohttp.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// A language has a program that prints the names of its clients with their versions, and runs the one that
// is named. $DIR is its folder, and $OUT one for what the build makes.
type language struct{ folder, build, program string }

var languages = []language{
	{"node", "cmp -s package-lock.json node_modules/lock || " +
		"{ ../../npm-ci >&2; cp package-lock.json node_modules/lock; }", "node $DIR/clients.mjs"},
	{"golang", "./build", "$OUT/golang"},
	{"python", "", "/usr/bin/python3 $DIR/clients.py"},
	{"java", "javac -d $OUT Clients.java", "java -XX:TieredStopAtLevel=1 -cp $OUT Clients"},
	{"bash", "", "bash $DIR/clients.sh"},
}

const (
	keepsAllRules = ", loop of wire.md" // the client with such a name
	keyPerTry     = ", a key in"
)

// A client is a line of the table.
type client struct {
	language
	name, versions string

	mu     sync.Mutex
	orders map[string]int // by column
	checks map[string]int // orders that failed each
}

var columns = []string{"sent", "created", "believed", "false", "doubled", "orphan", "none"}

var (
	seeds  = flag.String("seeds", "7,11,23", "`numbers` for -trouble")
	only   = flag.String("only", "", "`regexp` of the clients to run, as folder/name")
	atOnce = flag.Int("at-once", 4, "`runs` at a time")
	keep   = flag.String("keep", "", "`folder` for what was seen, where a run goes on; empty: none")

	mu                        sync.Mutex
	agree, accused, unnoticed []string // verdicts, against what happened
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	out, err := os.MkdirTemp("", "libraries-")
	check(err)
	defer os.RemoveAll(out)
	seen, err := filepath.Abs(cmp.Or(*keep, out))
	check(err)
	check(os.MkdirAll(seen, 0o777))
	root := strings.TrimSpace(bash(".", out, "dirname $(go env GOMOD)"))
	bash(root+"/..", out, "go build -o $OUT/storefront ./cmd/storefront")
	wanted := regexp.MustCompile(*only)
	var clients []*client
	for _, l := range languages {
		folder := filepath.Join(root, "libraries", l.folder)
		bash(folder, out, l.build)
		l.program = strings.NewReplacer("$DIR", folder, "$OUT", out).Replace(l.program)
		for line := range strings.Lines(bash(folder, out, l.program)) {
			name, versions, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if wanted.MatchString(l.folder + "/" + name) {
				clients = append(clients, &client{language: l, name: name,
					versions: strings.ReplaceAll(versions, "\t", ", "),
					orders:   make(map[string]int), checks: make(map[string]int)})
			}
		}
	}
	var wg sync.WaitGroup
	free := make(chan bool, *atOnce)
	for seed := range strings.SplitSeq(*seeds, ",") {
		for _, c := range clients {
			free <- true
			wg.Go(func() {
				file := strings.Map(func(r rune) rune {
					if strings.ContainsRune(" /,()", r) {
						return '-'
					}
					return r
				}, c.folder+"-"+c.name+"-"+seed)
				c.run(out, filepath.Join(seen, file), seed)
				<-free
			})
		}
	}
	wg.Wait()
	printTable(clients)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// bash returns what a command prints.
func bash(folder, out, command string) string {
	cmd := exec.Command("bash", "-euc", command)
	cmd.Dir, cmd.Stderr, cmd.Env = folder, os.Stderr, append(os.Environ(), "OUT="+out)
	text, err := cmd.Output()
	check(err)
	return string(text)
}

// run has the client judged with a seed. What is seen goes into files, unless it is there.
func (c *client) run(out, file, seed string) {
	report, outcomes := file+".json", file+".outcomes"
	if _, err := os.Stat(report); err != nil {
		os.Remove(outcomes)
		// Its processes print their outcomes to the file, too.
		cmd := exec.Command(out+"/storefront", append([]string{"-addr", "127.0.0.1:0", "-trouble", seed,
			"-only", "^orders/", "-json", report, "--", "bash", "-c", `"$@" | tee -a "$0"`, outcomes},
			append(strings.Fields(c.program), c.name)...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		output, err := os.Create(file + ".txt") // no pipe, which would stay open as long as a client waits
		check(err)
		defer output.Close()
		cmd.Stdout, cmd.Stderr = output, output
		check(cmd.Start())
		cmd.Wait()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // those that go on
		text, err := os.ReadFile(output.Name())
		check(err)
		if i := bytes.LastIndex(text, []byte("\nstorefront: ")); i >= 0 {
			log.Printf("%s, seed %s:%s", c.name, seed, text[i:])
		}
	}
	check(c.look(report, outcomes, seed))
}

type outcome struct{ Item, ID, Error string }

// look compares what the client printed with the orders that the shop has, and with what the judge says.
func (c *client) look(report, outcomes, seed string) error {
	var r struct {
		Clients []struct {
			Created []outcome
			Kinds   []struct {
				States map[string]int
				Checks []struct {
					Check, Verdict string
					Calls          int
				}
			}
		}
	}
	text, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", report, err)
	}
	text, err = os.ReadFile(outcomes)
	last := make(map[string]outcome) // by item
	for d := json.NewDecoder(bytes.NewReader(text)); err == nil && d.More(); {
		var o outcome
		err = d.Decode(&o)
		last[o.Item] = o
	}
	if err != nil {
		return fmt.Errorf("%s: %w", outcomes, err)
	}
	delete(last, "") // of what it was asked for besides orders
	created, n := make(map[string][]string), make(map[string]int)
	for _, o := range r.Clients[0].Created {
		created[o.Item] = append(created[o.Item], o.ID)
	}
	for item, ids := range created {
		n["created"] += len(ids)
		if len(ids) > 1 {
			n["doubled"]++
		}
		if o, ok := last[item]; !ok || o.Error != "" {
			n["orphan"]++
		}
	}
	for item, o := range last {
		switch {
		case o.Error != "" && created[item] == nil:
			n["none"]++
		case o.Error == "":
			n["believed"]++
			if !slices.Contains(created[item], o.ID) {
				n["false"]++
			}
		}
	}
	orders := r.Clients[0].Kinds[0]
	for _, of := range orders.States {
		n["sent"] += of
	}
	failed := make(map[string]int)
	for _, v := range orders.Checks {
		failed[v.Check] = v.Calls
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	mu.Lock()
	defer mu.Unlock()
	for _, column := range columns {
		c.orders[column] += n[column]
	}
	for _, v := range orders.Checks {
		c.checks[v.Check] += v.Calls
		least, most := 0, 0 // orders that must have failed, and that can
		switch v.Check {
		case "success":
			least, most = n["false"]-failed["right-id"], n["false"]
		case "right-id":
			least, most = n["false"]-failed["success"], n["false"]
		case "takes-order":
			most = n["orphan"]
		case "agreement":
			least, most = n["doubled"], n["doubled"]
		case "one-key":
			if strings.Contains(c.name, keyPerTry) {
				least, most = max(1, n["doubled"]), n["sent"]
			}
		case "request", "same-order", "own-key", "random-key": // each client here keeps these
		default:
			if !strings.HasSuffix(c.name, keepsAllRules) {
				continue
			}
		}
		text := fmt.Sprintf("%s, seed %s: %s in %d orders, not in %d to %d", c.name, seed, v.Check, v.Calls,
			least, most)
		switch {
		case v.Verdict != "failed" && v.Verdict != "passed":
		case v.Calls > most:
			accused = append(accused, text)
		case v.Calls < least:
			unnoticed = append(unnoticed, text)
		default:
			agree = append(agree, text)
		}
	}
	log.Printf("%s, seed %s: %v", c.name, seed, n)
	return nil
}

func printTable(clients []*client) {
	fmt.Printf("| Client | Version | %s | Checks that failed |\n|---|---|%s---|\n",
		strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
	sent := 0
	for _, c := range clients {
		fmt.Printf("| %s | %s |", c.name, c.versions)
		for _, column := range columns {
			fmt.Printf(" %d |", c.orders[column])
		}
		sent += c.orders["sent"]
		maps.DeleteFunc(c.checks, func(_ string, n int) bool { return n == 0 })
		names := slices.SortedFunc(maps.Keys(c.checks), func(a, b string) int {
			return cmp.Or(c.checks[b]-c.checks[a], cmp.Compare(a, b))
		})
		for i, name := range names {
			names[i] = fmt.Sprintf("%s %d", name, c.checks[name])
		}
		fmt.Printf(" %s |\n", strings.Join(names, ", "))
	}
	fmt.Printf("\n%d clients, seeds %s, %d orders. Of the verdicts that can be compared with what happened, "+
		"%d agree, %d accuse wrongly, %d notice too little.\n", len(clients), *seeds, sent, len(agree),
		len(accused), len(unnoticed))
	for _, text := range slices.Concat(accused, unnoticed) {
		fmt.Println("  " + text)
	}
}
