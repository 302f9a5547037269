package docs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/storefront/integration/internal/documents"
	"example.com/storefront/integration/internal/need"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// TestDocumentedProgram makes a module as the README says, with the program that
// docs/embedding.md has, and tries what the program shows.
func TestDocumentedProgram(t *testing.T) {
	program, commands := documentedProgram(t)
	dir := process.Folder(t)
	buildDocumented(t, commands, program, dir)

	base, shop := startDocumented(t, dir)
	for _, row := range []struct {
		path, credentials, key string // an order if there is a key
		want                   int
		holds                  string
	}{
		{"/", "", "", http.StatusOK, "<html"},
		{"/readyz", "", "", http.StatusOK, ""},
		{"/v1/products/teapot", "Bearer guess", "", http.StatusUnauthorized, `"title":"Unauthorized"`},
		{"/v1/products/teapot", "Basic token-of-ada", "", http.StatusUnauthorized, `"title":"Unauthorized"`},
		{"/v1/products/teapot", "bearer token-of-ada", "", http.StatusOK, "Teapot"},
		{"//v1/users", "Bearer token-of-ada", "", http.StatusNotFound, "problem-type"},
		{"/v1/orders", "Bearer token-of-ada", "a", http.StatusCreated, "teapot"},
		{"/v1/orders", "Bearer token-of-ada", "a", http.StatusCreated, "teapot"},                 // which takes nothing from the stock
		{"/v1/orders", "Bearer token-of-grace", "a", http.StatusUnprocessableEntity, "sold-out"}, // and no replay
		{"/v1/orders", "Bearer token-of-ada", "", http.StatusOK, `"fields":{"note":"Ring twice."}`},
		{"/v1/orders", "Bearer token-of-grace", "", http.StatusOK, `{"data":[],`},
	} {
		status, body := ask(t, base+row.path, row.credentials, row.key)
		if status != row.want || !strings.Contains(body, row.holds) {
			t.Errorf("%s by %q is answered with %d and %s\nwant %d and %q", row.path, row.credentials, status, body, row.want, row.holds)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "shop.db")); err != nil || info.Mode() != 0o600 {
		t.Errorf("shop.db is %v, %v, want the mode 0600", info, err)
	}
	t.Run("exactlyonce", func(t *testing.T) { tryDocumented(t, base, dir) })
	must.OK(t, shop.Process.Signal(syscall.SIGTERM))
	if <-shop.Ended; shop.State != nil {
		t.Errorf("it does not end cleanly: %v", shop.State)
	}
}

// tryDocumented runs exactlyonce on the program, with the stock and the flags that docs/embedding.md has.
func tryDocumented(t *testing.T, base, dir string) {
	need.Programs(t, need.Tools, "sqlite3")
	text := must.Get(os.ReadFile(filepath.Join(repository, "docs", "embedding.md")))(t)
	found := regexp.MustCompile("(?s)`(sqlite3 [^`]+)`.*?`(-item [^`]+)`").FindSubmatch(text)
	if found == nil {
		t.Fatal("the document does not say how to stock and try it")
	}
	script := fmt.Sprintf("%s && ./exactlyonce -url %s -orders 200 %s", found[1], base, found[2])
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(script, "\n", ""))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// documentedProgram returns the program, and the commands that make a module for it.
func documentedProgram(t *testing.T) (program string, commands []string) {
	t.Helper()
	for _, d := range documents.All(t, repository) {
		if d.Name != "README.md" && d.Name != "docs/embedding.md" {
			continue
		}
		for _, b := range d.Blocks() {
			if b.Language == "go" && strings.HasPrefix(b.Text, "package main\n") {
				program += b.Text
			}
		}
		for _, c := range commandsOf(t, d) {
			if strings.HasPrefix(c.command, "go mod ") {
				commands = append(commands, c.command)
			}
		}
	}
	if len(commands) != 4 {
		t.Fatalf("the documents have the commands %q, want go mod init, edit twice, and tidy", commands)
	}
	return program, commands
}

// documentedModule makes the module, and returns its folder. In the end, the repository is where it is, and not
// beside the module, as packages in another folder are compiled again.
func documentedModule(t *testing.T, commands []string, program string) (folder string) {
	t.Helper()
	root := must.Get(filepath.Abs(repository))(t)
	dir := t.TempDir()
	folder = filepath.Join(dir, "shop")
	sums, err := os.ReadFile(filepath.Join(root, "shopdb", "go.sum"))
	must.OK(t, errors.Join(err,
		os.Symlink(root, filepath.Join(dir, "storefront")),
		os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "go.sum"), sums, 0o600),
		os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600),
	))
	there := strings.NewReplacer("../storefront", root).Replace
	for _, command := range append(commands, there(commands[1]), there(commands[2])) {
		runInModule(t, folder, command)
	}
	return folder
}

func runInModule(t *testing.T, folder, command string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// buildDocumented makes the module, and builds the program and exactlyonce, which the README runs from there,
// into a folder. The program's argument is its address.
func buildDocumented(t *testing.T, commands []string, program, dir string) {
	t.Helper()
	const address, pause = `"localhost:8080"`, "10 * time.Second"
	if strings.Count(program, address) != 1 || strings.Count(program, pause) != 1 {
		t.Fatalf("the program does not have %s and %s once each", address, pause)
	}
	program = strings.NewReplacer(
		address, "os.Args[1]", pause, "time.Microsecond", `"net/http"`, `"net/http"; "os"`).Replace(program)
	folder := documentedModule(t, commands, program)
	runInModule(t, folder, "go build -o "+dir+" . example.com/storefront/cmd/exactlyonce")
}

// startDocumented starts the program in its folder, and returns its URL once it is ready.
func startDocumented(t *testing.T, dir string) (base string, shop *process.Process) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", process.FreePort())
	cmd := exec.Command(filepath.Join(dir, "shop"), address)
	cmd.Dir = dir
	shop = start(t, cmd)
	base = "http://" + address
	process.WaitFor(t, "the program serves", 5*time.Minute, shop, func() error {
		res, err := http.Get(base + "/readyz")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
	return base, shop
}

// ask sends a GET, or with a key an order of six teapots.
func ask(t *testing.T, url, credentials, key string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if key != "" {
		r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"item":"teapot","qty":6,"fields":{"note":"Ring twice."}}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
	}
	if credentials != "" {
		r.Header.Set("Authorization", credentials)
	}
	res := must.Get(http.DefaultClient.Do(r))(t)
	defer res.Body.Close()
	text := must.Get(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(text)
}
