//go:build nopostgres

package shopdb

import (
	"database/sql"
	"errors"
)

func openPostgres(string) (*sql.DB, error) {
	return nil, errors.New("this program was built without PostgreSQL (-tags nopostgres)")
}
