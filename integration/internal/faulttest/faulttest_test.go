package faulttest

import (
	"testing"
	"time"

	"example.com/storefront"
	"example.com/storefront/internal/audit"
)

func TestAccount(t *testing.T) {
	at := time.UnixMilli(1).UTC()
	body := []byte(`{"id":"a","item":"tea","qty":2,"created_at":"1970-01-01T00:00:00.001Z"}`)
	acknowledged := audit.Order{Item: "tea", Body: body}
	rc1 := []byte(`{"id":"a","item":"tea","qty":2,"created_at":"1970-01-01T00:00:00.01Z"}`)
	even := storefront.Order{ID: "a", Item: "tea", Qty: 2, CreatedAt: time.UnixMilli(10).UTC()}
	tea := storefront.Order{ID: "a", Item: "tea", Qty: 2, CreatedAt: at}
	for _, row := range []struct {
		name                      string
		sent                      audit.Order
		stored                    []storefront.Order
		lost, duplicated, unknown int
	}{
		{"there", acknowledged, []storefront.Order{tea}, 0, 0, 0},
		{"there, and acknowledged by 1.0.0-rc.1", audit.Order{Item: "tea", Body: rc1}, []storefront.Order{even}, 0, 0, 0},
		{"gone", acknowledged, nil, 1, 0, 0},
		{"another ID", acknowledged, []storefront.Order{{ID: "b", Item: "tea", Qty: 2, CreatedAt: at}}, 1, 0, 0},
		{"another quantity", acknowledged, []storefront.Order{{ID: "a", Item: "tea", Qty: 3, CreatedAt: at}}, 1, 0, 0},
		{"another time", acknowledged, []storefront.Order{{ID: "a", Item: "tea", Qty: 2, CreatedAt: at.Add(time.Millisecond)}}, 1, 0, 0},
		{"twice", acknowledged, []storefront.Order{tea, {ID: "b", Item: "tea", Qty: 2, CreatedAt: at}}, 0, 1, 0},
		{"never sent", acknowledged, []storefront.Order{tea, {ID: "b", Item: "cup", Qty: 2, CreatedAt: at}}, 0, 0, 1},
		{"not acknowledged and gone", audit.Order{Item: "tea"}, nil, 0, 0, 0},
		{"not acknowledged and there", audit.Order{Item: "tea"}, []storefront.Order{tea}, 0, 0, 0},
		{"not acknowledged and twice", audit.Order{Item: "tea"}, []storefront.Order{tea, tea}, 0, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			lost, duplicated, unknown := account([]audit.Order{row.sent}, row.stored)
			if len(lost) != row.lost || len(duplicated) != row.duplicated || len(unknown) != row.unknown {
				t.Errorf("lost %q, duplicated %q, unknown %q; want %d, %d, %d", lost, duplicated, unknown, row.lost, row.duplicated, row.unknown)
			}
		})
	}
}
