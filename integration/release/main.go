// Release holds the code to what was released. Without flags, in the repository's
// root, it checks the code against every folder of testdata/release, as its test
// does. With -record it writes the folder of a release.
//
//	go run ./integration/release
//	go run ./integration/release -record 1.0.0
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	log.SetFlags(0)
	version := flag.String("record", "", "write the folder of this `version`")
	overwrite := flag.Bool("overwrite", false, "with -record: also if the folder is there")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unknown argument %q", flag.Arg(0))
	}
	if *version != "" {
		if err := record(".", *version, *overwrite); err != nil {
			log.Fatal(err)
		}
	}
	releases, err := releasesIn(".")
	if err != nil {
		log.Fatal(err)
	}
	for _, release := range releases {
		if err := check(release, "."); err != nil {
			log.Fatalf("%s does not hold:\n%v", release, err)
		}
		fmt.Println(release, "holds")
	}
}

// releasesIn returns the folders of the releases, at least one, the oldest first.
func releasesIn(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "testdata/release/*/openapi.json"))
	if err == nil && len(files) == 0 {
		err = errors.New("there is no folder testdata/release/VERSION here")
	}
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	slices.SortFunc(files, func(a, b string) int { return semver.Compare("v"+filepath.Base(a), "v"+filepath.Base(b)) })
	return files, err
}

// A promise is a part of what a release holds later commits to. Both methods are
// given the folder of the release and the repository's root.
type promise struct {
	name   string
	record func(release, root string) error
	check  func(release, root string) error
}

var promises = []promise{
	{"openapi", recordOpenAPI, checkOpenAPI},
	{"api", recordAPI, checkAPI},
	{"exchanges", recordExchanges, checkExchanges},
	{"cursors", recordCursors, checkCursors},
	{"tags", recordTags, checkTags},
	{"fingerprints", recordFingerprints, checkFingerprints},
	{"database", recordDatabase, checkDatabase},
}

// check returns how the code in root breaks what the release promised.
func check(release, root string) error {
	var errs []error
	for _, p := range promises {
		if err := p.check(release, root); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// record writes the folder of a release, if the code holds what earlier ones
// promised.
func record(root, version string, overwrite bool) error {
	if !semver.IsValid("v"+version) || semver.Canonical("v"+version) != "v"+version {
		return fmt.Errorf("%q is not a version such as 1.0.0 or 1.0.0-rc.1", version)
	}
	folder := filepath.Join(root, "testdata/release", version)
	if _, err := os.Stat(folder); err == nil && !overwrite {
		return fmt.Errorf("%s is there: what was released stays as it is (-overwrite is for a mistake that is mended before 1.0.0)", folder)
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	others, _ := releasesIn(root) // the first has none
	for _, other := range others {
		if other == folder {
			continue
		}
		if err := errors.Join(check(other, root), versionsAgree(other, root)); err != nil {
			return fmt.Errorf("%s does not hold:\n%w", other, err)
		}
	}
	// Until all of it is there, it has another name.
	unfinished, err := os.MkdirTemp(filepath.Dir(folder), ".unfinished")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil {
		return err
	}
	for _, p := range promises {
		if err := p.record(unfinished, root); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := check(unfinished, root); err != nil {
		return fmt.Errorf("what would be recorded does not hold:\n%w", err)
	}
	return errors.Join(os.RemoveAll(folder), os.Rename(unfinished, folder))
}

// faults is an error of several lines, or nil.
func faults(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}
