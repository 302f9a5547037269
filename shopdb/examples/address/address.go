// Package address ships orders: each has an address, and perhaps a note, in its fields.
//
//	{"item": "teapot", "qty": 2, "fields": {"note": "Ring twice.", "address": {"name": "Ada Lovelace",
//		"street": "12 St James's Square", "zip": "SW1Y 4JH", "city": "London", "country": "GB"}}}
//
// Accept refuses an order whose address or note cannot be right, and says all that is wrong with them at
// once, so that a form can show each fault beside its input. Otherwise it writes them into the table
// addresses, in the transaction of the order: each order has an address, and each address an order.
// Copy this file, and ask for what your carrier needs.
//
//	store := sqlstore.New(db, &sqlstore.Options{Accept: address.Accept}) // AcceptMySQL for MySQL and MariaDB
//	handler := storefront.NewWithOptions(store, &storefront.Options{OrderFields: true})
//
// Nothing may check the fields before Accept, which is called for new orders alone: when the rules have
// changed, a check in front of the service would refuse the retry of an order that exists.
package address

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"example.com/storefront"
)

// Table makes the table. In MySQL and MariaDB, append CHARACTER SET utf8mb4 where that is not the default of
// the database.
const Table = `CREATE TABLE IF NOT EXISTS addresses (
	order_id VARCHAR(255) NOT NULL PRIMARY KEY,
	name VARCHAR(100) NOT NULL,
	street VARCHAR(100) NOT NULL,
	zip VARCHAR(10) NOT NULL,
	city VARCHAR(100) NOT NULL,
	country VARCHAR(2) NOT NULL,
	note VARCHAR(500) NOT NULL
)`

// inputs are what an order is asked for, in the sequence of the columns.
var inputs = []struct {
	pointer string         // where it is in the order (RFC 6901)
	form    *regexp.Regexp // of the value, without the space around it
	wants   string         // what a value has that is right
}{
	{"#/fields/address/name", line, "A name has 1 to 100 characters."},
	{"#/fields/address/street", line, "A street has 1 to 100 characters."},
	{"#/fields/address/zip", code, "A zip has 3 to 10 of A-Z, 0-9, - and space."},
	{"#/fields/address/city", line, "A city has 1 to 100 characters."},
	{"#/fields/address/country", regexp.MustCompile(`^[A-Z]{2}$`), "A country is two letters (ISO 3166)."},
	{"#/fields/note", regexp.MustCompile(`^(\n|[^\p{Cc}]){0,500}$`), "A note has at most 500 characters."},
}

var (
	line = regexp.MustCompile(`^[^\p{Cc}]{1,100}$`) // PostgreSQL does not take all control characters
	code = regexp.MustCompile(`^[A-Z0-9 -]{3,10}$`)
)

// Accept decides about an order, and writes its address, in PostgreSQL and SQLite. It is an Accept for
// sqlstore.Options, or the first part of one: what comes after it may still refuse the order.
func Accept(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	return accept(ctx, tx, "INSERT INTO addresses VALUES ($1, $2, $3, $4, $5, $6, $7)", order)
}

// AcceptMySQL is Accept for MySQL and MariaDB.
func AcceptMySQL(ctx context.Context, tx *sql.Tx, _ storefront.IdempotencyKey, order storefront.Order) error {
	return accept(ctx, tx, "INSERT INTO addresses VALUES (?, ?, ?, ?, ?, ?, ?)", order)
}

func accept(ctx context.Context, tx *sql.Tx, insert string, order storefront.Order) error {
	given, err := members(order.Fields)
	if err != nil {
		return err
	}
	row := []any{order.ID}
	var faults []storefront.Fault
	for _, in := range inputs {
		text, isText := given[in.pointer].(string)
		_, isGiven := given[in.pointer]
		delete(given, in.pointer)
		text = strings.TrimSpace(text)
		if isGiven && !isText || !in.form.MatchString(text) {
			faults = append(faults, storefront.Fault{Detail: in.wants, Pointer: in.pointer})
		}
		row = append(row, text)
	}
	for _, pointer := range slices.Sorted(maps.Keys(given)) { // such as a note with a misspelt name
		faults = append(faults, storefront.Fault{Detail: "Nothing of this name is known.", Pointer: pointer})
	}
	if faults != nil {
		return &storefront.Refusal{Reason: "address", Detail: "Something is wrong with the address or the note.",
			Faults: faults}
	}
	_, err = tx.ExecContext(ctx, insert, row...)
	return err
}

// members returns the fields, and those of the address, by their pointers.
func members(fields storefront.Fields) (map[string]any, error) {
	var all map[string]any
	if err := json.Unmarshal([]byte(cmp.Or(fields, "{}")), &all); err != nil {
		return nil, err
	}
	given := make(map[string]any)
	for name, value := range all {
		if members, ok := value.(map[string]any); ok && name == "address" {
			for name, value := range members {
				given["#/fields/address/"+escape(name)] = value
			}
		} else {
			given["#/fields/"+escape(name)] = value
		}
	}
	return given, nil
}

// escape writes a name as a part of a pointer in a URI fragment (RFC 6901, Section 6).
func escape(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}
