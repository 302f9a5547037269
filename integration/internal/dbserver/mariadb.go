package dbserver

import (
	"os/exec"
	"path/filepath"

	"example.com/storefront/integration/internal/process"
)

// installMariaDB finds what Debian's packages install, or others.
func installMariaDB(k *Kind) (*installation, error) {
	server, install := findBinary("mariadbd"), findBinary("mariadb-install-db")
	if server == "" || install == "" {
		return nil, NotInstalled("MariaDB's binaries (mariadbd, mariadb-install-db) are not installed: " +
			"neither on PATH, nor in /usr/sbin and /usr/bin, nor in /usr/libexec")
	}
	runner, err := process.NewRunner("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := runner.Folder("mariadb")
	if err != nil {
		return nil, err
	}
	const logSize = "--innodb-log-file-size=16M" // for less to copy; the default is 96M
	in := mySQLInstallation(k, runner, filepath.Join(dir, "template"),
		[]string{server, "--no-defaults", logSize}, []string{findBinary("mariadb-dump"), "--no-defaults"})
	settings := []string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db",
		"--skip-name-resolve", logSize}
	return in, in.makeTemplate(in.Command(server, "--version"), settings, func() error {
		if err := in.Command(install,
			append(settings, "--datadir="+in.template, "--tmpdir="+dir)...).Run(); err != nil {
			return err
		}
		return in.Command("mkdir", filepath.Join(in.template, "shop")).Run() // a folder is a database
	})
}

// findBinary returns the path of one of MariaDB's binaries, or "". Packages put
// the server where PATH may not lead to.
func findBinary(name string) string {
	for _, dir := range []string{"", "/usr/sbin", "/usr/bin", "/usr/libexec"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}
