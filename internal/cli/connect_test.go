package cli

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/peer"
)

// TestParseDestination checks what a destination stands for, and that a protocol needs a port.
func TestParseDestination(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.96.0.10":        "10.96.0.10",
		"10.96.0.10:53/udp": "10.96.0.10:53/udp",
		"10.96.0.10:53/UDP": "10.96.0.10:53/udp",
		"shop/web":          "web.shop",
		"shop/web:80":       "web.shop:80/tcp",
		"shop/web:80/sctp":  "web.shop:80/sctp",
		"shop/udp:80":       "udp.shop:80/tcp",
	} {
		got, err := parseDestination(text)
		if err != nil || got.String() != want {
			t.Errorf("parseDestination(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"10.96.0.10/udp", "10.96.0.10/UDP", "10.96.0.10/udp:53", "fd00::1/sctp", "[fd00::1]/tcp", "10.96.0.10/web",
		"web.shop/udp", "web/tcp", "shop/web/udp",
	} {
		const want = "has no port, which a protocol needs, as in ADDRESS:PORT/udp"
		if got, err := parseDestination(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDestination(%q) = %v, %v, want an error that says that it %s", text, got, err, want)
		}
		if _, _, err := peer.ParseTarget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseTarget(%q) = %v, want an error that says that it %s", text, err, want)
		}
	}
	for _, name := range []string{"web", "web.shop", "0/25.2.0.192.in-addr.arpa", "http://10.96.0.10/udp", "fd00::1"} {
		if _, ok, err := peer.ParseTarget(name); ok || err != nil {
			t.Errorf("parseTarget(%q) = %v, %v, want a name", name, ok, err)
		}
	}
}
