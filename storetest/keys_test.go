package storetest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/storefront"
)

var wrongKeys = []wrongStore{
	{"keys joined", func(s *store) { s.keys(func(k *key) { k.Scope, k.Value = "", k.Scope+k.Value }) }, []string{sameKey}, "was taken for"},
	{"keys without case", func(s *store) { s.keys(func(k *key) { k.Value = strings.ToLower(k.Value) }) }, []string{sameKey}, `Value: "K"`},
	{"keys trimmed", func(s *store) { s.keys(func(k *key) { k.Value = strings.TrimRight(k.Value, " ") }) }, []string{sameKey}, `Value: "k "`},
	{"fingerprints without scope", func(s *store) {
		fingerprints := make(map[string][32]byte)
		s.oneByOne(func(right creator, ctx ctxt, k key, o order) (order, error) {
			if f, ok := fingerprints[k.Value]; ok && f != k.Fingerprint && ctx.Err() == nil {
				return order{}, storefront.ErrKeyReused
			}
			stored, err := right(ctx, k, o)
			if err == nil {
				fingerprints[k.Value] = k.Fingerprint
			}
			return stored, err
		})
	}, []string{sameKey}, "found by Value alone"},

	{"half of a fingerprint", func(s *store) { s.keys(func(k *key) { clear(k.Fingerprint[16:]) }) }, []string{reused}, "differs in the last byte"},
	{"fingerprints up to a zero", func(s *store) {
		s.keys(func(k *key) {
			if i := slices.Index(k.Fingerprint[:], 0); i >= 0 {
				clear(k.Fingerprint[i:])
			}
		})
	}, []string{reused}, "differs in the last byte"},
	{"fingerprints in the key", func(s *store) {
		s.keys(func(k *key) { k.Value += fmt.Sprintf("%x", k.Fingerprint); k.Fingerprint = [32]byte{} })
	}, []string{reused, ordered}, "part of the key in the unique constraint"},
	{"an order of a reused key", func(s *store) {
		s.returns(func(_ key, o, stored order, err error) (order, error) {
			if errors.Is(err, storefront.ErrKeyReused) {
				s.createWithoutKey(o)
			}
			return stored, err
		})
	}, []string{reused}, "created an order"},
	{"another error for a reused key", func(s *store) {
		s.returns(func(_ key, _, stored order, err error) (order, error) {
			if errors.Is(err, storefront.ErrKeyReused) {
				err = errors.New("conflict")
			}
			return stored, err
		})
	}, []string{reused}, "does not match ErrKeyReused: conflict"},
}
