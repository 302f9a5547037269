package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A mutation is a change that breaks a promise, and the test that sees it.
type mutation struct {
	what  string // what is done, and what comes of it
	edits []edit
	pkg   string // the folder of the test's package, from the root of the repository
	test  string // its name, with those of subtests after slashes
	ends  ending // how the test ends: it fails, unless the list says otherwise
	fast  bool
	text  string // the entry in the list
}

// An edit replaces lines of a file, which it has once.
type edit struct {
	file          string // from the root of the repository
	before, after []string
}

// parse returns the mutations in a list, whose format list.txt explains.
func parse(list string) ([]*mutation, error) {
	var all []*mutation
	for i, entry := range strings.Split(list, "\n\n") {
		entry = strings.Trim(entry, "\n")
		if entry == "" || strings.HasPrefix(entry, "#") {
			continue
		}
		m, err := parseEntry(entry)
		if err != nil {
			line := 1 + strings.Count(strings.Join(strings.Split(list, "\n\n")[:i], "\n\n")+"\n\n", "\n")
			return nil, fmt.Errorf("the entry at line %d: %w", line, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseEntry(entry string) (*mutation, error) {
	m := &mutation{text: entry, ends: fails}
	for i, line := range strings.Split(entry, "\n") {
		words := strings.Fields(line)
		switch {
		case i == 0:
			m.what = line
		case line[0] == '-' || line[0] == '+' || line[0] == ' ' || line[0] == '\t':
			if len(m.edits) == 0 {
				return nil, errors.New("a line of code comes before its file")
			}
			e := &m.edits[len(m.edits)-1]
			if line[0] != '+' {
				e.before = append(e.before, line[1:])
			}
			if line[0] != '-' {
				e.after = append(e.after, line[1:])
			}
		case line == "..." && len(m.edits) > 0:
			m.edits = append(m.edits, edit{file: m.edits[len(m.edits)-1].file})
		case len(words) == 2 && words[0] == "in":
			m.edits = append(m.edits, edit{file: words[1]})
		case len(words) == 3 && words[0] == "by" && m.test == "":
			m.pkg, m.test = words[1], words[2]
		case line == "panics", line == "hangs":
			m.ends = ending(line)
		case line == "fast":
			m.fast = true
		default:
			return nil, fmt.Errorf("%q is nothing that an entry has", line)
		}
	}
	if m.test == "" || len(m.edits) == 0 {
		return nil, errors.New("it has no test, or no file")
	}
	for _, e := range m.edits {
		if len(e.before) == 0 || slices.Equal(e.before, e.after) {
			return nil, fmt.Errorf("it changes nothing in %s", e.file)
		}
	}
	return m, nil
}

// pattern returns what -run takes for the test.
func (m *mutation) pattern() string {
	return "^" + strings.ReplaceAll(m.test, "/", "$/^") + "$"
}

// key names the test among those of all mutations.
func (m *mutation) key() [2]string { return [2]string{m.pkg, m.pattern()} }

// apply returns text with the lines of e replaced. Lines are compared without the
// space around them, so that an entry stays true where code is only moved inwards.
func (e *edit) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	trimmed, before := trim(lines), trim(e.before)
	var at []int
	for i := 0; i+len(before) <= len(trimmed); i++ {
		if slices.Equal(trimmed[i:i+len(before)], before) {
			at = append(at, i)
		}
	}
	if len(at) != 1 {
		return "", fmt.Errorf("the list is out of date: %s has %d times what is to be replaced:\n%s", e.file, len(at), strings.Join(e.before, "\n"))
	}
	return strings.Join(slices.Concat(lines[:at[0]], e.after, lines[at[0]+len(before):]), "\n"), nil
}

func trim(lines []string) []string {
	trimmed := make([]string, len(lines))
	for i, line := range lines {
		trimmed[i] = strings.TrimSpace(line)
	}
	return trimmed
}
