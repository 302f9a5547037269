package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"

	"example.com/storefront/integration/internal/long"
)

const root = "../.."

func TestReleasesHold(t *testing.T) {
	for _, release := range releases(t) {
		for _, p := range promises {
			t.Run(filepath.Base(release)+"/"+p.name, func(t *testing.T) {
				if p.needs != nil {
					p.needs.Need(t)
				}
				if lines, err := unlisted(t, p.name, release, root); len(lines) > 0 || err != nil {
					t.Errorf("this breaks whoever relies on %s:\n%s\n%v", filepath.Base(release), strings.Join(lines, "\n"), err)
				}
			})
		}
	}
}

// Months may pass until the next release is recorded, and it is to work then.
func TestWhatIsRecordedHolds(t *testing.T) {
	release := filepath.Join(t.TempDir(), "1.0.0-new")
	if err := os.Mkdir(release, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		if p.record == nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			if p.needs != nil {
				p.needs.Need(t)
			}
			if err := p.record(release, root); err != nil {
				t.Fatal(err)
			}
			if lines, err := p.check(release, root); len(lines) > 0 || err != nil {
				t.Errorf("the check returned %q and the error %v", lines, err)
			}
		})
	}
}

func releases(t *testing.T) []string {
	t.Helper()
	folders, err := releasesIn(root)
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// A release whose folder is gone would hold nobody to anything.
func TestEveryReleaseInTheChangelogHasItsFolder(t *testing.T) {
	changelog, err := os.ReadFile(root + "/CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, recorded []string
	for _, m := range regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\]`).FindAllSubmatch(changelog, -1) {
		listed = append(listed, string(m[1]))
	}
	for _, folder := range releases(t) {
		recorded = append(recorded, filepath.Base(folder))
	}
	slices.Sort(listed)
	slices.Sort(recorded)
	if !slices.Equal(listed, recorded) {
		t.Errorf("CHANGELOG.md has the releases %q, and testdata/release %q", listed, recorded)
	}
}

// A bite is what a later commit would break, or, which is the same, a release that
// promised what is not there. A prerelease may list it.
type bite struct {
	name    string
	promise string
	tamper  func(t *testing.T, release, now string)
	want    string // of the complaint
}

func TestHoldsBites(t *testing.T) {
	long.Test(t)
	for _, b := range []bite{
		{"a required member of a response is gone", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"required": ["id", "item", "qty", "created_at"]`, `"required": ["id", "item", "qty"]`)
			edit(t, now+"/openapi.json", `"created_at": {`, `"x-created_at": {`)
		}, "created_at"},
		{"an optional member of a response is gone", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"reason": {`, `"cause": {`)
		}, "response-optional-property-removed"},
		{"a parameter has become required", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"UsersLimit": {`, `"UsersLimit": { "required": true,`)
		}, "request-parameter-became-required"},
		{"another default page size", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"default": 50`, `"default": 20`)
		}, "request-parameter-default-value-changed"},
		{"a smaller maximum", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"maximum": 9007199254740991`, `"maximum": 1000`)
		}, "request-property-max-decreased"},
		{"an endpoint is gone", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"/v1/users": {`, `"/v3/users": {`)
		}, "api-path-removed"},
		{"another problem type for the same", "openapi", func(t *testing.T, _, now string) {
			edit(t, now+"/openapi.json", `"urn:problem-type:storefront:invalid-query",`, `"urn:problem-type:storefront:bad-query",`)
		}, "the problem type urn:problem-type:storefront:invalid-query is gone"},

		{"a method has another name", "api", func(t *testing.T, release, _ string) {
			edit(t, release+"/api/storefront.txt", "func (m *MemStore) Orders() []Order", "func (m *MemStore) AllOrders() []Order")
		}, "AllOrders: removed"},
		{"an option is gone", "api", func(t *testing.T, release, _ string) {
			edit(t, release+"/api/storefront.txt", "	Shared bool\n", "	Shared bool\n	Strict bool\n")
		}, "Options.Strict: removed"},
		{"a field of a struct of another package is gone", "api", func(t *testing.T, release, _ string) {
			edit(t, release+"/api/sqlstore.txt", "	MaxCalls int\n", "	MaxCalls, MinCalls int\n")
		}, "sqlstore.Options.MinCalls: removed"},
		{"Store has one more method", "api", func(t *testing.T, release, _ string) {
			edit(t, release+"/api/storefront.txt", "	GetProduct(ctx context.Context, id string) (Resource, error)\n", "")
		}, "Store.GetProduct: added"},
		{"another type of an argument", "api", func(t *testing.T, release, _ string) {
			edit(t, release+"/api/sqlstore.txt", "before time.Time", "before time.Duration")
		}, "ForgetKeys: changed"},
		{"a package is gone", "api", func(t *testing.T, release, _ string) {
			write(t, release+"/api/gone.txt", "package gone // import \"example.com/storefront/gone\"\n")
		}, "gone: removed"},

		{"an exchange was edited", "exchanges", func(t *testing.T, _, now string) {
			edit(t, now+"/testdata/contract/users-all.txt", "HTTP/1.1 200 OK", "HTTP/1.1 201 Created")
		}, "users-all.txt has been edited"},
		{"an exchange is gone", "exchanges", func(t *testing.T, _, now string) {
			if err := os.Remove(now + "/testdata/contract/order.txt"); err != nil {
				t.Fatal(err)
			}
		}, "order.txt is gone"},
		{"exchanges begin with another store", "exchanges", func(t *testing.T, _, now string) {
			edit(t, now+"/testdata/contract/store.json", `"ada"`, `"eve"`)
		}, "store.json has been edited"},

		{"cursors have another checksum", "cursors", func(t *testing.T, release, _ string) {
			edit(t, release+"/cursors.json", `"AXVhZGHVktB5"`, `"AXVhZGHVkAAA"`)
		}, `leads to "" with status 400, and not to "ada"`},
		{"cursors lead elsewhere", "cursors", func(t *testing.T, release, _ string) {
			edit(t, release+"/cursors.json", `"Position": "ada"`, `"Position": "adb"`)
		}, `leads to "ada" with status 200, and not to "adb"`},

		{"a resource has another tag", "tags", func(t *testing.T, release, _ string) {
			edit(t, release+"/tags.json", `"ETag": "\"`, `"ETag": "\"x`)
		}, "NewResource makes"},
		{"a resource is rendered in another way", "tags", func(t *testing.T, release, _ string) {
			edit(t, release+"/tags.json", `\"n\":[0,-0,1.0`, `\"n\":[0,-0,1`)
		}, "NewResource makes"},
		{"a page has another tag", "tags", func(t *testing.T, release, _ string) {
			file := release + "/tags.json"
			text := read(t, file)
			pages := strings.Index(text, `"Pages"`)
			write(t, file, text[:pages]+strings.Replace(text[pages:], `"ETag": "\"`, `"ETag": "\"x`, 1))
		}, "the tag of /v1/users is"},
		{"the document has the old tag, but other bytes", "tags", func(t *testing.T, release, _ string) {
			now := get(storefront.New(new(storefront.MemStore)), "/openapi.json").Header().Get("ETag")
			text := regexp.MustCompile(`"OpenAPI": .*`).ReplaceAllString(read(t, release+"/tags.json"), fmt.Sprintf(`"OpenAPI": %q`, now))
			write(t, release+"/tags.json", text)
			edit(t, release+"/openapi.json", `"title": "storefront"`, `"title": "shopfront"`)
		}, "the tag of /openapi.json is still"},

		{"an order has another fingerprint", "fingerprints", func(t *testing.T, release, _ string) {
			edit(t, release+"/fingerprints.json", `"Fingerprint": "`, `"Fingerprint": "00`)
		}, "and was 201 with"},
		{"a header is another key", "fingerprints", func(t *testing.T, release, _ string) {
			edit(t, release+"/fingerprints.json", `"Key": "bare"`, `"Key": "\"bare\""`)
		}, "and was 201 with"},

		{"the store reads another column", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `ALTER TABLE storefront_orders RENAME COLUMN fingerprint TO print`)
		}, `Migrate does not make "storefront_orders fingerprint`},
		{"the table of orders has another name", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `ALTER TABLE storefront_orders RENAME TO orders`)
		}, "no such table: storefront_orders"},
		{"the tables are of a later release", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `UPDATE storefront_schema SET version = 1000000, oldest = 1000000`)
		}, "of a later release"},
		{"keys are hashed in another way", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `UPDATE storefront_orders SET key_hash = randomblob(32)`)
		}, `sent again, is answered with 201 {"id":"…"`},
		{"stored fingerprints are others", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `UPDATE storefront_orders SET fingerprint = randomblob(32)`)
		}, "sent again, is answered with 422"},
		{"an order is lost", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `DELETE FROM storefront_orders WHERE item = 'kettle'`)
		}, `sent again, is answered with 201 {"id":"…"`},
		{"an order has another time", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `UPDATE storefront_orders SET created_ms = created_ms + 1 WHERE item = 'kettle'`)
		}, "storefront_orders does not have"},
		{"a list has another order", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `UPDATE storefront_users SET id = CAST('zzz' AS BLOB) WHERE id = CAST('ada' AS BLOB)`)
		}, "users are"},
		{"a product is lost", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `DELETE FROM storefront_products WHERE id = CAST('ada' AS BLOB)`)
		}, "a product is 404"},
		{"an index that new tables do not have", "database", func(t *testing.T, release, _ string) {
			execute(t, release+"/shop.db", `CREATE INDEX items ON storefront_orders (item)`)
		}, "Migrate leaves"},
	} {
		t.Run(b.name, func(t *testing.T) {
			release, now := copies(t)
			if b.promise == "api" {
				now = root // which is all of the module
			}
			b.test(t, release, now)
		})
	}
}

func TestHoldsBitesOnServers(t *testing.T) {
	long.Test(t)
	for name, s := range map[string]server{"postgresql": postgres, "mariadb": mariaDB, "mysql": mySQL} {
		inDump := func(old, new string) func(t *testing.T, release, now string) {
			return func(t *testing.T, release, _ string) {
				file := filepath.Join(release, s.file)
				text := read(t, file)
				changed := regexp.MustCompile(old).ReplaceAllString(text, new)
				if changed == text {
					t.Fatalf("%s does not have %s", file, old)
				}
				write(t, file, changed)
			}
		}
		for _, b := range []bite{
			{"there is no database", name, func(t *testing.T, release, _ string) {
				if err := os.Remove(filepath.Join(release, s.file)); err != nil {
					t.Fatal(err)
				}
			}, "no such file"},
			{"an order is lost", name, inDump(`INSERT INTO .*'kettle'.*\n`, ""), `sent again, is answered with 201 {"id":"…"`},
			{"an index that new tables have is missing", name, inDump(`CREATE INDEX storefront_orders_keyed.*|,\n *KEY .storefront_orders_keyed.*`, ""), "Migrate does not make"},
			{"a default that new tables have is missing", name, inDump(`(keyed_ms.? bigint\S*) DEFAULT .*[^,\n]`, "$1"), "Migrate does not make"},
		} {
			t.Run(name+"/"+b.name, func(t *testing.T) {
				s.kind.Need(t)
				release := filepath.Join(t.TempDir(), "1.0.0-copy") // of no release, as the last one may have only SQLite's
				if err := errors.Join(os.Mkdir(release, 0o755), recordDatabase(release, root), s.record(release, root)); err != nil {
					t.Fatal(err)
				}
				b.test(t, release, root)
			})
		}
	}
}

// test expects the complaint, and none once it is listed.
func (b bite) test(t *testing.T, release, now string) {
	t.Helper()
	if lines, err := unlisted(t, b.promise, release, now); len(lines) > 0 || err != nil {
		t.Fatalf("before it is broken: %q, %v", lines, err)
	}
	b.tamper(t, release, now)
	lines, err := unlisted(t, b.promise, release, now)
	if !strings.Contains(fmt.Sprint(lines, err), b.want) {
		t.Errorf("the check of %s returned %q and the error %v, want %q", b.promise, lines, err, b.want)
	}
	if err != nil {
		return // which is none to list
	}
	list(t, release, b.promise, lines)
	if again, err := unlisted(t, b.promise, release, now); len(again) > 0 || err != nil || strings.Contains(strings.Join(lines, ""), "\n") {
		t.Errorf("%q was listed, and then the check of %s returned %q and the error %v", lines, b.promise, again, err)
	}
}

func TestOnlyWhatIsListedIsMended(t *testing.T) {
	release, now := copies(t)
	missing, product := now+"/testdata/contract/not-found.txt", now+"/testdata/contract/product.txt"
	recorded := read(t, missing)
	found := func(lines, stale string) {
		t.Helper()
		got, err := unlisted(t, "exchanges", release, now)
		if !regexp.MustCompile(lines).MatchString(strings.Join(got, ",")) || !regexp.MustCompile(stale).MatchString(fmt.Sprint(err)) {
			t.Errorf("the check returned %q and the error %v, want %s and %s", got, err, lines, stale)
		}
	}
	edit(t, missing, "HTTP/1.1 404 Not Found", "HTTP/1.1 410 Gone")
	lines, _ := unlisted(t, "exchanges", release, now)
	list(t, release, "exchanges", lines)
	found(`^$`, `<nil>`)

	edit(t, product, "HTTP/1.1 200 OK", "HTTP/1.1 201 Created")
	found(`^product.txt has been edited[^,]*$`, `<nil>`)

	edit(t, product, "HTTP/1.1 201 Created", "HTTP/1.1 200 OK")
	edit(t, missing, "HTTP/1.1 410 Gone", "HTTP/1.1 400 Bad Request")
	found(`^not-found.txt has been edited[^,]*$`, `^mended.json lists what does not differ: not-found.txt`)

	write(t, missing, recorded)
	found(`^$`, `^mended.json lists what does not differ: not-found.txt`)
}

func TestMendedIsRefused(t *testing.T) {
	const difference = `"Differences": {"exchanges": ["order.txt is gone"]}`
	for _, test := range []struct{ name, version, text, want string }{
		{"in a final release", "1.0.0", `[]`, "only a prerelease"},
		{"without a reason", "1.0.0-rc.1", `[{"Why": " ", ` + difference + `}]`, "does not say why"},
		{"without a difference", "1.0.0-rc.1", `[{"Why": "A test.", "Differences": {"api": []}}]`, "lists no difference"},
		{"of an unknown promise", "1.0.0-rc.1", `[{"Why": "A test.", "Differences": {"http": ["It is another."]}}]`, "no promise"},
	} {
		t.Run(test.name, func(t *testing.T) {
			release := filepath.Join(t.TempDir(), test.version)
			if err := os.Mkdir(release, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(release, mendedFile), test.text)
			if unlisted, err := check(release, root); unlisted != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("check returned %q and the error %v, want one with %q", unlisted, err, test.want)
			}
		})
	}
}

func TestAdditionsHold(t *testing.T) {
	release, now := copies(t)
	for _, e := range []struct{ file, old, new string }{
		{now + "/openapi.json", `"created_at": {`, `"colour": { "type": "string" }, "created_at": {`},
		{now + "/openapi.json", `"/v1/users": {`, `"/v3/users": { "get": { "responses": { "200": { "description": "Users." } } } }, "/v1/users": {`},
		{now + "/openapi.json", `"urn:problem-type:storefront:invalid-query",`,
			`"urn:problem-type:storefront:new", "urn:problem-type:storefront:invalid-query",`},
		{release + "/api/storefront.txt", "func (m *MemStore) Orders() []Order\n", ""},
		{release + "/api/storefront.txt", "	Shared bool\n", ""},
		{release + "/api/storefront.txt", "	_           [0]func()\n", "	_           struct{}\n"}, // nobody is promised ==
	} {
		edit(t, e.file, e.old, e.new)
	}
	write(t, now+"/testdata/contract/new.txt", "A new exchange.\n")
	for name, now := range map[string]string{"openapi": now, "exchanges": now, "api": root} {
		if lines, err := unlisted(t, name, release, now); len(lines) > 0 || err != nil {
			t.Errorf("%s: %q, %v", name, lines, err)
		}
	}
}

func TestAReleaseIsNotOverwritten(t *testing.T) {
	now := t.TempDir()
	file := now + "/testdata/release/1.0.0/openapi.json"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, "{}")
	if err := record(now, "1.0.0"); err == nil || !strings.Contains(err.Error(), "is there") {
		t.Errorf("record returned %v", err)
	}
	if text := read(t, file); text != "{}" {
		t.Errorf("the file is now %s", text)
	}
}

func TestOnlyAVersionIsRecorded(t *testing.T) {
	for _, version := range []string{"", "v1.0.0", "1.0", "1.0.0+build", "../1.0.0", "latest"} {
		if err := record(t.TempDir(), version); err == nil || !strings.Contains(err.Error(), "is not a version") {
			t.Errorf("%q: record returned %v", version, err)
		}
	}
}

// info.version is the version of the wire contract.
func TestAChangedDocumentHasALaterVersion(t *testing.T) {
	release, now := copies(t)
	version := regexp.MustCompile(`"version": "[^"]*"`)
	text := read(t, release+"/openapi.json")
	write(t, release+"/openapi.json", version.ReplaceAllString(text, `"version": "1.2.0"`))
	for is, ok := range map[string]bool{"1.2.0": false, "1.1.9": false, "1.2.0-rc.1": false, "1.2.1": true, "1.3.0": true, "1.10.0-rc.1": true, "2.0.0": false, "next": false} {
		write(t, now+"/openapi.json", version.ReplaceAllString(text, `"version": "`+is+`", "x-new": true`))
		if err := versionsAgree(release, now); (err == nil) != ok {
			t.Errorf("1.2.0 was followed by %s: %v", is, err)
		}
	}
	write(t, now+"/openapi.json", read(t, release+"/openapi.json"))
	if err := versionsAgree(release, now); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
}

// unlisted returns how code breaks a promise of a release, but for what its
// mended.json lists.
func unlisted(t *testing.T, name, release, now string) ([]string, error) {
	t.Helper()
	mistakes, err := mended(release)
	if err != nil {
		t.Fatal(err)
	}
	p := promises[slices.IndexFunc(promises, func(p promise) bool { return p.name == name })]
	return p.unlisted(release, now, mistakes)
}

// list adds differences to the mended.json of a release.
func list(t *testing.T, release, name string, lines []string) {
	t.Helper()
	mistakes, err := mended(release)
	if err == nil {
		err = writeJSON(release, mendedFile, append(mistakes, mistake{"A test.", differences{name: lines}}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// copies returns a copy of the last release, as that of a prerelease, and one of the
// files that are compared with it.
func copies(t *testing.T) (release, now string) {
	t.Helper()
	release, now = filepath.Join(t.TempDir(), "1.0.0-copy"), t.TempDir()
	folders := releases(t)
	for to, from := range map[string]string{release: folders[len(folders)-1], now + "/testdata/contract": root + "/testdata/contract"} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, now+"/openapi.json", read(t, root+"/openapi.json"))
	return release, now
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// edit replaces the first of a text in a file.
func edit(t *testing.T, file, old, new string) {
	t.Helper()
	text := read(t, file)
	if !strings.Contains(text, old) {
		t.Fatalf("%s does not have %q", file, old)
	}
	write(t, file, strings.Replace(text, old, new, 1))
}

func execute(t *testing.T, file, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}
