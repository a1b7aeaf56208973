//go:build unix

package main

import (
	"maps"
	"testing"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// searched is a name that says in which paths it is searched for.
const searched = "web.search.shop.cluster.local.ap.k8s.io"

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.autopath.suffix": func(t *testing.T) {
			wantChange(t, "dns: {autopath: {suffix: ''}}", "\t10.96.0.7\n", "REFUSED", searched)
			wantChange(t, "dns: {autopath: {suffix: paths.example}}", "REFUSED", "\t10.96.0.7\n", "web.search.shop.cluster.local.paths.example")
		},
		"dns.autopath.option": func(t *testing.T) {
			wantSearched(t, "", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearched(t, "option: 65432", autopath.DefaultOption, "shop.svc.cluster.local", false)
			wantSearched(t, "option: 65432", 65432, "shop.svc.cluster.local", true)
			wantSearched(t, "option: 0", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
		"dns.autopath.clients": func(t *testing.T) {
			wantSearched(t, "clients: [127.0.0.0/8]", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearched(t, "clients: [192.0.2.0/24]", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
		"dns.autopath.hostPaths": func(t *testing.T) {
			const other = "web.search.other.cluster.local.ap.k8s.io"
			wantChange(t, "dns: {autopath: {hostPaths: [shop.svc.cluster.local]}}", "NXDOMAIN", "\t10.96.0.7\n", other)
		},
		"dns.autopath.maxPaths": func(t *testing.T) {
			wantSearched(t, "maxPaths: 2", autopath.DefaultOption, "a,shop.svc.cluster.local", true)
			wantSearched(t, "maxPaths: 1", autopath.DefaultOption, "a,shop.svc.cluster.local", false)
		},
		"dns.autopath.maxOctets": func(t *testing.T) {
			wantSearched(t, "maxOctets: 22", autopath.DefaultOption, "shop.svc.cluster.local", true)
			wantSearched(t, "maxOctets: 21", autopath.DefaultOption, "shop.svc.cluster.local", false)
		},
	})
}

// wantSearched asks for web with an option, and reports whether it is found.
func wantSearched(t *testing.T, settings string, code dnswire.OptionCode, value string, found bool) {
	t.Helper()
	q := question("web.")
	q.Options = map[dnswire.OptionCode][]byte{code: []byte(value)}
	p := serveAny(t, "dns:\n  autopath: {"+settings+"}")
	if err := wantData(p.ask("udp", q), "10.96.0.7"); (err == nil) != found {
		t.Errorf("dns.autopath {%s}, option %d %q: %v, want found: %v", settings, code, value, err, found)
	}
}
