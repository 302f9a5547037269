package releases

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// A change is one that a later release makes in a file of the repository.
type change struct {
	file, old, new string
	promise, line  string // what it breaks, and how that is told; "" if it only adds
}

// laterChanges are additions, which every later release may have, and a breach of each promise.
var laterChanges = []change{
	{"CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n## [1.0.0]\n", "", ""},
	{"openapi.json", `"version": "1.0.0`, `"version": "1.1.0`, "", ""},
	{"openapi.json", `"item": { "description": "As it was ordered.", "type": "string" },`,
		`"item": { "description": "As it was ordered.", "type": "string" }, "added": { "type": "string" },`, "", ""},
	{"openapi.json", `"required": ["id", "item", "qty", "created_at"]`, `"required": ["id", "item", "qty"]`,
		"openapi", "response-property-became-optional"},
	{"testdata/contract/added.txt", "", "An exchange.\n", "", ""},
	{"testdata/contract/order.txt", "HTTP/1.1 201 Created", "HTTP/1.1 200 OK", "exchanges", "order.txt has been edited"},
	{"paging.go", "cursorVersion  = 1\n", "cursorVersion  = 2\n", "cursors", "the cursor .* leads to"},
	{"store.go", "sum := sha256.Sum256(representation)", "sum := sha256.Sum256(append([]byte{1}, representation...))", "tags", "with the tag"},
	{"idempotency.go", "func (k *IdempotencyKey) digest", "func Added() {}\n\nfunc (k *IdempotencyKey) digest", "", ""},
	{"idempotency.go", "\treturn sha256.Sum256(b)\n}\n\n// digest", "\treturn sha256.Sum256(b[1:])\n}\n\n// digest",
		"fingerprints", "has key .* and fingerprint"},
	{"sqlstore/vitess.go", "func Place(", "func PlaceOf(", "api", "Place: removed"},
	{"client/draft.go", "const Lifetime = 23 *", "const Lifetime = 22 *", "young_api", "Lifetime: value changed"},
	{"client/testdata/formats/1/draft.json", `"version":1`, `"version":2`, "formats", "draft.json has been edited"},
	{"cmd/exactlyonce/main.go", `&c.Clients, "clients"`, `&c.Clients, "callers"`, "programs", "exactlyonce -clients"},
	{"shopdb/metrics/metrics.go", `"requests_total"`, `"answers_total"`, "metrics", "requests_total"},
	{"sqlstore/vschema.json", `"column": "place"`, `"column": "key_hash"`, "vschema", "table storefront_orders: was"},
	{"sqlstore/migrate.go", "schemaVersion = 1", "schemaVersion = 2", "", ""},
	{"sqlstore/sqlite.go", "schema: ownSchema(create,", "schema: append(ownSchema(create,", "", ""},
	{"sqlstore/sqlite.go", "ON storefront_orders`, ``, ``),", "ON storefront_orders`, ``, ``),\n" +
		"`ALTER TABLE main.storefront_orders ADD COLUMN added BIGINT DEFAULT 7`),", "", ""},
	{"sqlstore/orders.go", "return sha256.Sum256(append(append(b, scope...), value...))",
		"return sha256.Sum256(append(append(b, value...), scope...))", "database", "sent again, is answered with"},
}

// TestALaterReleaseIsHeld records this tree as 1.0.0 in a copy of the repository, changes that as a later
// release might, and expects the test of the copy to name each breach of a promise, and no addition.
func TestALaterReleaseIsHeld(t *testing.T) {
	later := filepath.Join(process.Folder(t), "later")
	run := func(name string, args ...string) (string, error) {
		command := exec.Command(name, args...)
		command.Dir = later
		out, err := command.CombinedOutput()
		return string(out), err
	}
	files := must.Get(exec.Command("git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard").Output())(t)
	for name := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) || strings.HasPrefix(name, "integration/releases/testdata/") {
			continue // of this release alone
		}
		must.OK(t, err)
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(later, name)), 0o755))
		write(t, later, name, text)
	}
	release := filepath.Join(later, "integration/releases/testdata/1.0.0")
	must.OK(t, os.MkdirAll(release, 0o755))
	for _, p := range promises[:slices.IndexFunc(promises, func(p promise) bool { return p.name == "api" })] {
		p.record(t, questions, release)
	}
	for _, args := range []string{"init --quiet", "add --all",
		"-c user.name=release -c user.email=release@localhost commit --quiet -m 1.0.0"} {
		if out, err := run("git", strings.Fields(args)...); err != nil {
			t.Fatal(args, err, out)
		}
	}

	for _, c := range laterChanges {
		old := ""
		if c.old != "" {
			old = read(t, filepath.Join(later, c.file))
		}
		if strings.Count(old, c.old) != 1 && c.old != "" {
			t.Fatalf("%s has %q %d times", c.file, c.old, strings.Count(old, c.old))
		}
		write(t, later, c.file, []byte(strings.Replace(old, c.old, c.new, 1)))
	}
	out, err := run("go", "test", "-count=1", "./integration/releases", "-v", "-run",
		"TestReleasesHold/1.0.0/^(openapi|exchanges|formats|cursors|tags|fingerprints|vschema|programs|metrics|database|"+
			"api|young api)$")
	if err == nil {
		t.Errorf("a later release that breaks all promises passes:\n%s", out)
	}
	if strings.Contains(out, "added") || strings.Contains(out, "Added") {
		t.Error("an addition is taken for a breach")
	}
	for _, c := range laterChanges {
		failed := regexp.MustCompile(`(?s)this breaks whoever relies on 1\.0\.0:[^]]*` + c.line)
		if c.promise != "" && (!strings.Contains(out, "--- FAIL: TestReleasesHold/1.0.0/"+c.promise) || !failed.MatchString(out)) {
			t.Errorf("%s: nothing says that %s breaks its promise", c.promise, c.file)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
