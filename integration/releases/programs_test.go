package releases

import (
	"fmt"
	"slices"
	"testing"

	"example.com/storefront/integration/internal/process"
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

// programs returns the flags of each program with their defaults.
func programs(t *testing.T) (lines []string) {
	for name, command := range map[string]func() (string, error){
		"storefront": process.Storefront, "exactlyonce": process.Exactlyonce, "storefrontd": process.Storefrontd,
	} {
		for flag, value := range process.Flags(t, command) {
			lines = append(lines, fmt.Sprintf("%s -%s, default %q", name, flag, value))
		}
	}
	slices.Sort(lines)
	return lines
}
