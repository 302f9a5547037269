// Release holds the code to what was released. Without flags, in the repository's
// root, it checks the code against every folder of testdata/release, as its test
// does: it prints which mistakes are mended, by name, and what breaks, which makes
// its exit status 1. It leaves out the databases of servers that are not installed. With
// -entry, its output is what breaks a prerelease, as that one's mended.json would list it.
// With -record it writes the folder of a release, for which all servers are needed.
//
//	go run ./integration/release
//	go run ./integration/release -entry
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

	"golang.org/x/mod/semver"

	"example.com/storefront/integration/internal/dbserver"
)

func main() {
	log.SetFlags(0)
	version := flag.String("record", "", "write the folder of this `version`")
	entry := flag.Bool("entry", false, "print what breaks a prerelease as its mended.json would list it")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unknown argument %q", flag.Arg(0))
	}
	if *version != "" {
		if err := record(".", *version); err != nil {
			log.Fatal(err)
		}
	}
	releases, err := releasesIn(".")
	if err != nil {
		log.Fatal(err)
	}
	broken := false
	for _, release := range releases {
		unlisted, err := check(release, ".")
		if err := errors.Join(unlisted.asError(), err); err != nil {
			log.Printf("%s does not hold:\n%v", release, err)
			broken = true
		} else if !*entry {
			fmt.Println(release, "holds")
			mistakes, _ := mended(release) // which check has read
			for _, m := range mistakes {
				fmt.Printf("but for what is mended: %s\n%v\n", m.Why, m.Differences.asError())
			}
		}
		if *entry && len(unlisted) > 0 && isPrerelease(release) {
			if err := encode(os.Stdout, mistake{Differences: unlisted}); err != nil {
				log.Fatal(err)
			}
		}
	}
	if broken {
		os.Exit(1)
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

// A promise is a part of what a release holds later commits to. Both functions are
// given the folder of the release and the repository's root. What check returns is
// how the code breaks the promise: each difference is one line that is the same each
// time and on each machine.
type promise struct {
	name   string
	record func(release, root string) error // nil if another one records the same
	check  func(release, root string) (differences []string, err error)
	needs  *dbserver.Kind // by check, if it is not nil
}

var promises = []promise{
	{"openapi", recordOpenAPI, checkOpenAPI, nil},
	{"api", recordAPI, checkAPI, nil},
	{"exchanges", recordExchanges, checkExchanges, nil},
	{"cursors", recordCursors, checkCursors, nil},
	{"tags", recordTags, checkTags, nil},
	{"fingerprints", recordFingerprints, checkFingerprints, nil},
	{"database", recordDatabase, checkDatabase, nil},
	{"postgresql", postgres.record, postgres.check, postgres.kind},
	{"postgresql 18", nil, postgres18.check, postgres18.kind},
	{"mariadb", mariaDB.record, mariaDB.check, mariaDB.kind},
	{"mysql", mySQL.record, mySQL.check, mySQL.kind},
}

// check returns how the code in root breaks what the release promised, but for what
// its mended.json lists.
func check(release, root string) (differences, error) {
	mistakes, err := mended(release)
	if err != nil {
		return nil, err
	}
	unlisted := make(differences)
	var errs []error
	for _, p := range promises {
		lines, err := p.unlisted(release, root, mistakes)
		if _, missing := errors.AsType[dbserver.NotInstalled](err); missing && !p.needs.Required() {
			log.Printf("%s: %s is not checked: %v", filepath.Base(release), p.name, err)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
		if len(lines) > 0 {
			unlisted[p.name] = lines
		}
	}
	return unlisted, errors.Join(errs...)
}

// holds is check, with everything as an error.
func holds(release, root string) error {
	unlisted, err := check(release, root)
	return errors.Join(unlisted.asError(), err)
}

// record writes the folder of a release, if the code holds what earlier ones
// promised.
func record(root, version string) error {
	if !semver.IsValid("v"+version) || semver.Canonical("v"+version) != "v"+version {
		return fmt.Errorf("%q is not a version such as 1.0.0 or 1.0.0-rc.1", version)
	}
	folder := filepath.Join(root, "testdata/release", version)
	if _, err := os.Stat(folder); err == nil {
		return fmt.Errorf("%s is there: what was released stays as it is", folder)
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	others, _ := releasesIn(root) // the first has none
	for _, other := range others {
		if err := errors.Join(holds(other, root), versionsAgree(other, root)); err != nil {
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
		if p.record == nil {
			continue
		}
		if err := p.record(unfinished, root); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := holds(unfinished, root); err != nil {
		return fmt.Errorf("what would be recorded does not hold:\n%w", err)
	}
	return os.Rename(unfinished, folder)
}
