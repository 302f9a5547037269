package clients

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"example.com/storefront/clienttest"
	"example.com/storefront/integration/internal/long"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

// different are faults at which a client does different things. At the others, it does the same as at one of
// these, and each costs a process.
var different = []string{"/nothing",
	"^orders/(the answer is (lost|cut in its (head|body, in))|a proxy sends|100|503 with Ret|409 while|200 with an)",
	"^orders/(.*another item|.*307|.*held up|the key.* after|.*without its Idem)",
	"^fields/(three|.*rounded|.*were sent)", "^users/(.*during|a page is cut)",
	"^products/(.*kept|304|.*no such)", "^lookups/(.*lost|.*null$)"}

func TestClientsPassTheSuite(t *testing.T) {
	inLanguages(t, func(t *testing.T, l language) {
		if long.Run() {
			clienttest.RunProgram(t, l.run()...)
			return
		}
		some := different
		if l.name == "bash" {
			some = different[:3] // it starts some twenty programs for each order
		}
		storefront := must.Get(process.Storefront())(t)
		try := exec.CommandContext(t.Context(), storefront, slices.Concat(
			[]string{"-faults", "1", "-only", strings.Join(some, "|"), "--"}, l.run())...)
		try.Stdout, try.Stderr = t.Output(), t.Output()
		if err := try.Run(); err != nil {
			t.Error(err)
		}
	})
}
