// Package releases holds the code to what each release has promised, as README.md says, and
// runs replicas of several releases on one database.
package releases

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/mod/semver"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

const root = "../.."

var version = flag.String("record", "", "record this `version` in testdata")

// A promise is what a release holds later commits to. Both functions get the folder of the
// release. A new one gets what the service answers to the questions of the last one. What
// check returns is how the code differs, a line for each difference.
type promise struct {
	name   string
	record func(t *testing.T, last, release string) // nil: another one records it, or the history has it
	check  func(t *testing.T, release string) []string
}

var promises = []promise{
	{"openapi", recordOpenAPI, checkOpenAPI},
	{"exchanges", recordFiles("contract.sha256"), checkFiles("contract.sha256")},
	{"formats", recordFiles("formats.sha256"), checkFiles("formats.sha256")},
	{"cursors", recordCursors, checkCursors},
	{"tags", recordTags, checkTags},
	{"fingerprints", recordFingerprints, checkFingerprints},
	{"vschema", recordVSchema, checkVSchema},
	listed("programs", programs),
	listed("metrics", metricNames),
	{"database", recordSQLite, checkSQLite}, // up to here they need nothing
	{"api", nil, checkAPI},
	{"postgresql", postgres.record, postgres.check},
	{"postgresql 18", nil, postgres18.check},
	{"mariadb", mariaDB.record, mariaDB.check},
	{"mysql", mySQL.record, mySQL.check},
}

func TestReleasesHold(t *testing.T) {
	for _, release := range releases(t) {
		for _, p := range promises {
			t.Run(filepath.Base(release)+"/"+p.name, func(t *testing.T) {
				if lines := p.check(t, release); len(lines) > 0 {
					t.Errorf("this breaks whoever relies on %s:\n%s", filepath.Base(release), toJSON(t, lines))
				}
			})
		}
	}
}

// TestRecord records a release and expects that it holds: in testdata if the flag -record has
// its version, and else for nothing, as months may pass until the next one.
func TestRecord(t *testing.T) {
	last := questions
	if folders := releases(t); len(folders) > 0 {
		last = folders[len(folders)-1]
	}
	if *version != "" {
		t.Setenv(need.Variable, "all")
		if v := "v" + *version; semver.Canonical(v) != v ||
			last != questions && semver.Compare(v, "v"+filepath.Base(last)) <= 0 {
			t.Fatalf("%s is not a version above %s", *version, filepath.Base(last))
		}
		if !t.Run("earlier releases", TestReleasesHold) {
			return
		}
	}
	release := filepath.Join(t.TempDir(), "1.0.0-new")
	must.OK(t, os.Mkdir(release, 0o755))
	for _, p := range promises {
		if p.record == nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			p.record(t, last, release)
			if lines := p.check(t, release); len(lines) > 0 {
				t.Errorf("what was recorded does not hold:\n%s", toJSON(t, lines))
			}
		})
	}
	if *version != "" && !t.Failed() {
		must.OK(t, os.CopyFS(filepath.Join("testdata", *version), os.DirFS(release)))
	}
}

// questions is in place of a last release for the first one: it has what is asked, and no answers.
const questions = "questions"

// releases returns the folders of the releases, the oldest first. CHANGELOG.md lists the same.
func releases(t *testing.T) (folders []string) {
	t.Helper()
	folders = must.Get(filepath.Glob("testdata/*"))(t)
	var listed []string
	heading := regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\]`)
	for _, m := range heading.FindAllStringSubmatch(read(t, root+"/CHANGELOG.md"), -1) {
		listed = append(listed, "testdata/"+m[1])
	}
	byVersion := func(a, b string) int { return semver.Compare("v"+filepath.Base(a), "v"+filepath.Base(b)) }
	slices.SortFunc(folders, byVersion)
	slices.SortFunc(listed, byVersion)
	if !slices.Equal(folders, listed) {
		t.Errorf("the releases are %q, and by CHANGELOG.md %q", folders, listed)
	}
	return folders
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	text := must.Get(json.MarshalIndent(v, "", "  "))(t)
	return append(text, '\n')
}

// fromJSON returns what a file of a release has.
func fromJSON[T any](t *testing.T, release, name string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(release, name))), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

func write(t *testing.T, release, name string, text []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join(release, name), text, 0o644))
}
