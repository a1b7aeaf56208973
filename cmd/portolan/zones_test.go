package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Effects of the keys of zones beside the cluster's.
func init() {
	const local = "dns: {localZones: [{zone: corp.example, records: 'www A 192.0.2.1', ttl: 7}]}"
	external := func(sources string) string {
		return "dns: {external: {zones: [out.example], sources: [" + sources + "], addresses: [192.0.2.53]}}"
	}
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.multicluster": func(t *testing.T) {
			const setting = "dns: {multicluster: clusterset.local}"
			wantPrinted(t, setting, "\t28800\tIN\tTXT\t\"1.0.0\"", "dns-version.clusterset.local", "TXT")
			wantPrinted(t, "", "REFUSED", "dns-version.clusterset.local", "TXT")
		},
		"dns.external.zones": func(t *testing.T) {
			wantPrinted(t, external("service"), "NXDOMAIN", "web.shop.out.example")
			wantPrinted(t, "", "REFUSED", "web.shop.out.example")
		},
		"dns.external.sources": func(t *testing.T) {
			wantPrinted(t, external("service, ingress, gateway"), "status: NOERROR", "out.example")
		},
		"dns.external.addresses": func(t *testing.T) {
			wantPrinted(t, external("service"), "\tA\t192.0.2.53\n", "ns.dns.out.example")
		},
		"dns.localZones.zone":    func(t *testing.T) { wantPrinted(t, local, "\tA\t192.0.2.1\n", "www.corp.example") },
		"dns.localZones.records": func(t *testing.T) { wantPrinted(t, local, "NXDOMAIN", "none.corp.example") },
		"dns.localZones.ttl":     func(t *testing.T) { wantPrinted(t, local, "www.corp.example.\t7\tIN\tA", "www.corp.example") },
		"dns.localZones.file":    effectOfZoneFile,
		"dns.views.clients": func(t *testing.T) {
			p := serveUnchecked(t, "dns: {views: [{clients: [192.0.2.0/24], zones: [in-addr.arpa]}]}")
			wantAnswer(t, p, web, "10.96.0.7")
		},
		"dns.views.zones": func(t *testing.T) {
			p := serveUnchecked(t, "dns: {views: [{clients: [127.0.0.0/8], zones: [in-addr.arpa]}]}")
			wantAnswer(t, p, web, "status: REFUSED")
		},
		"dns.views.forward": func(t *testing.T) {
			p := serveUnchecked(t, "dns: {views: [{clients: [127.0.0.0/8], forward: true}], forward: {routes: [{upstreams: ['127.0.0.1:1']}]}}")
			wantAnswer(t, p, "www.example.net", "status: SERVFAIL")
			p = serveUnchecked(t, "dns: {views: [{clients: [127.0.0.0/8]}], forward: {routes: [{upstreams: ['127.0.0.1:1']}]}}")
			wantAnswer(t, p, "www.example.net", "status: REFUSED")
		},
		"dns.suppress.types": func(t *testing.T) {
			p := suppressing(t, "{types: [A]}")
			wantAnswer(t, p, "www.example.net", "not given for names outside")
		},
		"dns.suppress.names": func(t *testing.T) {
			p := suppressing(t, "{types: [A], names: [example.net]}")
			wantAnswer(t, p, "www.example.net", "status: NOERROR")
			wantAnswer(t, p, "www.example.org", "status: SERVFAIL")
		},
		"dns.suppress.clients": func(t *testing.T) {
			p := suppressing(t, "{types: [A], clients: [192.0.2.0/24]}")
			wantAnswer(t, p, "www.example.net", "status: SERVFAIL")
		},
	})
}

// suppressing starts a server with a rule of dns.suppress and an upstream that does not
// answer.
func suppressing(t *testing.T, rule string) *process {
	t.Helper()
	return serve(t, "dns: {suppress: ["+rule+"], forward: {routes: [{upstreams: ['127.0.0.1:1']}]}}")
}

// effectOfZoneFile checks that a zone's file is read again when it changes, and that a
// broken one is logged with its line and changes nothing.
func effectOfZoneFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "corp.zone")
	put := func(records string) {
		write(t, file+".new", "@ SOA ns admin 1 3600 600 86400 60\n"+records)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put("www A 192.0.2.1\n")
	p := serve(t, "dns: {localZones: [{zone: corp.example, file: "+file+"}]}")
	wantAnswer(t, p, "www.corp.example", "\t192.0.2.1\n")
	put("www A 192.0.2.300\n")
	p.waitLog(`cannot use a zone's file.*corp.zone:2: A record`)
	wantAnswer(t, p, "www.corp.example", "\t192.0.2.1\n")
	if _, body := p.admin("/readyz?verbose"); !strings.Contains(body, "corp.zone:2: A record") {
		t.Errorf("/readyz?verbose = %q, want the error", body)
	}
	put("www A 192.0.2.2\n")
	p.await(patience, "www.corp.example", "192.0.2.2")
}
