package table_test

import (
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

// TestLocation has what the tests of the proxy, which has the rules of HTTPRequestRedirectFilter, lack.
func TestLocation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		redirect table.Redirect
		from     table.Target
		want     string
	}{
		"an IPv6 address": {
			table.Redirect{Scheme: "https"},
			table.Target{Scheme: "http", Host: "fd00::1", Port: 80, Path: "/a"}, "https://[fd00::1]/a",
		},
		"an IPv6 address and a port": {
			table.Redirect{Port: 8443},
			table.Target{Scheme: "https", Host: "fd00::1", Port: 443, Path: "/a"}, "https://[fd00::1]:8443/a",
		},
		"an encoded path": {
			table.Redirect{Host: "b.test"},
			table.Target{Scheme: "http", Host: "a.test", Port: 80, Path: "/a%2Fb", Query: "c=%20"},
			"http://b.test/a%2Fb?c=%20",
		},
		"a path that is encoded wrongly": {
			table.Redirect{Path: &table.PathChange{To: "/100%"}},
			table.Target{Scheme: "http", Host: "a.test", Port: 80, Path: "/"}, "http://a.test/100%25",
		},
	}
	for claim, test := range tests {
		if got := test.redirect.Location(&test.from, &table.Match{}); got != test.want {
			t.Errorf("%s: Location(%+v) = %s, want %s", claim, test.from, got, test.want)
		}
	}
}
