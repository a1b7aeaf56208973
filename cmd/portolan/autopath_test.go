//go:build unix

package main

import (
	"maps"
	"testing"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// searchedName is a name with the search path in its search domain.
const searchedName = "web.search.shop.cluster.local.ap.k8s.io"

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.autopath.suffix": func(t *testing.T) {
			wantChange(t, "dns: {autopath: {suffix: ''}}", "\t10.96.0.7\n", "REFUSED", searchedName)
			wantChange(t, "dns: {autopath: {suffix: paths.example}}", "REFUSED", "\t10.96.0.7\n", "web.search.shop.cluster.local.paths.example")
		},
		"dns.autopath.option": func(t *testing.T) {
			wantSearch(t, "", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearch(t, "option: 65432", autopath.DefaultOption, "shop.svc.cluster.local", false)
			wantSearch(t, "option: 65432", 65432, "shop.svc.cluster.local", true)
			wantSearch(t, "option: 0", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
		"dns.autopath.clients": func(t *testing.T) {
			wantSearch(t, "clients: [127.0.0.0/8]", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearch(t, "clients: [192.0.2.0/24]", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
		"dns.autopath.hostPaths": func(t *testing.T) {
			const other = "web.search.other.cluster.local.ap.k8s.io"
			wantChange(t, "dns: {autopath: {hostPaths: [shop.svc.cluster.local]}}", "NXDOMAIN", "\t10.96.0.7\n", other)
		},
		"dns.autopath.maxPaths": func(t *testing.T) {
			wantSearch(t, "maxPaths: 2", autopath.DefaultOption, "a,shop.svc.cluster.local", true)
			wantSearch(t, "maxPaths: 1", autopath.DefaultOption, "a,shop.svc.cluster.local", false)
		},
		"dns.autopath.maxOctets": func(t *testing.T) {
			wantSearch(t, "maxOctets: 22", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearch(t, "maxOctets: 21", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
	})
}

// wantSearch queries web with an option and checks whether the search path finds it.
func wantSearch(t *testing.T, settings string, code dnswire.OptionCode, value string, found bool) {
	t.Helper()
	q := question("web.")
	q.Options = map[dnswire.OptionCode][]byte{code: []byte(value)}
	p := serveUnchecked(t, "dns:\n  autopath: {"+settings+"}")
	if err := wantData(p.ask("udp", q), "10.96.0.7"); (err == nil) != found {
		t.Errorf("dns.autopath {%s}, option %d %q: %v, want found: %v", settings, code, value, err, found)
	}
}
