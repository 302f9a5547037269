// Package releases holds the code to what each release has promised, as README.md says, and
// runs replicas of several releases on one database.
package releases

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

const root = "../.."

var version = flag.String("record", "", "record this `version` in testdata")

// A promise is what a release holds later commits to. Both functions get the folder of the
// release. A new one gets what the service answers to the questions of the last one. What
// check returns is how the code differs: each difference is one line, the same every time and
// on every machine.
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
	{"api", nil, checkAPI("./...")},
	{"young api", nil, checkAPI("./client", "./shopdb/...")},
	{"postgresql", postgres.record, postgres.check},
	{"postgresql 18", nil, postgres18.check},
	{"mariadb", mariaDB.record, mariaDB.check},
	{"mysql", mySQL.record, mySQL.check},
}

// young are the promises that any release may change: differences.json says how.
var young = []string{"metrics", "young api"}

func TestReleasesHold(t *testing.T) {
	for _, release := range releases(t) {
		for _, p := range promises {
			t.Run(filepath.Base(release)+"/"+p.name, func(t *testing.T) {
				if lines := p.broken(t, release); len(lines) > 0 {
					t.Errorf("this breaks whoever relies on %s:\n%s", filepath.Base(release), toJSON(t, lines))
				}
			})
		}
	}
}

// TestRecord records a release and expects that it holds: in testdata if the flag -record has
// its version, and else for nothing, as months may pass until the next one.
func TestRecord(t *testing.T) {
	folders := releases(t)
	last := folders[len(folders)-1]
	if *version != "" {
		t.Setenv(need.Variable, "all")
		if v := "v" + *version; semver.Canonical(v) != v || semver.Compare(v, "v"+filepath.Base(last)) <= 0 {
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

// releases returns the folders of the releases, the oldest first. CHANGELOG.md lists the same, and
// prereleases of which nothing is kept.
func releases(t *testing.T) (folders []string) {
	t.Helper()
	folders = must.Get(filepath.Glob("testdata/*"))(t)
	var listed []string
	heading := regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\]`)
	for _, m := range heading.FindAllStringSubmatch(read(t, root+"/CHANGELOG.md"), -1) {
		folder := "testdata/" + m[1]
		if semver.Prerelease("v"+m[1]) == "" || slices.Contains(folders, folder) {
			listed = append(listed, folder)
		}
	}
	byVersion := func(a, b string) int { return semver.Compare("v"+filepath.Base(a), "v"+filepath.Base(b)) }
	slices.SortFunc(folders, byVersion)
	slices.SortFunc(listed, byVersion)
	if !slices.Equal(folders, listed) {
		t.Errorf("the releases are %q, and by CHANGELOG.md %q", folders, listed)
	}
	return folders
}

// differencesFile is in the folder of a release in which something young was changed later, or of a prerelease
// that made mistakes. It names how the code differs from the release, line by line, as nothing else may.
const differencesFile = "differences.json"

// A mistake is one of a prerelease that is fixed, or what has changed in something young.
type mistake struct {
	Why         string
	Differences []string // promise: line; or a promise alone, which is withdrawn
}

// broken returns how the code differs from what the release promised and its differences.json
// does not name, and what that file should not have.
func (p promise) broken(t *testing.T, release string) (lines []string) {
	t.Helper()
	var mistakes []mistake
	text, err := os.ReadFile(filepath.Join(release, differencesFile))
	if err == nil {
		err = json.Unmarshal(text, &mistakes)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if semver.Prerelease("v"+filepath.Base(release)) == "" && !slices.Contains(young, p.name) {
		mistakes = nil // it breaks whoever relies on it, whatever the file says
	}
	isWithdrawn := slices.ContainsFunc(mistakes, func(m mistake) bool { return slices.Contains(m.Differences, p.name) })
	if !isWithdrawn {
		for _, line := range p.check(t, release) {
			lines = append(lines, p.name+": "+line)
		}
	}
	slices.Sort(lines)
	for _, m := range mistakes {
		if strings.TrimSpace(m.Why) == "" {
			lines = append(lines, fmt.Sprintf("%s does not say why there is %q", differencesFile, m.Differences))
		}
		for _, named := range m.Differences {
			if !strings.HasPrefix(named, p.name+": ") {
				continue
			}
			if i := slices.Index(lines, named); i >= 0 {
				lines = slices.Delete(lines, i, i+1)
			} else {
				lines = append(lines, differencesFile+" names what does not differ: "+named)
			}
		}
	}
	return lines
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
