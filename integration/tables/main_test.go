package tables

import (
	"testing"

	"example.com/storefront/integration/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
