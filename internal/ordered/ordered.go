// Package ordered has a map that is sorted by the bytes of its keys and whose readers
// never wait: neither for writers nor for each other. It is a B+ tree whose leaves never
// change once readers can see them; writers, one at a time, replace them with changed
// copies. A leaf is removed when it is empty; leaves are not merged.
package ordered

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Value can be stored in a [Map]. Its ID is its key, and never changes.
type Value interface{ ID() string }

// A Map holds values by their IDs. The zero Map is empty and ready to use. Its
// methods may be called concurrently. A Map must not be copied after first use.
//
// A Map does not keep a value that was replaced or deleted: the value can be collected once
// no reader has it, even if its ID shares memory with it.
type Map[V Value] struct {
	mu   sync.Mutex              // held by writers
	root atomic.Pointer[node[V]] // nil if empty
}

// maxNode is the largest number of items or children in a node. Larger nodes
// make reads of large maps faster and writes slower.
const maxNode = 64

// A node holds the items of a range of IDs. Once readers can see a node, only the pointers
// in children change. A reader may still be in a node that has been replaced: the leaves of
// that node are as they were then, and the inner nodes that it shares with its replacement
// are current. A node's range grows only by the range of a neighbour whose items were all
// deleted. So a reader that visits the children from left to right, and skips IDs that are
// not greater than the last one it has, sees every item that was there throughout exactly
// once.
type node[V Value] struct {
	items    []V                       // in a leaf
	children []atomic.Pointer[node[V]] // in an inner node
	least    []string                  // in an inner node: copied lower bounds of all children but the first

	// Comparing the IDs of items or least would cost a cache miss for each one,
	// so searches compare sort keys, which are contiguous in memory.
	prefix string   // common to all IDs, copied
	keys   []uint64 // sort keys of the IDs without the prefix
}

func newLeaf[V Value](items []V) *node[V] {
	n := &node[V]{items: items, keys: make([]uint64, len(items))}
	n.setKeys()
	return n
}

func newInner[V Value](least []string, children []*node[V]) *node[V] {
	n := &node[V]{least: least, keys: make([]uint64, len(least)),
		children: make([]atomic.Pointer[node[V]], len(children))}
	for i, c := range children {
		n.children[i].Store(c)
	}
	n.setKeys()
	return n
}

// id returns the ID that keys[i] was made from.
func (n *node[V]) id(i int) string {
	if n.children == nil {
		return n.items[i].ID()
	}
	return n.least[i]
}

// setKeys sets prefix and keys.
func (n *node[V]) setKeys() {
	if len(n.keys) == 0 {
		return
	}
	first, last := n.id(0), n.id(len(n.keys)-1)
	common := 0
	for common < min(len(first), len(last)) && first[common] == last[common] {
		common++
	}
	n.prefix = strings.Clone(first[:common])
	for i := range n.keys {
		n.keys[i] = sortKey(n.id(i)[common:])
	}
}

// sortKey returns the first eight bytes of id as a number. IDs whose keys differ
// are in the order of their keys.
func sortKey(id string) uint64 {
	var b [8]byte
	copy(b[:], id)
	return binary.BigEndian.Uint64(b[:])
}

// search returns the index of the first ID that is not less than id, and whether that ID is
// id.
func (n *node[V]) search(id string) (int, bool) {
	if !strings.HasPrefix(id, n.prefix) {
		if id < n.prefix {
			return 0, false
		}
		return len(n.keys), false
	}
	key := sortKey(id[len(n.prefix):])
	i, _ := slices.BinarySearch(n.keys, key)
	for i < len(n.keys) && n.keys[i] == key && n.id(i) < id {
		i++
	}
	return i, i < len(n.keys) && n.keys[i] == key && n.id(i) == id
}

// child returns the index of the child whose range contains id.
func (n *node[V]) child(id string) int {
	i, found := n.search(id)
	if found {
		i++
	}
	return i
}

// Get returns the value with this ID and reports whether there is one.
func (m *Map[V]) Get(id string) (v V, ok bool) {
	n := m.root.Load()
	if n == nil {
		return v, false
	}
	for n.children != nil {
		n = n.children[n.child(id)].Load()
	}
	i, found := n.search(id)
	if !found {
		return v, false
	}
	return n.items[i], true
}

// All returns an iterator over the values in ascending byte order of ID. Every
// value that is there throughout is seen exactly once; changes made during the
// iteration may or may not be seen.
func (m *Map[V]) All() iter.Seq[V] {
	return func(yield func(V) bool) {
		from := ""
		for {
			page := m.From(from, 2*maxNode)
			for _, v := range page {
				if !yield(v) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			from = Successor(page[len(page)-1].ID())
		}
	}
}

// Successor returns the least string greater than id.
func Successor(id string) string { return id + "\x00" }

// From returns up to limit values in ascending byte order of ID, from the first ID that is
// not less than from on; none if limit is not positive. The caller owns the slice.
func (m *Map[V]) From(from string, limit int) []V {
	n := m.root.Load()
	if n == nil {
		return nil
	}
	return n.appendFrom(make([]V, 0, min(max(limit, 0), 1024)), from, max(limit, 0))
}

// appendFrom appends to page values whose ID is at least from and greater than
// the last one in page, until page has limit values.
func (n *node[V]) appendFrom(page []V, from string, limit int) []V {
	if n.children != nil {
		for i := n.child(from); i < len(n.children) && len(page) < limit; i++ {
			page = n.children[i].Load().appendFrom(page, from, limit)
		}
		return page
	}
	i, _ := n.search(from)
	if len(page) > 0 {
		last := page[len(page)-1].ID()
		for i < len(n.items) && n.items[i].ID() <= last {
			i++
		}
	}
	return append(page, n.items[i:i+min(len(n.items)-i, limit-len(page))]...)
}

// Put stores each value under its ID, replacing any that is there. Readers may
// see some of the values before the others.
func (m *Map[V]) Put(values ...V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range values {
		root := m.root.Load()
		if root == nil {
			root = new(node[V])
		}
		left, right, least := root.put(v)
		if right != nil {
			left = newInner([]string{least}, []*node[V]{left, right})
		}
		m.root.Store(left)
	}
}

// put returns the replacement of n with v in it: one node, or two and the lower
// bound of the second if one would be too large. An inner node whose number of
// children does not change is its own replacement.
func (n *node[V]) put(v V) (left, right *node[V], least string) {
	if n.children == nil {
		return n.putItem(v)
	}
	i := n.child(v.ID())
	old := n.children[i].Load()
	left, right, least = old.put(v)
	if right == nil {
		if left != old {
			n.children[i].Store(left)
		}
		return n, nil, ""
	}
	leasts := inserted(n.least, i, least)
	children := inserted(n.childPointers(), i+1, right)
	children[i] = left
	if len(children) <= maxNode {
		return newInner(leasts, children), nil, ""
	}
	const half = maxNode / 2
	return newInner(slices.Clone(leasts[:half-1]), children[:half]), newInner(slices.Clone(leasts[half:]),
		children[half:]), leasts[half-1]
}

// putItem implements put for leaves.
func (n *node[V]) putItem(v V) (left, right *node[V], least string) {
	id := v.ID()
	i, found := n.search(id)
	if found {
		changed := &node[V]{items: slices.Clone(n.items), prefix: n.prefix, keys: n.keys}
		changed.items[i] = v
		return changed, nil, ""
	}
	items := inserted(n.items, i, v)
	if len(items) > maxNode {
		const half = maxNode / 2
		lower, upper := newLeaf(slices.Clone(items[:half])), newLeaf(slices.Clone(items[half:]))
		return lower, upper, strings.Clone(items[half].ID())
	}
	if len(n.items) == 0 || !strings.HasPrefix(id, n.prefix) {
		return newLeaf(items), nil, ""
	}
	keys := inserted(n.keys, i, sortKey(id[len(n.prefix):]))
	return &node[V]{items: items, prefix: n.prefix, keys: keys}, nil, ""
}

// inserted returns a copy of s with v inserted at i, without spare capacity.
func inserted[E any](s []E, i int, v E) []E {
	out := make([]E, len(s)+1)
	copy(out, s[:i])
	out[i] = v
	copy(out[i+1:], s[i:])
	return out
}

// Delete removes the values with these IDs. It ignores IDs that are not there.
func (m *Map[V]) Delete(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		root := m.root.Load()
		if root == nil {
			return
		}
		root = root.delete(id)
		for root != nil && len(root.children) == 1 {
			root = root.children[0].Load()
		}
		m.root.Store(root)
	}
}

// delete returns the replacement of n without id: n itself if nothing changes at
// this level, or nil if nothing is left.
func (n *node[V]) delete(id string) *node[V] {
	if n.children == nil {
		i, found := n.search(id)
		switch {
		case !found:
			return n
		case len(n.items) == 1:
			return nil
		}
		return &node[V]{items: removed(n.items, i), prefix: n.prefix, keys: removed(n.keys, i)}
	}
	i := n.child(id)
	old := n.children[i].Load()
	left := old.delete(id)
	switch {
	case left == old:
		return n
	case left != nil:
		n.children[i].Store(left)
		return n
	case len(n.children) == 1:
		return nil
	}
	return newInner(removed(n.least, max(i-1, 0)), removed(n.childPointers(), i))
}

// removed returns a copy of s without the element at i.
func removed[E any](s []E, i int) []E {
	return slices.Concat(s[:i], s[i+1:])
}

func (n *node[V]) childPointers() []*node[V] {
	out := make([]*node[V], len(n.children))
	for i := range n.children {
		out[i] = n.children[i].Load()
	}
	return out
}
