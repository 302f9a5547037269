package dbserver

import (
	"os/exec"
	"path/filepath"
	"regexp"
)

// Versions returns the names and versions of the servers that are installed, but for
// PostgreSQL 18, of which nothing is measured.
func Versions() (versions []string) {
	bin, err := findPostgres()
	if err != nil {
		bin = ""
	}
	_, mySQL, err := findMySQL()
	if err != nil {
		mySQL = []string{""}
	}
	for _, server := range []struct {
		name    string
		command []string
	}{
		{"PostgreSQL", []string{filepath.Join(bin, "postgres")}},
		{"MariaDB", []string{findBinary("mariadbd")}},
		{"MySQL", mySQL},
	} {
		said, err := exec.Command(server.command[0], append(server.command[1:], "--version")...).Output()
		if err == nil {
			versions = append(versions, server.name+" "+version.FindString(string(said)))
		}
	}
	return versions
}

var version = regexp.MustCompile(`\d+(?:\.\d+)+`)
