package storetest

// Promises returns the names of all subtests, with their groups.
func Promises() []string {
	var out []string
	for _, g := range groups() {
		for _, p := range g.promises {
			out = append(out, g.name+"/"+p.sentence)
		}
	}
	return out
}
