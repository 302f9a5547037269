package releases

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/load"
	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"

	"example.com/storefront/integration/internal/need"
	"example.com/storefront/internal/must"
)

func recordOpenAPI(t *testing.T, _, release string) {
	write(t, release, "openapi.json", []byte(read(t, root+"/openapi.json")))
}

// goes is what oasdiff takes for harmless, as a client that is strict about the old document
// accepts the new one. But a client may rely on what goes.
var goes = map[string]checker.Level{
	checker.ResponseOptionalPropertyRemovedId:     checker.ERR,
	checker.OptionalResponseHeaderRemovedId:       checker.ERR,
	checker.ResponseNonSuccessStatusRemovedId:     checker.ERR,
	checker.ResponsePropertyOneOfRemovedId:        checker.ERR,
	checker.RequestParameterDefaultValueChangedId: checker.ERR,
	checker.RequestParameterDefaultValueRemovedId: checker.ERR,
}

// checkOpenAPI has oasdiff compare openapi.json with the released one. info.version is the
// version of the wire contract.
func checkOpenAPI(t *testing.T, release string) (lines []string) {
	old, now := openAPI(t, release), openAPI(t, root)
	was, is := old.Info.Version, now.Info.Version
	same := read(t, release+"/openapi.json") == read(t, root+"/openapi.json")
	if !same && semver.Compare("v"+is, "v"+was) <= 0 {
		lines = append(lines, fmt.Sprintf("it has changed, and its info.version is %s, not above %s", is, was))
	}
	compared, sources, err := diff.GetWithOperationsSourcesMap(diff.NewConfig(),
		&load.SpecInfo{Url: "released", Spec: old}, &load.SpecInfo{Url: "now", Spec: now})
	if err != nil {
		t.Fatal(err)
	}
	config := checker.NewConfig(checker.GetAllChecks(), checker.WithSeverityLevels(goes))
	localizer := checker.NewDefaultLocalizer()
	for _, change := range checker.CheckBackwardCompatibility(config, compared, sources) {
		lines = append(lines, fmt.Sprintf("%s %s: %s (%s)",
			change.GetOperation(), change.GetPath(), change.GetUncolorizedText(localizer), change.GetId()))
	}
	return lines
}

// openAPI reads the openapi.json of a folder.
func openAPI(t *testing.T, folder string) *openapi3.T {
	t.Helper()
	document := must.Get(openapi3.NewLoader().LoadFromFile(filepath.Join(folder, "openapi.json")))(t)
	return document
}

// checkAPI has apidiff compare the public packages with those in the history, but client, which is young. The
// export data that apidiff can keep in a file is readable for two releases of Go only.
func checkAPI(t *testing.T, release string) (lines []string) {
	old, now := publicPackages(t, "-overlay="+overlayOf(t, filepath.Base(release))), publicPackages(t)
	for _, change := range apidiff.ModuleChanges(old, now).Changes {
		// Nobody is promised that values can be compared by ==.
		if !change.Compatible && !strings.HasSuffix(change.Message, ": old is comparable, new is not") {
			lines = append(lines, change.Message)
		}
	}
	return lines
}

// publicPackages loads the packages that other modules can import, with flags of go build.
func publicPackages(t *testing.T, flags ...string) *apidiff.Module {
	t.Helper()
	loaded := must.Get(packages.Load(&packages.Config{
		Mode:       packages.NeedName | packages.NeedTypes | packages.NeedModule,
		Dir:        root,
		Env:        append(os.Environ(), "GOWORK=off"),
		BuildFlags: flags,
	}, "./..."))(t)
	m := new(apidiff.Module)
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors)
		}
		m.Path = p.Module.Path
		path := strings.Split(p.PkgPath, "/")
		if p.Name != "main" && !slices.Contains(path, "internal") && path[len(path)-1] != "client" {
			m.Packages = append(m.Packages, p.Types)
		}
	}
	return m
}

// overlayOf returns an overlay for go build with the files as they were when a release was recorded, so that
// packages that are as they were are not compiled again. It skips the test where the history is not there.
func overlayOf(t *testing.T, version string) string {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			need.Missing(t, need.Tools, fmt.Errorf("no history, which has %s: git %s: %w", version, args[0], err))
		}
		return string(out)
	}
	// The commit that recorded the release, not one that has moved what was recorded.
	recorded := ":(top,glob)**/" + version + "/shop.json"
	commit := strings.TrimSpace(git("log", "-1", "-M", "--diff-filter=AM", "--format=%H", "--", recorded))
	if commit == "" || git("rev-parse", "--is-shallow-repository") != "false\n" {
		need.Missing(t, need.Tools, "the history ends before "+version)
	}
	top, dir := must.Get(filepath.Abs(root))(t), t.TempDir()
	replaced := make(map[string]string) // by "" what was not there
	for name := range strings.Lines(git("ls-files", "--others", "--exclude-standard")) {
		replaced[filepath.Join(top, strings.TrimSpace(name))] = ""
	}
	changed := git("diff", "--name-status", "--no-renames", commit, "--", ".", ":!integration", ":!docs", ":!*_test.go")
	for line := range strings.Lines(changed) {
		status, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		file := ""
		if status != "A" {
			file = fmt.Sprint(len(replaced), filepath.Ext(name))
			write(t, dir, file, []byte(git("show", commit+":"+name)))
			file = filepath.Join(dir, file)
		}
		replaced[filepath.Join(top, name)] = file
	}
	write(t, dir, "overlay.json", toJSON(t, map[string]any{"Replace": replaced}))
	return filepath.Join(dir, "overlay.json")
}

// Recorded files stay where they are, as later commits replay the exchanges and go on with the drafts and
// journals. A release has their sums, as sha256sum prints them.
var recorded = map[string][]string{
	"contract.sha256": {root + "/testdata/contract"},
	"formats.sha256": {root + "/client/testdata/formats", root + "/integration/clients/testdata/formats",
		root + "/integration/browser/testdata/formats"},
}

func recordFiles(sums string) func(t *testing.T, _, release string) {
	return func(t *testing.T, _, release string) {
		var b strings.Builder
		for _, folder := range recorded[sums] {
			filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
				if err == nil && entry.Type().IsRegular() && entry.Name() != "README.md" {
					name := must.Get(filepath.Rel(recorded[sums][0], file))(t)
					fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256([]byte(read(t, file))), filepath.ToSlash(name))
				}
				return nil
			})
		}
		write(t, release, sums, []byte(b.String()))
	}
}

func checkFiles(sums string) func(t *testing.T, release string) []string {
	return func(t *testing.T, release string) (lines []string) {
		for line := range strings.Lines(read(t, filepath.Join(release, sums))) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			text, err := os.ReadFile(filepath.Join(recorded[sums][0], name))
			if now := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil {
				lines = append(lines, name+" is gone")
			} else if now != sum {
				lines = append(lines, name+" has been edited since it was released: its sum is now "+now)
			}
		}
		return lines
	}
}
