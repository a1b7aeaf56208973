package stubresolver

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/dnsconfig"
)

func TestMusl(t *testing.T) {
	long := strings.Repeat("l", 60)
	testTable(t, dnsconfig.Musl, map[string]lookup{
		"a short name is searched": {conf: pod, name: "web", world: world{"web.svc.k.": "A AAAA"},
			want: "web.shop.svc.k. [1A 1AAAA] no such name; web.svc.k. [1A 1AAAA] found; = found"},
		"it is tried as given last": {conf: "search x;nameserver 10.0.0.1", name: "web", qtype: "AAAA",
			want: "web.x. [1AAAA] no such name; web. [1AAAA] no such name; = no such name"},
		"ndots dots: as given, and no search": {conf: "search x;nameserver 10.0.0.1", name: "a.b", world: world{"a.b.x.": "A"},
			want: "a.b. [1A 1AAAA] no such name; = no such name"},
		"a closing dot": {conf: pod, name: "web.", world: world{"web.": "A"},
			want: "web. [1A 1AAAA] found; = found"},
		"NODATA ends the search": {conf: pod, name: "web", world: world{"web.shop.svc.k.": "nodata", "web.svc.k.": "A"},
			want: "web.shop.svc.k. [1A 1AAAA] no data; = no such name"},
		"NXDOMAIN for one type is enough": {conf: "search x;nameserver 10.0.0.1", name: "web", world: world{"web.x.": "A AAAA=nxdomain"},
			want: "web.x. [1A 1AAAA] no such name; web. [1A 1AAAA] no such name; = no such name"},
		"one of A and AAAA is enough": {conf: pod, name: "web", world: world{"web.shop.svc.k.": "AAAA"},
			want: "web.shop.svc.k. [1A 1AAAA] found; = found"},
		"all servers at once": {conf: two, name: "a.", world: world{"a.": "A"},
			want: "a. [1A 2A 1AAAA 2AAAA] found; = found"},
		"the first server to answer is right": {conf: two, name: "a", qtype: "A", world: world{"1/a.shop.svc.k.": "nodata", "2/a.shop.svc.k.": "A"},
			want: "a.shop.svc.k. [1A 2A] no data; = no such name"},
		"SERVFAIL is asked again at once, twice for each type": {conf: pod, name: "a.", qtype: "A", world: world{"a.": "servfail"},
			want: "a. [1A 1A 1A] [1A 1A 1A] try again; = try again"},
		"SERVFAIL for one type has the other's turns, too": {conf: pod, name: "a.", world: world{"a.": "A=servfail AAAA=nodata"},
			want: "a. [1A 1AAAA 1A 1A 1A 1A] [1A 1A 1A 1A 1A] try again; = try again"},
		"SERVFAIL for AAAA beside an A": {conf: pod + ";options attempts:1", name: "a.", world: world{"a.": "A AAAA=servfail"},
			want: "a. [1A 1AAAA 1AAAA 1AAAA 1AAAA 1AAAA] try again; = try again"},
		"SERVFAIL ends the search": {conf: "search x y;nameserver 10.0.0.1;options attempts:1", name: "a", qtype: "A", world: world{"a.x.": "servfail", "a.y.": "A"},
			want: "a.x. [1A 1A 1A] try again; = try again"},
		"another server answers": {conf: two, name: "a.", qtype: "A", world: world{"1/a.": "refused", "2/a.": "A"},
			want: "a. [1A 2A] found; = found"},
		"REFUSED is passed over": {conf: pod, name: "a", qtype: "A", world: world{"a.shop.svc.k.": "refused"},
			want: "a.shop.svc.k. [1A] [1A] try again; = try again"},
		"a timeout ends the search": {conf: pod + ";options attempts:3", name: "a", qtype: "A", world: world{"a.shop.svc.k.": "timeout"},
			want: "a.shop.svc.k. [1A] [1A] [1A] try again; = try again"},
		"what is answered is not asked again": {conf: pod, name: "a.", world: world{"a.": "A=timeout AAAA=nodata"},
			want: "a. [1A 1AAAA] [1A] try again; = try again"},
		"a lost A beside an AAAA": {conf: pod, name: "a.", world: world{"a.": "A=timeout AAAA"},
			want: "a. [1A 1AAAA] [1A] try again; = try again"},
		"nobody listens is a timeout": {conf: "search x", name: "a", qtype: "A", world: world{"a.x.": "closed"},
			want: "a.x. [1A] [1A] try again; = try again"},
		"an alias alone ends the search": {conf: pod, name: "ext", world: world{"ext.shop.svc.k.": "alias", "ext.svc.k.": "A"},
			want: "ext.shop.svc.k. [1A 1AAAA] no data; = no such name"},
		"truncated answers are taken": {conf: pod, name: "a.", qtype: "A", world: world{"a.": "A tc"},
			want: "a. [1A] found; = found"},
		"options of glibc change nothing": {conf: two + ";options rotate use-vc single-request no-aaaa edns0", name: "a.", world: world{"a.": "A"},
			want: "a. [1A 2A 1AAAA 2AAAA] found; = found"},
		"ndots that is no number is none": {conf: "search x;nameserver 10.0.0.1;options ndots:x", name: "a", qtype: "A", world: world{"a.x.": "A"},
			want: "a.x. [1A] found; = found"},
		"attempts 0 kills": {conf: pod + ";options attempts:0", name: "a",
			want: "a.shop.svc.k. (attempts is 0: musl divides by it, and the program is killed) crashed; = crashed"},
		"timeout 0 sends nothing": {conf: pod + ";options timeout:0", name: "a",
			want: "a.shop.svc.k. (timeout is 0: musl sends nothing) try again; = try again"},
		"attempts is at most 10": {conf: pod + ";options attempts:99", name: "a.", qtype: "A", world: world{"a.": "timeout"},
			want: "a." + strings.Repeat(" [1A]", 10) + " try again; = try again"},
		"the root as search domain: a malformed question": {conf: "search .;nameserver 10.0.0.1", name: "a", world: world{"a.": "A", "a..": "A"},
			want: "a.. [1A 1AAAA] [1A 1AAAA] try again; = try again"},
		"a search domain that is none ends the search": {conf: "search a..b x;nameserver 10.0.0.1", name: "a", world: world{"a.": "A"},
			want: "a.a..b. (the name has an empty label) no such name; = no such name"},
		"a search line that is too long is passed over": {conf: "search " + long + " " + long + " " + long + " " + long + " x yy;nameserver 10.0.0.1", name: "a", qtype: "A",
			want: "a. [1A] no such name; = no such name"},
		"the longest search line": {conf: "search " + long + " " + long + " " + long + " " + long + " x;nameserver 10.0.0.1;options ndots:1", name: "a", qtype: "A", world: world{"a." + long + ".": "A"},
			want: "a." + long + ". [1A] found; = found"},
		"an options line that is too long is passed over": {conf: "search x;nameserver 10.0.0.1;options ndots:5 " + long + " " + long + "1 " + long + "2 " + long + "3", name: "a.b", qtype: "A",
			want: "a.b. [1A] no such name; = no such name"},
		"no search domain: the hostname's is not searched": {conf: "nameserver 10.0.0.1", host: "a.b", name: "web", qtype: "A",
			want: "web. [1A] no such name; = no such name"},
		"an address": {conf: pod, name: "127.1", want: "= found"},
		"localhost":  {conf: pod, name: "localhost", want: "= found"},
		"nothing":    {conf: pod, name: "", want: "= no such name"},
		"the root":   {conf: pod, name: ".", want: "= no such name"},
		"two dots":   {conf: pod, name: "a..", want: "= no such name"},
		"an odd name is asked for": {conf: "nameserver 10.0.0.1", name: "a b", qtype: "A",
			want: "a b. [1A] no such name; = no such name"},
		"SRV is not searched": {conf: pod, name: "_http._tcp.web", qtype: "SRV", world: world{"_http._tcp.web.shop.svc.k.": "SRV"},
			want: "_http._tcp.web. [1SRV] no such name; = no such name"},
		"SRV: NODATA is told as such": {conf: pod, name: "a", qtype: "SRV", world: world{"a.": "nodata"},
			want: "a. [1SRV] no data; = no data"},
	})
}

// TestMuslLong checks that a candidate that is too long for musl's buffer is skipped,
// and that one that is too long for DNS only ends the search.
func TestMuslLong(t *testing.T) {
	label := strings.Repeat("l", 63)
	name := label + "." + label + "." + label + ".l" // 193 octets
	for claim, row := range map[string]struct {
		domain, skipped string
		tries           int
	}{
		"for the buffer": {strings.Repeat("d", 62), "the name is too long for musl's buffer", 2},
		"for DNS":        {strings.Repeat("d", 61), "the name is longer than 255 octets", 1},
	} {
		t.Run(claim, func(t *testing.T) {
			got := Resolve(Lookup{Libc: dnsconfig.Musl, Conf: conf(t, "search "+row.domain+";options ndots:5"), Name: name}, world{}.ask(nil))
			if len(got.Candidates) != row.tries || got.Candidates[0].Skipped != row.skipped || got.Outcome != NoSuchName {
				t.Errorf("%+v", got)
			}
		})
	}
}
