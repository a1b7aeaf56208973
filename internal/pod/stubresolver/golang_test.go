package stubresolver

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/dnsconfig"
)

func TestGolang(t *testing.T) {
	testTable(t, dnsconfig.GoResolver, map[string]lookup{
		"a short name is searched": {conf: pod, name: "web", world: world{"web.svc.k.": "A"},
			want: "web.shop.svc.k. [1A 1AAAA] no such name; web.svc.k. [1A 1AAAA] found; = found"},
		"ndots dots: as given first, then the search": {conf: "search x;nameserver 10.0.0.1", name: "a.b", qtype: "A", world: world{"a.b.x.": "A"},
			want: "a.b. [1A] no such name; a.b.x. [1A] found; = found"},
		"a closing dot is not searched": {conf: pod, name: "web.", qtype: "A",
			want: "web. [1A] no such name; = no such name"},
		"NODATA goes on, and is no such name": {conf: "search x;nameserver 10.0.0.1", name: "web", qtype: "A", world: world{"web.x.": "nodata"},
			want: "web.x. [1A] no such name; web. [1A] no such name; = no such name"},
		"an alias alone goes on": {conf: "search x y;nameserver 10.0.0.1", name: "web", qtype: "A", world: world{"web.x.": "alias", "web.y.": "A"},
			want: "web.x. [1A] no such name; web.y. [1A] found; = found"},
		"SERVFAIL: all servers, attempts times, and it goes on": {conf: two, name: "a", qtype: "A", world: world{"a.shop.svc.k.": "servfail", "a.svc.k.": "A"},
			want: "a.shop.svc.k. [1A 2A 1A 2A] try again; a.svc.k. [1A] found; = found"},
		"a timeout goes on, too": {conf: "search x;nameserver 10.0.0.1", name: "a", qtype: "A", world: world{"a.x.": "timeout", "a.": "A"},
			want: "a.x. [1A 1A] try again; a. [1A] found; = found"},
		"the result for the name as given counts": {conf: "search x;nameserver 10.0.0.1", name: "a", qtype: "A", world: world{"a.x.": "servfail"},
			want: "a.x. [1A 1A] try again; a. [1A] no such name; = no such name"},
		"of the last candidate for other types": {conf: "search x;nameserver 10.0.0.1", name: "a.b", qtype: "SRV", world: world{"a.b.x.": "servfail"},
			want: "a.b. [1SRV] no such name; a.b.x. [1SRV 1SRV] try again; = try again"},
		"REFUSED is a failure": {conf: "nameserver 10.0.0.1", name: "a.", qtype: "A", world: world{"a.": "refused"},
			want: "a. [1A 1A] failed; = failed"},
		"SERVFAIL for one of A and AAAA": {conf: pod, name: "a.", world: world{"a.": "A AAAA=servfail"},
			want: "a. [1A 1AAAA 1AAAA] found; = found"},
		"single-request: AAAA after A": {conf: pod + ";options single-request", name: "a.", world: world{"a.": "A AAAA"},
			want: "a. [1A] [1AAAA] found; = found"},
		"use-vc": {conf: pod + ";options use-vc", name: "a.", world: world{"a.": "A"},
			want: "a. [1tA 1tAAAA] found; = found"},
		"truncated: again over TCP": {conf: pod, name: "a.", world: world{"a.": "A=A A=tc AAAA"},
			want: "a. [1A 1tA 1AAAA] found; = found"},
		"rotate": {conf: two + ";options rotate", name: "a.", world: world{"a.": "A"},
			want: "a. [1A 2AAAA] found; = found"},
		"attempts 0 is 1": {conf: pod + ";options attempts:0", name: "a.", qtype: "A", world: world{"a.": "servfail"},
			want: "a. [1A] try again; = try again"},
		"no server: both loopbacks": {conf: "options attempts:1", name: "a.", qtype: "A", world: world{"a.": "closed"},
			want: "a. [1A 2A] try again; = try again"},
		"the root as search domain is passed over": {conf: "search . x;nameserver 10.0.0.1", name: "a", qtype: "A",
			want: "a.x. [1A] no such name; a. [1A] no such name; = no such name"},
		"only the root: the hostname's domain": {conf: "search .;nameserver 10.0.0.1", host: "a.b.c", name: "web", qtype: "A",
			want: "web.b.c. [1A] no such name; web. [1A] no such name; = no such name"},
		"a search domain that is none is passed over": {conf: "search a..b;nameserver 10.0.0.1", name: "a", qtype: "A", world: world{"a.": "A"},
			want: "a.a..b. (the name has an empty label) failed; a. [1A] found; = found"},
		"names below onion are not asked for": {conf: "search x;nameserver 10.0.0.1", name: "a.onion", qtype: "A",
			want: "a.onion. (Go does not ask for names below onion (RFC 7686)) not tried; a.onion.x. [1A] no such name; = no such name"},
		"an address":                     {conf: pod, name: "10.0.0.1", want: "= found"},
		"an address as C spells it":      {conf: pod, name: "127.1", want: "= no such name"},
		"an address of the other family": {conf: pod, name: "::1", qtype: "A", want: "= no such name"},
		"localhost":                      {conf: pod, name: "localhost", want: "= found"},
		"no domain name":                 {conf: pod, name: "a-.b", want: "= no such name"},
		"only digits":                    {conf: pod, name: "1.2.3.4.5.6", want: "= no such name"},
		"nothing":                        {conf: pod, name: "", want: "= no such name"},
		"underscores are fine":           {conf: "nameserver 10.0.0.1", name: "_a", qtype: "A", want: "_a. [1A] no such name; = no such name"},
	})
}

// TestGolangLong checks that a candidate that is too long is skipped.
func TestGolangLong(t *testing.T) {
	label := strings.Repeat("l", 63)
	name := label + "." + label + "." + label + ".l" // 193 octets
	domain := strings.Repeat("d", 60)
	got := Resolve(Lookup{Libc: dnsconfig.GoResolver, Conf: conf(t, "search "+domain+";options ndots:5"), Name: name}, world{}.ask(nil))
	if len(got.Candidates) != 2 || got.Candidates[0].Skipped == "" || len(got.Candidates[1].Rounds) != 1 || got.Outcome != NoSuchName {
		t.Errorf("%+v", got)
	}
}

func TestWindows(t *testing.T) {
	testTable(t, dnsconfig.WindowsClient, map[string]lookup{
		"a short name gets the only suffix": {conf: pod, name: "web", world: world{"web.shop.svc.k.": "A"},
			want: "web.shop.svc.k. [1A 1AAAA] found; = found"},
		"and no other": {conf: pod, name: "web", world: world{"web.svc.k.": "A"},
			want: "web.shop.svc.k. [1A 1AAAA] no such name; = no such name"},
		"a name with a dot is complete": {conf: pod, name: "web.shop", world: world{"web.shop.svc.k.": "A"},
			want: "web.shop. [1A 1AAAA] no such name; = no such name"},
		"a complete name":     {conf: pod, name: "web.shop.svc.k", qtype: "A", world: world{"web.shop.svc.k.": "A"}, want: "web.shop.svc.k. [1A] found; = found"},
		"a closing dot":       {conf: pod, name: "web.", qtype: "A", want: "web. [1A] no such name; = no such name"},
		"no suffix":           {conf: "nameserver 10.0.0.1", name: "web", qtype: "A", want: "web. [1A] no such name; = no such name"},
		"the next server":     {conf: two, name: "a.", qtype: "A", world: world{"1/a.": "timeout", "2/a.": "nodata"}, want: "a. [1A] [2A] no data; = no data"},
		"truncated":           {conf: pod, name: "a.", qtype: "A", world: world{"a.": "A tc"}, want: "a. [1A 1tA] found; = found"},
		"no server":           {conf: "search x", name: "web", want: "= try again"},
		"an address":          {conf: pod, name: "10.0.0.1", want: "= found"},
		"a name that is none": {conf: pod, name: "a..b", want: "a..b. (the name has an empty label) no such name; = no such name"},
	})
}
