//go:build !linux

package smalldisk

import (
	"errors"
	"testing"
)

var errSystem = errors.New("it takes Linux")

func mount(testing.TB, int64) (dir string, err error) { return "", errSystem }
