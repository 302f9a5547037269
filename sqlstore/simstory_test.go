package sqlstore_test

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

//go:embed testdata/story.html
var storyHTML string

var storyTemplate = template.Must(template.New("story").Parse(storyHTML))

// A line is an event of the story, as its page tells it.
type line struct {
	N         int
	At        time.Duration
	Who, Text string
	Class     string // call, told, failed, fault, commit or nothing
	Bad       bool   // it is of a broken promise

	last          any    // the last value of the event, which tells of what kind it is
	kind, subject string // of a statement or its answer
	keys          []int  // which it names
	unit          *unit
}

// A unit is what a connection does in a transaction, or with a statement outside of one. Its
// lines are about all keys that one of them names.
type unit struct {
	began   time.Duration
	keys    []int
	open    bool // its transaction has not ended
	replica int
}

// page returns the story as a page that needs nothing else, with a picture for each key. The
// keys of broken promises come first, with what matters for these.
func (m *simulation) page() []byte {
	m.told()                      // sorts the story
	names := make(map[string]int) // the key that a word stands for
	for key := range m.items {
		names[keyName(key)] = key
		names[fmt.Sprintf("%.3x", keyHash(m.keyOf(key, 0)))] = key
		if old := m.old[key]; old != nil {
			names[old.id] = key
		}
	}
	calls := make(map[string]*proposal) // by the order's ID
	for _, e := range m.story {
		if call, ok := e.last().(*proposal); ok {
			names[call.proposed.ID], calls[call.proposed.ID] = call.key, call
		}
	}
	bad := make(map[string]*proposal) // the calls whose orders broken promises name
	for _, word := range words(strings.Join(m.wrong, " ")) {
		if call := calls[word]; call != nil {
			bad[word] = call
		}
	}
	var lines []*line
	units := make(map[string]*unit) // the last of each connection
	told := maps.Clone(bad)         // and those that returned such an order
	for n, e := range m.story {
		l := &line{N: n, At: e.at, Who: e.who, Text: e.text(), Class: e.class(), Bad: e.who == "WRONG", last: e.last()}
		for _, word := range words(l.Text) {
			if key, ok := names[word]; ok && !slices.Contains(l.keys, key) {
				l.keys = append(l.keys, key)
			}
			l.Bad = l.Bad || bad[word] != nil
		}
		if a, ok := l.last.(*attempt); ok && l.Bad {
			told[a.proposed.ID] = calls[a.proposed.ID]
		}
		if strings.Contains(e.who, "#") {
			switch l.last.(type) {
			case fate, reply:
				l.kind, l.subject = e.args[0].(string), e.args[1].(string)
			}
			u := units[e.who]
			if _, sent := l.last.(fate); u == nil || sent && (!u.open || l.kind == "BEGIN") {
				u = &unit{began: e.at, open: l.kind == "BEGIN", replica: int(e.who[1] - '0')}
				units[e.who] = u
			}
			if l.kind == "COMMIT" || l.kind == "ROLLBACK" || l.Text == "ROLLBACK" {
				u.open = false
			}
			l.unit, u.keys = u, append(u.keys, l.keys...)
		}
		lines = append(lines, l)
	}
	var pictures, broken []*picture
	for key := range m.items {
		title := "Key " + keyName(key)
		all := slices.DeleteFunc(slices.Clone(lines), func(l *line) bool { return !l.drawn(key) })
		pictures = append(pictures, m.draw(title, key, all, calls))
		if slices.ContainsFunc(all, func(l *line) bool { return l.Who == "WRONG" && l.keys != nil }) {
			few := slices.DeleteFunc(all, func(l *line) bool { return !l.matters(told) })
			broken = append(broken, m.draw(title+", what matters for its broken promises", key, few, calls))
		}
	}
	slices.SortStableFunc(pictures, func(a, b *picture) int {
		return cmp.Or(cmp.Compare(len(b.faults), len(a.faults)), cmp.Compare(len(a.Rows), len(b.Rows)))
	})
	var page bytes.Buffer
	if err := storyTemplate.Execute(&page, map[string]any{
		"Seed": m.seed, "Engine": m.server.engine, "Wrong": m.wrong, "Lines": lines, "Pictures": append(broken, pictures...),
	}); err != nil {
		panic(err)
	}
	return page.Bytes()
}

// words returns the words of a text that may be names.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:;/()", r) })
}

func (e event) last() any {
	if len(e.args) == 0 || e.who == "standby" {
		return nil
	}
	return e.args[len(e.args)-1]
}

func (e event) class() string {
	switch last := e.last().(type) {
	case *proposal:
		return "call"
	case *attempt:
		if last.err == nil && last.panicked == nil {
			return "told"
		}
		return "failed"
	case fate:
		if last != answered {
			return "fault"
		}
	case reply:
		if last.broken {
			return "fault"
		} else if last.err != nil {
			return "failed"
		}
	}
	switch {
	case e.who == "standby", strings.HasPrefix(e.format, "cannot connect"):
		return "fault"
	case strings.HasSuffix(e.format, "is there"):
		return "commit"
	}
	return ""
}

// about reports whether l is about a key.
func (l *line) about(key int) bool {
	if l.keys == nil && l.unit != nil {
		return slices.Contains(l.unit.keys, key)
	}
	return slices.Contains(l.keys, key)
}

// drawn reports whether the picture of a key has l.
func (l *line) drawn(key int) bool {
	switch {
	case l.Who == "standby", l.Who == "WRONG" && l.keys == nil, l.Who == "seed" && l.At > 0: // when faults end
		return true
	case l.kind != "" && l.Class == "" && !slices.Contains([]string{"INSERT", "REPLAY", "TAKEN", "COMMIT"}, l.kind), l.Text == "ROLLBACK":
		return false
	}
	return l.about(key)
}

// matters reports whether l is about one of these calls, or about all.
func (l *line) matters(calls map[string]*proposal) bool {
	switch {
	case l.Bad, l.Class == "commit", l.Who == "standby", l.Who == "seed":
		return true
	case l.unit == nil:
		call, ok := l.last.(*proposal)
		return ok && calls[call.proposed.ID] != nil
	}
	for _, call := range calls {
		if call.replica == l.unit.replica && call.began <= l.unit.began && (l.unit.began <= call.ended || call.ended == 0) && l.about(call.key) {
			return true
		}
	}
	return false
}

// rank returns where l comes among the lines of an instant: a call begins before its
// statements, and ends after them.
func (l *line) rank() int {
	switch l.last.(type) {
	case *proposal:
		return 0
	case *attempt:
		return 2
	}
	return 1
}

// A picture has what happened to a key.
type picture struct {
	Title, Summary string
	Width, Height  int
	Lanes          []*lane
	Rows           []row
	faults         map[fate]bool
}

// A lane is the lifeline of a client, a replica or the database.
type lane struct {
	Name           string
	X, Top, Bottom int
}

func (l *lane) Wide() int { return 14 + 7*len(l.Name) }
func (l *lane) Left() int { return l.X - l.Wide()/2 }
func (l *lane) Base() int { return l.Top + 14 }

// A row draws one line: an arrow, a dot or a band, and a label.
type row struct {
	*line
	Y, From, To, Dot, Band int
	At                     string // "" if it is that of the row above
	Label, Anchor          string
	TextX, TextY           int
}

// Tip draws the tip of the arrow.
func (r row) Tip() string {
	back := cmp.Compare(r.From, r.To) * 7
	return fmt.Sprintf("M%d %dL%d %dL%d %d", r.To+back, r.Y-4, r.To, r.Y, r.To+back, r.Y+4)
}

// draw draws what happened to a key.
func (m *simulation) draw(title string, key int, lines []*line, calls map[string]*proposal) *picture {
	p := &picture{Title: title, faults: make(map[fate]bool)}
	slices.SortStableFunc(lines, func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()))
	})
	last := make(map[string]*line) // of each client
	for _, l := range lines {
		last[l.Who] = l
	}

	// A client gets the first place whose client has been answered for the last time.
	places, owners := make(map[string]int), []string{}
	for _, l := range lines {
		if _, ok := places[l.Who]; l.Class != "call" || ok {
			continue
		}
		i := slices.IndexFunc(owners, func(owner string) bool { return last[owner].N < l.N })
		if i < 0 {
			i, owners = len(owners), append(owners, "")
		}
		places[l.Who], owners[i] = i, l.Who
	}
	const top = 4
	replica := func(n int) int { return 180 + 78*len(owners) + 92*n }
	server := replica(replicas-1) + 280
	p.Width = server + 60
	for n := range replicas {
		p.Lanes = append(p.Lanes, &lane{Name: fmt.Sprintf("replica r%d", n), X: replica(n), Top: top})
	}
	p.Lanes = append(p.Lanes, &lane{Name: m.server.engine.String(), X: server, Top: top})

	clients, told, commits := make(map[string]*lane), 0, 0
	y, before := top+20, time.Duration(0)
	for _, l := range lines {
		y += 23 + int(4*math.Log10(max(1, (l.At-before).Seconds()*1000))) // more after a pause
		r := row{line: l, Y: y, TextY: y - 4, Label: l.Text, Anchor: "end", TextX: server - 12}
		if l.At == 0 || short(l.At) != short(before) {
			r.At = short(l.At)
		}
		before = l.At
		switch value := l.last.(type) {
		case *proposal:
			c := clients[l.Who]
			if c == nil {
				c = &lane{Name: l.Who, X: 120 + 78*places[l.Who], Top: y - 10}
				clients[l.Who], p.Lanes = c, append(p.Lanes, c)
			}
			r.From, r.To, r.Anchor, r.TextX = c.X, replica(value.replica), "start", c.X+10
			if c.Top == y-10 {
				r.TextX += c.Wide() / 2
			}
			r.Label = fmt.Sprintf("%s/%d: order %s (%s)", keyName(value.key), value.variant, value.proposed.ID, value.proposed.Item)
		case *attempt:
			c := clients[l.Who]
			c.Bottom = y
			r.From, r.To, r.Anchor, r.TextX = replica(value.replica), c.X, "start", c.X+10
			if _, r.Label, _ = strings.Cut(l.Text, "): "); l.Class == "told" {
				r.Label = "told of the order " + value.order.ID
				told++
			}
		case fate, reply:
			r.From, r.To = replica(l.unit.replica), server
			_, conn, _ := strings.Cut(l.Who, "#")
			r.Label = "#" + conn + " " + l.kind
			others := 0
			for _, id := range strings.Fields(l.subject) {
				if calls[id] == nil || calls[id].key == key {
					r.Label += " " + id
				} else {
					others++
				}
			}
			if others > 0 {
				r.Label += fmt.Sprintf(" +%d", others)
			}
			if f, sent := value.(fate); !sent {
				r.From, r.To = r.To, r.From
				r.Label += fmt.Sprintf(": %v", value)
			} else if f != answered {
				p.faults[f] = true
				r.Label += " ✕ " + f.String()
				if f == unsent {
					r.To -= (r.To - r.From) / 3
				}
			}
		default:
			r.TextY = y + 4
			switch {
			case l.Who == "Accept":
				r.Dot = replica(calls[words(l.Text)[1]].replica)
				r.Label, r.TextX = "Accept "+l.Text, r.Dot-12
			case l.unit != nil:
				r.Dot = server
				if l.Class == "commit" {
					commits++
				}
			case l.Who == "standby":
				r.Dot, r.Label = server, "the standby "+l.Text
			default:
				r.Band, r.TextX, r.Anchor = y-11, 90, "start"
			}
		}
		r.Label = fmt.Sprintf("%.110s", r.Label)
		p.Rows = append(p.Rows, r)
	}
	p.Height = y + 20
	for _, l := range p.Lanes {
		l.Bottom = cmp.Or(l.Bottom, p.Height)
	}
	p.Summary = fmt.Sprintf("%d clients, who are told %d times of an order; orders committed: %d", len(clients), told, commits)
	for i, f := range slices.Sorted(maps.Keys(p.faults)) {
		p.Summary += [...]string{"; statements ", ", "}[min(i, 1)] + f.String()
	}
	return p
}

// short returns a duration with four digits, or some more.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 10_000 && unit < time.Second {
		unit *= 10
	}
	return d.Round(unit).String()
}

var (
	storyRow   = regexp.MustCompile(`<tr id="e\d+"><td>(.*?)</td><td>(.*?)</td><td><span class="[a-z ]*">(.*?)</span>`)
	storyLink  = regexp.MustCompile(`<a href="#e(\d+)">`)
	storyTitle = regexp.MustCompile(`<summary>(.*?):`)
)

func TestStoryHasEachEventOnce(t *testing.T) {
	m := simulate(t, 92)
	page := string(m.page())
	var lines []string
	for _, row := range storyRow.FindAllStringSubmatch(page, -1) {
		lines = append(lines, html.UnescapeString(fmt.Sprintf("%14s  %-8s %s", row[1], row[2], row[3])))
	}
	if want := m.told(); !slices.Equal(lines, want) {
		t.Errorf("the page has %d lines, and the story %d, or others", len(lines), len(want))
	}
	drawn := make(map[string]int)
	for _, link := range storyLink.FindAllStringSubmatch(page, -1) {
		drawn[link[1]]++
	}
	for n, e := range m.story {
		if class := e.class(); class != "call" && class != "told" && class != "commit" {
			continue
		}
		if times := drawn[fmt.Sprint(n)]; times != 1 {
			t.Errorf("%v %s %s: drawn %d times, want once", e.at, e.who, e.text(), times)
		}
	}
}

func TestStoryBeginsWithTheBrokenPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSimulation(92)
		m.run()
		i := slices.IndexFunc(m.calls, func(a *attempt) bool { return a.err == nil && a.panicked == nil })
		lost := m.calls[i]
		delete(m.server.members[0].state.orders, lost.order.ID)
		delete(m.server.members[0].state.keys, keyHash(m.keyOf(lost.key, 0)))
		m.check()
		page := html.UnescapeString(string(m.page()))
		for _, want := range []string{"broken promises: ", "the order that it returned is not there: " + lost.String()} {
			if !strings.Contains(page, want) {
				t.Errorf("the page does not say %q", want)
			}
		}
		first, _, _ := strings.Cut(page, "</svg>")
		if title := storyTitle.FindStringSubmatch(first)[1]; title != "Key "+keyName(lost.key)+", what matters for its broken promises" {
			t.Errorf("the first picture is %q, and not that of %s", title, keyName(lost.key))
		}
		if !regexp.MustCompile(`<g class="told bad">[^g]*>told of the order ` + lost.order.ID).MatchString(first) {
			t.Errorf("the first picture does not show in red who was told of %s", lost.order.ID)
		}
	})
}
