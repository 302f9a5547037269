// Package generators tests what generators of clients and other tools make of openapi.json. What they make
// is compiled with the files in testdata, and kept nowhere.
package generators
