//go:build !linux

package sqlite

import "testing"

// asNobody does not know which rights a file has.
func asNobody(t *testing.T, _ string, _ bool, f func()) { t.Skip("only Linux tells") }
