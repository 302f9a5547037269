package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// A prerelease may have made a mistake. What mends it breaks what the prerelease has
// promised, and a file in the folder of the prerelease lists how, difference by
// difference: nothing else may pass with them, and what was recorded stays as it is.
const mendedFile = "mended.json"

// A mistake is one that is mended.
type mistake struct {
	Why         string // for people
	Differences differences
}

// differences are ways in which code breaks a release, by the promise.
type differences map[string][]string

// asError is an error with a line for each difference, or nil.
func (d differences) asError() error {
	var lines []error
	for _, p := range promises {
		for _, line := range d[p.name] {
			lines = append(lines, fmt.Errorf("%s: %s", p.name, line))
		}
	}
	return errors.Join(lines...)
}

// mended returns the mistakes that a release lists, if it does.
func mended(release string) ([]mistake, error) {
	mistakes, err := readJSON[[]mistake](release, mendedFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !isPrerelease(release):
		return nil, fmt.Errorf("%s has a %s: only a prerelease may be mended", filepath.Base(release), mendedFile)
	}
	for _, m := range mistakes {
		if strings.TrimSpace(m.Why) == "" {
			return nil, fmt.Errorf("%s does not say why there is:\n%v", mendedFile, m.Differences.asError())
		}
		for name := range m.Differences {
			if !slices.ContainsFunc(promises, func(p promise) bool { return p.name == name }) {
				return nil, fmt.Errorf("%s lists differences of %q, which is no promise", mendedFile, name)
			}
		}
		if m.Differences.asError() == nil {
			return nil, fmt.Errorf("%s lists no difference for: %s", mendedFile, m.Why)
		}
	}
	return mistakes, nil
}

func isPrerelease(release string) bool {
	return semver.Prerelease("v"+filepath.Base(release)) != ""
}

// unlisted returns how the code breaks a promise, but for what the mistakes list. It
// is an error if they list what the code does not do.
func (p promise) unlisted(release, root string, mistakes []mistake) ([]string, error) {
	found, err := p.check(release, root)
	if err != nil {
		return found, err
	}
	slices.Sort(found)
	var stale []error
	for _, m := range mistakes {
		for _, line := range m.Differences[p.name] {
			if i := slices.Index(found, line); i >= 0 {
				found = slices.Delete(found, i, i+1)
			} else {
				stale = append(stale, fmt.Errorf("%s lists what does not differ: %s", mendedFile, line))
			}
		}
	}
	return found, errors.Join(stale...)
}
