package exchanges

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A response is a handler's response.
type response struct {
	status int
	header http.Header
	body   string
}

// String returns the response as a file records it.
func (r response) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "-- response --\nHTTP/1.1 %d %s\n", r.status, http.StatusText(r.status))
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		for _, value := range r.header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if r.body != "" {
		b.WriteString("\n")
		if json.Indent(&b, []byte(r.body), "", "  ") != nil {
			b.WriteString(r.body)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// A recorded response has the parts of a response that a file records.
type recorded struct {
	status        int
	header        http.Header
	absentHeaders []string
	body          string
	absentMembers []string // of the object
}

// unrecorded stands for a body, or a string in one, that is no part of the contract.
const unrecorded = "..."

func parseRecorded(text string) (*recorded, error) {
	head, body, _ := strings.Cut(strings.TrimRight(text, "\n"), "\n\n")
	lines := strings.Split(head, "\n")
	r := &recorded{header: make(http.Header)}
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d ", &r.status); err != nil {
		return nil, fmt.Errorf("%q is not a status line", lines[0])
	}
	for _, line := range lines[1:] {
		if name, ok := strings.CutPrefix(line, "!"); ok {
			r.absentHeaders = append(r.absentHeaders, name)
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("%q is not a header line", line)
		}
		r.header.Add(name, value)
	}
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "!#/"); ok {
			r.absentMembers = append(r.absentMembers, strings.TrimSpace(name))
		} else {
			r.body += line
		}
	}
	r.body = strings.TrimRight(r.body, "\n")
	return r, nil
}

// faults reports how got breaks r; additions are allowed.
func (r *recorded) faults(got response) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if got.status != r.status {
		fault("status %d, recorded is %d", got.status, r.status)
	}
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		want, have := r.header[name], got.header[name]
		switch {
		case have == nil:
			fault("%s is missing, recorded is %q", name, want)
		case name == "Content-Length":
			// An added member makes the body longer.
		case name == "Etag" && !r.sameBytes(got.body):
			if slices.Equal(want, have) {
				fault("Etag is still %q, but the bytes have changed", have)
			}
		case name == "Allow":
			for method := range strings.SplitSeq(want[0], ", ") {
				if !slices.Contains(strings.Split(have[0], ", "), method) {
					fault("Allow: %q, recorded is that %s is among them", have[0], method)
				}
			}
		case !slices.Equal(want, have):
			fault("%s: %q, recorded is %q", name, have, want)
		}
	}
	for _, name := range r.absentHeaders {
		if have, ok := got.header[http.CanonicalHeaderKey(name)]; ok {
			fault("%s: %q, recorded is that there is none", name, have)
		}
	}
	if n := got.header.Get("Content-Length"); n != "" && got.body != "" && n != strconv.Itoa(len(got.body)) {
		fault("Content-Length: %s with %d bytes", n, len(got.body))
	}

	want, wantErr := decodeJSON(r.body)
	have, haveErr := decodeJSON(got.body)
	switch {
	case r.body == unrecorded:
		if got.body == "" {
			fault("the body is missing")
		}
	case wantErr != nil && r.body != got.body:
		fault("the body is %q, recorded is %q", got.body, r.body)
	case wantErr == nil && haveErr != nil:
		fault("the body %q is not JSON", got.body)
	case wantErr == nil:
		faults = append(faults, jsonFaults("#", want, have)...)
	}
	members, _ := have.(map[string]any)
	for _, name := range r.absentMembers {
		if _, there := members[name]; there {
			fault("#/%s is there, recorded is that it is not", name)
		}
	}
	return faults
}

// sameBytes reports whether body is, byte by byte, the recorded body without its indents.
func (r *recorded) sameBytes(body string) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(r.body)) != nil {
		return true // a body that is no JSON is compared elsewhere
	}
	return compact.String() == body
}

func decodeJSON(text string) (v any, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil && dec.More() {
		err = errors.New("there is more than one value")
	}
	return v, err
}

// jsonFaults reports how got breaks want; additional members are allowed.
func jsonFaults(path string, want, got any) (faults []string) {
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(want)) {
				member := path + "/" + name
				value, ok := got[name]
				if text, isText := value.(string); name == "detail" && isText && text != "" {
					continue // it is for people, and may be worded better
				}
				if ok {
					faults = append(faults, jsonFaults(member, want[name], value)...)
				} else {
					faults = append(faults, member+" is missing")
				}
			}
			return faults
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			for i := range want {
				faults = append(faults, jsonFaults(path+"/"+strconv.Itoa(i), want[i], got[i])...)
			}
			return faults
		}
	default:
		text, _ := got.(string)
		if want == got || want == unrecorded && text != "" {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %v (%[2]T), recorded is %v (%[3]T)", path, got, want)}
}
