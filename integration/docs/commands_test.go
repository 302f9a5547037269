package docs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark/ast"

	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// A trial is how a command of the documents is tried that is not run as it stands.
type trial func(t *testing.T, command string)

// trials has the commands of blocks of sh and of the text, but for those that only
// read, or are run elsewhere (see isReading, isElsewhere). Another one is not run: it may do anything.
var trials = map[string]trial{
	"go run ./cmd/storefront":                 serving(process.Storefront),
	"go run ./shopdb/cmd/storefrontd -sample": serving(process.Storefrontd, "-sample"),
	`(umask 077; sqlite3 'file:/var/lib/shop/shop.db?mode=rw' ` +
		`"VACUUM INTO '/var/backups/shop-$(date +%s).db'")`: backingUp,

	"mkdir -p image/data && CGO_ENABLED=0 go build -o image/shop ./shopdb/cmd/storefrontd &&" +
		" buildah bud -t shop:1 -f docs/deploy/Containerfile image": buildingImage,

	"go run ./cmd/exactlyonce -url http://localhost:8080 -orders 200000 -clients 64": withFewerOrders,
}

// serving tries a command that serves until it is ended: a page for people, too.
func serving(binary func() (string, error), args ...string) trial {
	return func(t *testing.T, _ string) {
		w := must.Get(http.Get(startService(t, binary, args...) + "/"))(t)
		defer w.Body.Close()
		kind := w.Header.Get("Content-Type")
		if w.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/html") {
			t.Errorf("GET / is answered with %s and %s, want a page", w.Status, kind)
		}
	}
}

// withFewerOrders tries a command that sends orders.
func withFewerOrders(t *testing.T, command string) {
	fewer := []documentedCommand{{command: strings.Replace(command, "200000", "200", 1)}}
	if r := runInBash(t, fewer, startService(t, process.Storefront))[0]; r.status != "0" {
		t.Errorf("%s: status %s\n%s", fewer[0].command, r.status, r.output)
	}
}

// documentedURL is where the documents reach a service.
const documentedURL = "http://localhost:8080"

// A documentedCommand is a command of a document.
type documentedCommand struct {
	where    string
	command  string
	compared bool   // whether the document says what it prints
	want     string // that
}

// commandsOf returns the commands of the document: those in the text, and those in
// blocks, in their sequence.
func commandsOf(t *testing.T, d *documents.Document) (commands []documentedCommand) {
	t.Helper()
	d.Walk(func(n ast.Node) {
		if n.Kind() != ast.KindCodeSpan {
			return
		}
		var text []byte
		for piece := n.FirstChild(); piece != nil; piece = piece.NextSibling() {
			text = append(text, piece.(*ast.Text).Value(d.Source)...)
		}
		if span := strings.Join(strings.Fields(string(text)), " "); isCommand.MatchString(span) {
			commands = append(commands, documentedCommand{where: d.Name, command: span})
		}
	})
	for _, b := range d.Blocks() {
		where := fmt.Sprintf("%s:%d", d.Name, b.Line)
		switch {
		case b.Language == "console":
			commands = append(commands, consoleCommands(t, where, b.Text)...)
		case b.Language == "sh" && b.Note == "":
			commands = append(commands, shellCommands(where, b.Text)...)
		}
	}
	return commands
}

// isCommand matches code in the text that is a whole command.
var isCommand = regexp.MustCompile(`^(?:\.ci/run|curl .*://.*|(?:go (?:build|doc|install|mod|run|test|tool|vet)|npx|(?:sudo )?apt-get|docker) \S.* \S.*|go run \./.*)$`)

// isReading matches commands that may be run as they stand.
var isReading = regexp.MustCompile(`^(?:curl|go doc) `)

// isElsewhere matches what CI runs, or tests of its own: TestDocumentedProgram, and those of clients.
var isElsewhere = regexp.MustCompile(`^(?:\.ci/run$|timeout 8h integration/soak/run$|` +
	`go (?:test|mod|build) |git clone |go run ./cmd/storefront -faults 7 )`)

// consoleCommands returns the commands of a block, each behind a $, with what they
// print.
func consoleCommands(t *testing.T, where, text string) (commands []documentedCommand) {
	t.Helper()
	for line := range strings.Lines(text) {
		command, begins := strings.CutPrefix(line, "$ ")
		switch last := len(commands) - 1; {
		case begins:
			commands = append(commands, documentedCommand{where: where, command: command, compared: true})
		case last < 0:
			t.Errorf("%s: the block does not begin with a command behind a $", where)
			return nil
		case commands[last].want == "" && strings.HasSuffix(commands[last].command, "\\\n"):
			commands[last].command += line
		default:
			commands[last].want += line
		}
	}
	for i := range commands {
		commands[i].command = strings.TrimSpace(commands[i].command)
	}
	return commands
}

// shellCommands returns the commands of a block, each on a line of its own, which may
// go on behind a backslash.
func shellCommands(where, text string) (commands []documentedCommand) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			commands = append(commands, documentedCommand{where: where, command: line})
		}
	}
	return commands
}

// TestDocumentedCommands runs the commands of each document in turn, and compares what
// they print.
func TestDocumentedCommands(t *testing.T) {
	need.Programs(t, need.Tools, "bash", "curl")
	used := make(map[string]bool)
	for _, d := range documents.All(t, repository) {
		var run []documentedCommand
		for _, c := range commandsOf(t, d) {
			try, ok := trials[c.command]
			switch {
			case ok && !used[c.command]:
				used[c.command] = true
				t.Run(c.command, func(t *testing.T) { try(t, c.command) })
			case ok, isElsewhere.MatchString(c.command):
			case c.compared, isReading.MatchString(c.command):
				run = append(run, c)
			default:
				t.Errorf("%s: %s\nhow that is to be tried is not among the trials", c.where, c.command)
			}
		}
		if run != nil {
			t.Run(d.Name, func(t *testing.T) { runDocumented(t, run) })
		}
	}
	for command := range trials {
		if !used[command] {
			t.Errorf("no document has the command %s any more", command)
		}
	}
}

// runDocumented runs commands, which may talk to a service.
func runDocumented(t *testing.T, commands []documentedCommand) {
	url := ""
	for _, c := range commands {
		if strings.Contains(c.command, documentedURL) {
			url = startService(t, process.Storefront)
			break
		}
	}
	for i, r := range runInBash(t, commands, url) {
		switch c := commands[i]; {
		case c.compared:
			if err := compare(c.want, r.output); err != nil {
				t.Errorf("%s: %s\nprints %v\n%s", c.where, c.command, err, r.output)
			}
		case r.status != "0":
			t.Errorf("%s: %s\nstatus %s\n%s", c.where, c.command, r.status, r.output)
		}
	}
}

// startService starts a command that serves, on a port and a database of its own, and
// returns its URL.
func startService(t *testing.T, binary func() (string, error), args ...string) string {
	t.Helper()
	name := must.Get(binary())(t)
	cmd := exec.Command(name, append(args, "-addr", "localhost:0")...)
	cmd.Dir = process.Folder(t) // where storefrontd makes storefront.db
	out := must.Get(os.Create(filepath.Join(cmd.Dir, "stdout")))(t)
	defer out.Close()
	cmd.Stdout = out
	p := start(t, cmd)
	var url string
	process.WaitFor(t, filepath.Base(name)+" serves", 5*time.Minute, p, func() error {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			return err
		}
		found := regexp.MustCompile(`Serving on (http://[^/\s]+)/`).FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("it has printed %q", text)
		}
		url = string(found[1])
		return nil
	})
	return url
}

// start starts a command, with its log in its folder, until the test ends.
func start(t *testing.T, cmd *exec.Cmd) *process.Process {
	t.Helper()
	log := filepath.Join(cmd.Dir, "log")
	p := must.Get(process.Start(cmd, log))(t)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(process.LogTail(log))
		}
	})
	return p
}

// A bashResult is what became of a command.
type bashResult struct {
	output string // standard output and standard error
	status string
}

// runInBash runs commands one after the other in one shell, in the repository's root.
func runInBash(t *testing.T, commands []documentedCommand, url string) (results []bashResult) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write(".curlrc", "no-progress-meter\n") // as where a terminal shows what curl prints
	var script strings.Builder
	for i, c := range commands {
		n := strconv.Itoa(i)
		write(n, strings.ReplaceAll(c.command, documentedURL, url))
		const run = "eval \"$(<\"$dir/%[1]s\")\" </dev/null >\"$dir/%[1]s.out\" 2>&1; echo $? >\"$dir/%[1]s.status\"\n"
		fmt.Fprintf(&script, run, n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script.String())
	bash.Dir = repository
	bash.Env = append(os.Environ(), "CURL_HOME="+dir, "dir="+dir, "LC_ALL=C.UTF-8", "TZ=UTC")
	if out, err := bash.CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
	for i := range commands {
		out, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".out"))
		status, statusErr := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".status"))
		if err := errors.Join(err, statusErr); err != nil {
			t.Fatalf("%s: it was not run to its end: %v", commands[i].where, err)
		}
		output := strings.ReplaceAll(string(out), "\r\n", "\n")
		if url != "" {
			output = strings.ReplaceAll(output, url, documentedURL)
		}
		results = append(results, bashResult{output, strings.TrimSpace(string(status))})
	}
	return results
}

var (
	// random is what differs from one time to another.
	random = regexp.MustCompile(`ord_[0-9a-v]{26}|urn:storefront:incident:[A-Z2-7]{26}|` +
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)
	changing = regexp.MustCompile(`(?m)(\bttl=|^Age: |^Date: )(?:\d+|.*)`)

	anyLines = regexp.MustCompile(`(?m)^…\n`)
	trailing = regexp.MustCompile(`(?m) +$`)
)

// compare returns an error unless what was printed is what the document says, but for
// what is random. A line of the document with nothing but … stands for any lines.
func compare(want, got string) error {
	masked := func(s string) string {
		s = trailing.ReplaceAllString(strings.TrimSpace(s), "") + "\n"
		return random.ReplaceAllString(changing.ReplaceAllString(s, "${1}*"), "*")
	}
	pattern := anyLines.ReplaceAllString(regexp.QuoteMeta(masked(want)), `(?:.*\n)*?`)
	if !regexp.MustCompile("^" + pattern + "$").MatchString(masked(got)) {
		return fmt.Errorf("other lines than\n%s\nnamely", want)
	}
	return nil
}
