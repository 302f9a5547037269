// Package clients has a client of the service that oapi-codegen generates from
// openapi.json, and tests it and what other tools make of that document: Redocly,
// Spectral, openapi-typescript and Hey API.
package clients

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml -o api.gen.go ../../openapi.json
