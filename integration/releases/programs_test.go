package releases

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"example.com/storefront"
	"example.com/storefront/integration/internal/process"
	"example.com/storefront/internal/must"
)

func recordPrograms(t *testing.T, _, release string) {
	write(t, release, "programs.json", toJSON(t, programs(t)))
}

// checkPrograms expects each line. There may be more.
func checkPrograms(t *testing.T, release string) (lines []string) {
	have := programs(t)
	for _, line := range fromJSON[[]string](t, release, "programs.json") {
		if !slices.Contains(have, line) {
			lines = append(lines, "no longer: "+line)
		}
	}
	return lines
}

var commands = map[string]func() (string, error){
	"storefront": process.Storefront, "exactlyonce": process.Exactlyonce, "storefrontd": process.Storefrontd,
}

// runs are command lines of which the exit status is promised. SHOP is a shop, FORGETFUL is one that
// remembers no order, and 192.0.2.1 is an address that no machine has (RFC 5737).
var runs = []string{
	"storefront -unknown",
	"storefront unexpected",
	"storefront -data missing.json",
	"storefront -addr 192.0.2.1:8080",
	"storefront -faults 1 -only none -- true",
	"storefront -faults 1 -- true",
	"exactlyonce",
	"exactlyonce -url SHOP -orders 10",
	"exactlyonce -url FORGETFUL -orders 10",
	"exactlyonce -url http://127.0.0.1:1 -wait 0s",
	"exactlyonce -url SHOP -orders 10 >/dev/full",
	"storefrontd -unknown",
	"storefrontd unexpected",
	"storefrontd -data missing.json",
	"storefrontd -db oracle://localhost/shop",
	"storefrontd -must-exist",
	"storefrontd -addr 192.0.2.1:8080",
}

// programs returns the flags of each program with their defaults, and exit statuses.
func programs(t *testing.T) (lines []string) {
	for name, command := range commands {
		for flag, value := range process.Flags(t, command) {
			lines = append(lines, fmt.Sprintf("%s -%s, default %q", name, flag, value))
		}
	}
	shop := httptest.NewServer(storefront.New(new(storefront.MemStore)))
	defer shop.Close()
	forgetful := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		storefront.New(new(storefront.MemStore)).ServeHTTP(w, r)
	}))
	defer forgetful.Close()
	for _, line := range runs {
		command, full := strings.CutSuffix(line, " >/dev/full")
		args := strings.Fields(strings.NewReplacer("SHOP", shop.URL, "FORGETFUL", forgetful.URL).Replace(command))
		cmd := exec.CommandContext(t.Context(), must.Get(commands[args[0]]())(t), args[1:]...)
		cmd.Dir = t.TempDir()
		if full {
			cmd.Stdout = must.Get(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
		}
		cmd.Run()
		lines = append(lines, fmt.Sprintf("%s: exit status %d", line, cmd.ProcessState.ExitCode()))
	}
	slices.Sort(lines)
	return lines
}
