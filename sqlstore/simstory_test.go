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
	m.told()                     // sorts the story
	keys := make(map[string]int) // by the words that stand for them
	for key := range m.items {
		keys[keyName(key)] = key
		keys[fmt.Sprintf("%.3x", keyHash(m.keyOf(key, 0)))] = key
		if old := m.old[key]; old != nil {
			keys[old.id] = key
		}
	}
	calls := make(map[string]*proposal) // by the order's ID
	for _, e := range m.story {
		if call, ok := e.last().(*proposal); ok {
			keys[call.proposed.ID], calls[call.proposed.ID] = call.key, call
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
			if key, ok := keys[word]; ok && !slices.Contains(l.keys, key) {
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
		"Marks": marks(lines),
	}); err != nil {
		panic(err)
	}
	return page.Bytes()
}

// names are the names in a story.
var names = [][2]string{
	{"k20/1", "the key k20 with the second of its two requests; they are counted from 0, as all is"},
	{"r0.01", "a client of replica r0, which has it send the next try perhaps to another one"},
	{"r0.01.1.2", "the ID of the order that this client proposes in its round 1, in try 2"},
	{"r0.k20.1", "a client that comes to r0 with k20/1 after all faults; r0.k20.1.0 is the order that it proposes in its round 0"},
	{"old.k20", "an order of a day ago, so that its key k20 may soon be forgotten"},
	{"#14", "a connection of the replica, which the table calls r1#14"},
	{"+3", "three more orders, of other keys, in the statement"},
	{"26aad8", "how the hash of a key begins"},
	{"2 rows, 1 affected", "what the database answers to a statement"},
	{"r0.f, r0.p, r0.g", "who calls ForgetKeys, Put and GetProduct of r0; they are in the table alone"},
}

// kindWords has what the names of statements stand for that are not SQL's own.
var kindWords = [][2]string{
	{"REPLAY", "reads the order of a key"},
	{"TAKEN", "asks which of these keys have orders"},
	{"FORGET", "forgets keys"},
	{"SETTLE", "writes a row of a few that all share, so that one of two primaries fails"},
	{"EMIT", "writes a record into the log"},
	{"WORK", "is what Accept writes"},
	{"STOCK", "is how Accept takes one from a shelf"},
	{"NOTE", "is what Accept notes"},
	{"PUT", "puts a product"},
	{"READ", "reads a product"},
	{"VERSION", "asks which database it is"},
	{"VARIABLES", "asks for the database's settings"},
	{"SCHEMA", "asks for the name of the schema"},
	{"TABLES", "asks which release made the tables"},
	{"BYTES", "asks how bytes are written"},
	{"SERVER", "asks which server it is, and since when"},
	{"CLOCK", "asks for the database's time"},
	{"PING", "asks whether the connection still works"},
	{"PROBE", "asks whether the connection still works"},
}

// marks explains the marks in these lines: names, what befalls statements, items, and statements.
func marks(lines []*line) [][2]string {
	marks := slices.Clone(names)
	for _, l := range lines {
		var mark [2]string
		switch value := l.last.(type) {
		case fate:
			mark = [2]string{"✕ " + value.String(), fateWords[value][1]}
		case *proposal:
			i := slices.IndexFunc(itemWords, func(item [2]string) bool { return item[0] == value.proposed.Item })
			mark = [2]string{"(" + value.proposed.Item + ")", itemWords[i][1]}
		}
		if i := slices.IndexFunc(kindWords, func(kind [2]string) bool { return kind[0] == l.kind }); i >= 0 && !slices.Contains(marks, kindWords[i]) {
			marks = append(marks, kindWords[i])
		}
		if mark[0] != "" && l.last != answered && !slices.Contains(marks, mark) {
			marks = append(marks, mark)
		}
	}
	slices.SortFunc(marks[len(names):], func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return marks
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

// A reader of a failure has not read the simulation.
func TestStoryExplainsItsMarks(t *testing.T) {
	mark := regexp.MustCompile(`✕ [a-z ]+|\([a-z ]+\)$|#\d+ ([A-Z]+)`)
	own := []string{"INSERT", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "DELETE"} // SQL's
	for seed := uint64(92); seed < 97; seed++ {
		page := html.UnescapeString(string(simulate(t, seed).page()))
		for _, label := range regexp.MustCompile(`<text x[^>]*>([^<]*)</text></a>`).FindAllStringSubmatch(page, -1) {
			for _, found := range mark.FindAllStringSubmatch(label[1], -1) {
				if want := cmp.Or(found[1], found[0]); !slices.Contains(own, want) && !strings.Contains(page, "<dt>"+want+"</dt>") {
					t.Errorf("seed %d does not explain %q of %q", seed, want, label[1])
				}
			}
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
