package dbserver

import (
	"os/exec"
	"path/filepath"
	"regexp"
)

// Versions returns the names and versions of the servers that are measured, as far as they
// are installed.
func Versions() (versions []string) {
	bin, err := findPostgres()
	if err != nil {
		bin = ""
	}
	for _, server := range []struct{ name, binary string }{
		{"PostgreSQL", filepath.Join(bin, "postgres")},
		{"MariaDB", findBinary("mariadbd")},
	} {
		if said, err := exec.Command(server.binary, "--version").Output(); err == nil {
			versions = append(versions, server.name+" "+version.FindString(string(said)))
		}
	}
	return versions
}

var version = regexp.MustCompile(`\d+(?:\.\d+)+`)
