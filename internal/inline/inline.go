// Package inline is for pages that have their style and their script in them.
package inline

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

var lines = strings.NewReplacer("\r\n", "\n")

// Text returns a text as browsers read it: with LF for CR LF (HTML, 13.2.3.5), which a
// checkout may have made of it. Hashes have to be of that.
func Text(file string) string { return lines.Replace(file) }

// Policy returns a Content-Security-Policy (CSP Level 3) by which a page runs this script and
// has this style, both as [Text] returns them, connects to its own host, and does nothing else.
func Policy(script, style string) string {
	return "default-src 'none'; script-src 'sha256-" + Hash(script) + "'; style-src 'sha256-" + Hash(style) +
		"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; require-trusted-types-for 'script'; trusted-types 'none'"
}

// Hash returns the SHA-256 of a text in base64.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
