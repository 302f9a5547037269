//go:build nomysql

package shopdb

import (
	"database/sql"
	"errors"
)

func openMySQL(string) (*sql.DB, error) {
	return nil, errors.New("this program was built without MySQL (-tags nomysql)")
}
