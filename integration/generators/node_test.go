package generators

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/node"
	"example.com/storefront/internal/must"
)

// TestNode tests what programs of Node make of openapi.json.
func TestNode(t *testing.T) {
	t.Parallel()
	modules := node.Modules(t)
	dir := nodeFolder(t.TempDir())
	must.OK(t, os.CopyFS(string(dir), os.DirFS("testdata/typescript")))
	document := served(nil)
	dir.write(t, "openapi.json", document)
	store := new(storefront.MemStore)
	dir.write(t, "all.json", served(&storefront.Options{OrderFields: true, Orders: store,
		Scope: func(*http.Request) string { return "all" }}))
	// A copy with a reference that leads nowhere.
	dir.write(t, "broken.json", replaced(t, document, `"items": { "$ref": "#/components/schemas/Fault" }`, `"items": { "$ref": "#/components/schemas/Fautl" }`))
	must.OK(t, os.Symlink(modules, filepath.Join(string(dir), "node_modules")))

	for name, lint := range map[string][]string{
		"Redocly":  {"node_modules/.bin/redocly", "lint"},
		"Spectral": {"node_modules/.bin/spectral", "lint"},
	} {
		t.Run(name+" finds no error", func(t *testing.T) {
			dir.mustRun(t, append(lint, "openapi.json")...)
			dir.mustRun(t, append(lint, "all.json")...)
			if out, err := dir.run(append(lint, "broken.json")...); err == nil || !strings.Contains(out, "Fautl") {
				t.Errorf("it does not find the error of a broken document (%v):\n%s", err, out)
			}
		})
	}

	t.Run("types of the client", func(t *testing.T) {
		folder := nodeFolder(filepath.Join(string(dir), "client"))
		must.OK(t, os.Mkdir(string(folder), 0o777))
		folder.write(t, "storefront.mjs", read(t, "../../sdk/javascript/storefront.mjs"))
		folder.write(t, "use.mts", `import { Draft, Shop } from "./storefront.mjs";
const order: { id: string, qty: number } = await new Shop("").order(new Draft("teapot", 2));
for await (const user of new Shop("").users({ limit: 2 })) user.id.length;
// @ts-expect-error
new Draft("teapot", "2"), order.number;
`)
		dir.mustRun(t, strings.Fields("node_modules/.bin/tsc --allowJs --checkJs --strict --noEmit --types node "+
			"--target es2024 --lib es2024,dom,dom.iterable,dom.asynciterable --module nodenext client/use.mts")...)
	})

	t.Run("types of openapi-typescript", func(t *testing.T) {
		dir.mustRun(t, "node_modules/.bin/openapi-typescript", "openapi.json", "--root-types", "--root-types-no-schema-prefix",
			"-o", "types.ts")
		dir.testClient(t)
	})
}

// served returns the document that a service with these options serves.
func served(opts *storefront.Options) string {
	w := httptest.NewRecorder()
	storefront.NewWithOptions(new(storefront.MemStore), opts).ServeHTTP(w,
		httptest.NewRequest("GET", "/openapi.json", nil))
	return w.Body.String()
}

// testClient compiles client.ts with the types in types.ts, and runs it.
func (dir nodeFolder) testClient(t *testing.T) {
	const compile = "node_modules/.bin/tsc"
	client := read(t, "testdata/typescript/client.ts")
	t.Run("a problem type that is misspelt does not compile", func(t *testing.T) {
		const misspelt = "urn:problem-type:storefront:order-refuse"
		dir.write(t, "client.ts", replaced(t, client, misspelt+`d"`, misspelt+`"`))
		out, err := dir.run(compile, "--noEmit")
		if err == nil || !strings.Contains(out, `'"`+misspelt+`"'`) {
			t.Errorf("tsc does not report it (%v):\n%s", err, out)
		}
		if !strings.Contains(out, "lacks ending return") {
			t.Errorf("tsc does not report that the right one is left out:\n%s", out)
		}
	})
	t.Run("the client compiles and is understood by the service", func(t *testing.T) {
		dir.write(t, "client.ts", client)
		dir.mustRun(t, compile)
		server := httptest.NewServer(storefront.New(new(storefront.MemStore)))
		defer server.Close()
		const want = "created 2 teapot\nreplayed 2 teapot\ncorrect invalid-order #/item #/qty\ngive up idempotency-key-reused Idempotency-Key\n"
		if got := dir.mustRun(t, "node", "client.js", server.URL); got != want {
			t.Errorf("it prints\n%s\nwant\n%s", got, want)
		}
	})
}

// A nodeFolder is a folder with the programs of Node.
type nodeFolder string

// run runs a command in the folder and returns what it prints.
func (dir nodeFolder) run(command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = string(dir)
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (dir nodeFolder) mustRun(t *testing.T, command ...string) string {
	t.Helper()
	out, err := dir.run(command...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return out
}

func (dir nodeFolder) write(t *testing.T, name, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(string(dir), name), []byte(text), 0o666))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
	return string(text)
}

// replaced returns text with old, which it has once, replaced by new.
func replaced(t *testing.T, text, old, new string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("there is not one %q to replace", old)
	}
	return strings.Replace(text, old, new, 1)
}
