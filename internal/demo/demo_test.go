package demo

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

func TestPrintedLinesLeadToTheAddress(t *testing.T) {
	for listening, want := range map[string]string{
		"0.0.0.0:8080":        "http://localhost:8080",
		"[::]:8080":           "http://localhost:8080",
		"127.0.0.1:8080":      "http://localhost:8080",
		"127.0.0.2:8080":      "http://127.0.0.2:8080", // where localhost does not lead to
		"192.0.2.1:8080":      "http://192.0.2.1:8080",
		"[2001:db8::1]:8080":  "http://[2001:db8::1]:8080",
		"[fe80::1%eth0]:8080": "http://[fe80::1%25eth0]:8080",
	} {
		var printed strings.Builder
		TryThis(&printed, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listening)), "teapot")
		for _, got := range regexp.MustCompile(`http://[^/]*`).FindAllString(printed.String(), -1) {
			if got != want {
				t.Errorf("listening on %s, a line has %s, want %s", listening, got, want)
			}
		}
	}
}
