//go:build nosqlite

package shopdb

import (
	"context"
	"database/sql"
	"errors"
)

func openSQLite(string, Options) (*sql.DB, func(context.Context), error) {
	return nil, nil, errors.New("this program was built without SQLite (-tags nosqlite)")
}
