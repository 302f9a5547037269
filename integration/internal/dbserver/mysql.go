package dbserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"example.com/storefront/integration/internal/process"
)

func init() { mysql.SetLogger(new(mysql.NopLogger)) } // else it prints each connection that a test breaks

// mySQLKind returns MariaDB or MySQL.
func mySQLKind(name, needed string, install func(k *Kind) (*installation, error)) *Kind {
	k := &Kind{
		Name:   name,
		needed: needed,
		driver: "mysql",
		// As sqlstore's documentation has it. Without readTimeout, what does not heed
		// ctx is seen.
		dsn: func(database, addr string) string {
			return "root@tcp(" + addr + ")/" + database +
				"?timeout=2s&innodb_lock_wait_timeout=1&interpolateParams=true"
		},
		main: "shop",
		hurries: []string{"innodb-flush-log-at-trx-commit=0", "innodb-doublewrite=OFF", "sync-binlog=0",
			"innodb-flush-method=nosync", "loose-debug-no-sync"}, // the last is MariaDB's
		drop: dropMySQL,
	}
	return k.installs(install)
}

// mySQLInstallation returns an installation with the command of its server, but for what is
// each server's own, and that of mysqldump, but for what all have.
func mySQLInstallation(k *Kind, runner *process.Runner, template string, command,
	dump []string) *installation {
	return &installation{
		Runner:   runner,
		kind:     k,
		template: template,
		server: func(s *Server, more []string) process.Cmd {
			args := append(slices.Clone(command[1:]),
				"--datadir="+s.data,
				"--bind-address=127.0.0.1",
				fmt.Sprintf("--port=%d", s.port),
				// In the data folder, whose path may be too long for a socket's.
				"--socket=socket",
				"--pid-file=pid",
				"--tmpdir="+filepath.Dir(s.data),
				"--skip-name-resolve",
				"--max-connections=200",
				"--innodb-flush-log-at-trx-commit=1",
				"--innodb-doublewrite=ON",
				"--innodb-buffer-pool-size=64M",
				// A collation without regard to case is the harder case: it is not the
				// byte order of IDs.
				"--character-set-server=utf8mb4",
				"--collation-server=utf8mb4_general_ci",
			)
			for _, setting := range more {
				args = append(args, "--"+setting)
			}
			return runner.Command(command[0], args...)
		},
		dump: func(s *Server, database string) process.Cmd {
			return runner.Command(dump[0], append(slices.Clone(dump[1:]),
				"--protocol=tcp", "--host=127.0.0.1", fmt.Sprintf("--port=%d", s.port), "--user=root",
				"--compact", "--hex-blob", "--skip-extended-insert", "--order-by-primary",
				"--default-character-set=utf8mb4", database)...)
		},
	}
}

// dropMySQL drops a database and ends the connections to it, which may have transactions
// that it would wait for.
func dropMySQL(s *Server, database string) error {
	for {
		id, err := s.Query("SELECT id FROM information_schema.processlist WHERE db = '" +
			database + "' LIMIT 1")
		if err != nil && strings.Contains(err.Error(), "Error 3854 ") {
			continue // MySQL has read the name of the database of a connection that was ending
		}
		if err != nil {
			return err
		}
		if id == "" {
			_, err := s.Query("DROP DATABASE " + database)
			return err
		}
		// It may have ended by itself.
		_, err = s.Query("KILL " + id)
		if err != nil && !strings.Contains(err.Error(), "Unknown thread id") {
			return err
		}
	}
}

// installMySQL finds what mysql/fetch has unpacked, which brings its own loader and
// libraries.
func installMySQL(k *Kind) (*installation, error) {
	folder, server, err := findMySQL()
	if err != nil {
		return nil, err
	}
	runner, err := process.NewRunner() // this user, who alone may reach the cache
	if err != nil {
		return nil, err
	}
	dir, err := runner.Folder("mysql")
	if err != nil {
		return nil, err
	}
	dump := append(slices.Clone(server[:len(server)-1]), filepath.Join(folder, "usr/bin/mysqldump"),
		"--no-defaults", "--set-gtid-purged=OFF")
	server = append(server,
		"--no-defaults",
		"--basedir="+filepath.Join(folder, "usr"),
		"--plugin-dir="+filepath.Join(folder, "usr/lib/mysql/plugin"),
		"--lc-messages-dir="+filepath.Join(folder, "usr/share/mysql"),
		"--innodb-redo-log-capacity=32M", // for less to copy; the default is 100M
		"--mysqlx=OFF",
		"--secure-file-priv=NULL", // else there must be a folder
	)
	if os.Getuid() == 0 {
		server = append(server, "--user=root") // it refuses to, if it is not told
	}
	in := mySQLInstallation(k, runner, filepath.Join(dir, "template"), server, dump)
	// An administrator, such as root, passes where others are refused.
	const users = "CREATE USER root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n" +
		"CREATE DATABASE shop;\nCREATE USER shop@'%';\nGRANT ALL ON shop.* TO shop@'%';\n"
	return in, in.makeTemplate(in.Command(server[0], append(slices.Clone(server[1:]), "--version")...),
		append(slices.Clone(server[1:]), users), func() error {
			begin := filepath.Join(dir, "begin.sql")
			if err := os.WriteFile(begin, []byte(users), 0o600); err != nil {
				return err
			}
			if err := in.Command(server[0], append(slices.Clone(server[1:]),
				"--datadir="+in.template, "--tmpdir="+dir,
				"--initialize-insecure", "--init-file="+begin)...).Run(); err != nil {
				return err
			}
			// the server's identity, which each is to have its own of
			return os.Remove(filepath.Join(in.template, "auto.cnf"))
		})
}

// findMySQL returns the folder that mysql/fetch unpacks, and the command that is its server.
func findMySQL() (folder string, server []string, err error) {
	folder = os.Getenv("STOREFRONT_MYSQL")
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", nil, NotInstalled(err.Error())
		}
		folder = filepath.Join(cache, "storefront", "mysql")
	}
	binary := filepath.Join(folder, "usr/sbin/mysqld")
	if _, err := os.Stat(binary); err != nil {
		return "", nil, NotInstalled("MySQL, which integration/mysql/fetch fetches, is not there: " +
			err.Error())
	}
	loaders, err := filepath.Glob(filepath.Join(folder, "usr/lib/*/ld-linux*.so.*"))
	if err != nil || len(loaders) != 1 {
		return "", nil, fmt.Errorf("of the loader of %s, there are %q, %v", binary, loaders, err)
	}
	return folder, []string{loaders[0], "--library-path", filepath.Dir(loaders[0]), binary}, nil
}
