package dnsconfig

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// nodeConf parses the text of a node's resolv.conf.
func nodeConf(t *testing.T, text string) *resolvconf.Config {
	t.Helper()
	config, problems := ParseNode(text)
	if len(problems) > 0 {
		t.Fatalf("ParseNode(%q) finds %v", text, problems)
	}
	return &config
}

// node returns the node of the KEP's examples, with addresses.
func node(t *testing.T) NodeSettings {
	t.Helper()
	return NodeSettings{
		ClusterDomain: "cluster.local",
		ClusterDNS:    podrand.Addrs("10.0.0.10"),
		ResolvConf:    nodeConf(t, "nameserver 10.1.1.10\nsearch foo.com\noptions ndots:1\n"),
		Addrs:         podrand.Addrs("192.0.2.7"),
		Hostname:      "node-1",
	}
}

// options parses options such as "ndots:5" or "edns0".
func options(texts ...string) []resolvconf.Option {
	var list []resolvconf.Option
	for _, text := range texts {
		name, value, _ := strings.Cut(text, ":")
		list = append(list, resolvconf.Option{Name: name, Value: value})
	}
	return list
}

// TestPublishedExamples checks the examples in the documentation, byte for byte.
func TestPublishedExamples(t *testing.T) {
	custom := &DNSConfig{
		Nameservers: []string{"1.2.3.4"},
		Searches:    []string{"ns1.svc.cluster.local", "my.dns.search.suffix"},
		Options:     options("ndots:2", "edns0"),
	}
	example := &DNSConfig{
		Nameservers: []string{"192.0.2.1"},
		Searches:    []string{"ns1.svc.cluster-domain.example", "my.dns.search.suffix"},
		Options:     options("ndots:2", "edns0"),
	}
	plain := NodeSettings{ClusterDomain: "cluster.local", ClusterDNS: podrand.Addrs("10.32.0.10"), ResolvConf: &resolvconf.Config{}}
	tests := map[string]struct {
		pod  PodSettings
		node NodeSettings
		want string
	}{
		"KEP: override DNS server and search paths": {
			PodSettings{Namespace: "ns1", Name: "example", Policy: Custom, DNSConfig: custom}, node(t),
			"nameserver 1.2.3.4\nsearch ns1.svc.cluster.local my.dns.search.suffix\noptions ndots:2 edns0\n"},
		"KEP: the same with the policy's present name": {
			PodSettings{Namespace: "ns1", Name: "example", Policy: None, DNSConfig: custom}, node(t),
			"nameserver 1.2.3.4\nsearch ns1.svc.cluster.local my.dns.search.suffix\noptions ndots:2 edns0\n"},
		"KEP: overriding ndots": {
			PodSettings{Policy: ClusterFirst, DNSConfig: &DNSConfig{Options: options("ndots:1")}}, node(t),
			"nameserver 10.0.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local foo.com\noptions ndots:1\n"},
		"KEP: the host's": {
			PodSettings{Policy: Default}, node(t),
			"nameserver 10.1.1.10\nsearch foo.com\noptions ndots:1\n"},
		"DNS page: namespaces of Services": {
			PodSettings{Namespace: "test"}, plain,
			"nameserver 10.32.0.10\nsearch test.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"},
		"DNS page: dns-example": {
			PodSettings{Namespace: "default", Name: "dns-example", Policy: None, DNSConfig: example}, node(t),
			"nameserver 192.0.2.1\nsearch ns1.svc.cluster-domain.example my.dns.search.suffix\noptions ndots:2 edns0\n"},
		"DNS page: IPv6 setup": {
			PodSettings{Namespace: "default", Name: "dns-example"},
			NodeSettings{ClusterDomain: "cluster-domain.example", ClusterDNS: podrand.Addrs("2001:db8:30::a"), ResolvConf: &resolvconf.Config{}},
			"nameserver 2001:db8:30::a\nsearch default.svc.cluster-domain.example svc.cluster-domain.example cluster-domain.example\noptions ndots:5\n"},
		"DNS page: busybox with ClusterFirstWithHostNet": {
			PodSettings{Namespace: "default", Name: "busybox", HostNetwork: true, Policy: ClusterFirstWithHostNet}, plain,
			"nameserver 10.32.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"},
		"KEP DNS Autopath: the search path": {
			PodSettings{Namespace: "ns1", Policy: "clusterFirstWithAutopath"}, node(t),
			"nameserver 10.0.0.10\nsearch search.ns1.cluster.local.ap.k8s.io\noptions ndots:5\n"},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			if got := Resolve(test.pod, test.node).Config.String(); got != test.want {
				t.Errorf("Resolve(%+v) = %q, want %q", test.pod, got, test.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	bare := NodeSettings{ClusterDomain: "cluster.local", ClusterDNS: podrand.Addrs("10.0.0.10", "fd00::a")}
	tests := map[string]struct {
		pod    PodSettings
		node   NodeSettings
		policy DNSPolicy
		want   string
	}{
		"no policy is ClusterFirst": {
			PodSettings{Namespace: "shop"}, node(t), ClusterFirst,
			"nameserver 10.0.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local foo.com\noptions ndots:5\n"},
		"addresses of both families, no resolv.conf": {
			PodSettings{Namespace: "shop"}, bare, ClusterFirst,
			"nameserver 10.0.0.10\nnameserver fd00::a\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"},
		"ClusterFirst in the node's network is Default": {
			PodSettings{HostNetwork: true, Policy: ClusterFirst}, node(t), Default,
			"nameserver 10.1.1.10\nsearch foo.com\noptions ndots:1\n"},
		"ClusterFirstWithAutopath in the node's network is Default": {
			PodSettings{HostNetwork: true, Policy: ClusterFirstWithAutopath}, node(t), Default,
			"nameserver 10.1.1.10\nsearch foo.com\noptions ndots:1\n"},
		"ClusterFirstWithHostNet outside it": {
			PodSettings{Policy: ClusterFirstWithHostNet}, node(t), ClusterFirstWithHostNet,
			"nameserver 10.0.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local foo.com\noptions ndots:5\n"},
		"ClusterFirst without the cluster's DNS is Default": {
			PodSettings{}, NodeSettings{ClusterDomain: "cluster.local", ResolvConf: node(t).ResolvConf}, Default,
			"nameserver 10.1.1.10\nsearch foo.com\noptions ndots:1\n"},
		"without a cluster domain only the node's domains are searched": {
			PodSettings{}, NodeSettings{ClusterDNS: podrand.Addrs("10.0.0.10"), ResolvConf: node(t).ResolvConf}, ClusterFirst,
			"nameserver 10.0.0.10\nsearch foo.com\noptions ndots:5\n"},
		"Default without a resolv.conf is a loopback, and the root": {
			PodSettings{Policy: Default}, bare, Default, "nameserver 127.0.0.1\nsearch .\n"},
		"a loopback of each of the node's families": {
			PodSettings{Policy: Default}, NodeSettings{Addrs: podrand.Addrs("192.0.2.7", "2001:db8::7")}, Default,
			"nameserver 127.0.0.1\nnameserver ::1\nsearch .\n"},
		"None without a dnsConfig is empty": {PodSettings{Policy: None}, node(t), None, ""},
		"an unknown policy is ClusterFirst, also in the node's network": {
			PodSettings{Policy: "Nearest", HostNetwork: true}, node(t), ClusterFirst,
			"nameserver 10.0.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local foo.com\noptions ndots:5\n"},
		"a Windows Pod": {
			PodSettings{OS: Windows, Namespace: "shop"}, bare, ClusterFirst,
			"nameserver 10.0.0.10\nnameserver fd00::a\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"},
		"dnsConfig goes to the end, without duplicates": {
			PodSettings{DNSConfig: &DNSConfig{
				Nameservers: []string{"192.0.2.1", "10.0.0.10", "192.0.2.1", "192.0.2.2"},
				Searches:    []string{"cluster.local", "b.example", "a.example", "b.example", "foo.com", "foo.com."},
			}}, node(t), ClusterFirst,
			"nameserver 10.0.0.10\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n" +
				"search default.svc.cluster.local svc.cluster.local cluster.local foo.com b.example a.example foo.com.\noptions ndots:5\n"},
		"an option replaces that of its name, in its place": {
			PodSettings{Policy: Default, DNSConfig: &DNSConfig{Options: options("edns0", "ndots:3", "timeout:1", "ndots:2", "rotate")}},
			NodeSettings{ResolvConf: nodeConf(t, "nameserver ::1\noptions rotate ndots:1 attempts:4\n")}, Default,
			"nameserver ::1\noptions rotate ndots:2 attempts:4 edns0 timeout:1\n"},
		"an option may lose its value": {
			PodSettings{DNSConfig: &DNSConfig{Options: options("ndots")}}, NodeSettings{ClusterDNS: podrand.Addrs("10.0.0.10")}, ClusterFirst,
			"nameserver 10.0.0.10\noptions ndots\n"},
		"a value within the name is the option's": {
			PodSettings{DNSConfig: &DNSConfig{Options: []resolvconf.Option{{Name: "ndots:2"}, {Name: "a:b", Value: "c"}}}},
			NodeSettings{ClusterDNS: podrand.Addrs("10.0.0.10")}, ClusterFirst,
			"nameserver 10.0.0.10\noptions ndots:2 a:b:c\n"},
		"what has no place in a resolv.conf is left out": {
			PodSettings{Policy: None, DNSConfig: &DNSConfig{
				Nameservers: []string{"dns.example", "::1"}, Searches: []string{"a b", "c", ""},
				Options: []resolvconf.Option{{Name: "x", Value: "1\nnameserver 192.0.2.66"}, {Name: ""}, {Name: "rotate"}},
			}}, node(t), None, "nameserver ::1\nsearch c\noptions rotate\n"},
		"the node's root and closing dots go, the Pod's stay": {
			PodSettings{Policy: Default, DNSConfig: &DNSConfig{Searches: []string{".", "c."}}},
			NodeSettings{ResolvConf: &resolvconf.Config{Searches: []string{"a.", ".", "b"}}}, Default, "search a b . c.\n"},
		"Default alone keeps duplicates": {
			PodSettings{Policy: Default}, NodeSettings{ResolvConf: nodeConf(t, "nameserver ::1\nnameserver ::1\nsearch a a.\n")}, Default,
			"nameserver ::1\nnameserver ::1\nsearch a a\n"},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			got := Resolve(test.pod, test.node)
			if text := got.Config.String(); text != test.want || got.Policy != test.policy {
				t.Errorf("Resolve(%+v) = %q of %s, want %q of %s", test.pod, text, got.Policy, test.want, test.policy)
			}
		})
	}
}

func TestParseNode(t *testing.T) {
	tests := map[string]struct {
		text     string
		want     string
		problems int
	}{
		"as resolvers read it":            {"# by hand\nnameserver 10.1.1.10\nsearch a b\noptions ndots:1 rotate\noptions ndots:2\n", "nameserver 10.1.1.10\nsearch a b\noptions ndots:2 rotate\n", 0},
		"domain lines do not count":       {"search a b\ndomain c\n", "search a b\n", 0},
		"an empty search line empties it": {"search a b\nsearch\n", "", 0},
		"closing dots and the root go":    {"search a. . b\n", "search a b\n", 0},
		"keywords may be indented":        {"  nameserver ::1\n\tsearch a\r\n", "nameserver ::1\nsearch a\n", 0},
		"a nameserver needs an address":   {"nameserver\nnameserver ::1\n", "nameserver ::1\n", 1},
		"nothing":                         {"", "", 0},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			got, problems := ParseNode(test.text)
			if got.String() != test.want || len(problems) != test.problems {
				t.Errorf("ParseNode(%q) = %q, %v, want %q and %d problems", test.text, got, problems, test.want, test.problems)
			}
		})
	}
}

// names returns n search domains of length octets each.
func names(n, length int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Repeat("x", length-3) + string([]byte{'.', 'a' + byte(i/26), 'a' + byte(i%26)})
	}
	return list
}

func TestWarnings(t *testing.T) {
	none := func(c DNSConfig) PodSettings {
		if c.Nameservers == nil {
			c.Nameservers = []string{"192.0.2.1"}
		}
		return PodSettings{Policy: None, DNSConfig: &c, Libc: GoResolver}
	}
	withLibc := func(p PodSettings, l Libc) PodSettings { p.Libc = l; return p }
	windows := func(p PodSettings) PodSettings { p.OS = Windows; return p }
	const (
		pending = `spec.dnsConfig.searches: 7 search domains: with containerd 1.5.5 and earlier, or CRI-O 1.21 and earlier, a Pod with more than 6 may stay pending`
		first6  = `spec.dnsConfig.searches: 7 search domains: glibc 2.25 and earlier searches only the first 6`
	)
	tests := map[string]struct {
		pod  PodSettings
		node NodeSettings
		want []string // preceded by the reason
	}{
		"an ordinary Pod has none": {PodSettings{}, node(t), nil},
		"Custom":                   {PodSettings{Policy: Custom}, node(t), []string{` spec.dnsPolicy: the API server does not accept Custom: the policy is called None since Kubernetes 1.9`}},
		"ClusterFirstWithAutopath": {PodSettings{Policy: ClusterFirstWithAutopath}, node(t), []string{` spec.dnsPolicy: the API server does not accept ClusterFirstWithAutopath: use None, and as dnsConfig the settings that the Pod gets here`}},
		"hostNetwork, in a template": {PodSettings{HostNetwork: true, Path: "spec.template.spec"}, node(t), []string{
			` spec.template.spec.dnsPolicy: with hostNetwork, ClusterFirst acts as Default: ClusterFirstWithHostNet uses the cluster DNS`}},
		"an unknown policy": {PodSettings{Policy: "Nearest"}, node(t), []string{` spec.dnsPolicy: unknown policy "Nearest": the kubelet treats it as ClusterFirst`}},
		"no cluster DNS":    {PodSettings{}, NodeSettings{ClusterDomain: "cluster.local"}, []string{`MissingClusterDNS spec.dnsPolicy: the kubelet has no clusterDNS: ClusterFirst acts as Default`}},
		"no cluster domain": {PodSettings{}, NodeSettings{ClusterDNS: podrand.Addrs("::1")}, []string{` spec.dnsPolicy: the kubelet has no clusterDomain: short names of Services do not resolve`}},
		"Windows: ClusterFirstWithHostNet, and one domain": {PodSettings{OS: Windows, Policy: ClusterFirstWithHostNet, HostNetwork: true}, node(t), []string{
			` spec.dnsPolicy: ClusterFirstWithHostNet is not supported for Windows Pods`,
			` Windows uses only one search domain, "default.svc.cluster.local": names in other domains must be fully qualified`}},
		"Windows: no options, no older limits": {windows(none(DNSConfig{Searches: names(7, 60), Options: options("ndots:2")})), node(t), []string{
			` spec.dnsConfig.options[0]: option "ndots" has no effect: Windows does not support it`,
			` spec.dnsConfig.searches: Windows uses only one search domain, "` + names(1, 60)[0] + `": names in other domains must be fully qualified`}},
		"three nameservers": {none(DNSConfig{Nameservers: []string{"::1", "::2", "::3"}}), node(t), nil},
		"a fourth nameserver": {PodSettings{DNSConfig: &DNSConfig{Nameservers: []string{"::1", "::2", "::3"}}}, node(t), []string{
			`DNSConfigForming spec.dnsConfig.nameservers: 1 nameserver is left out, from "::3" on: a Pod has at most 3`}},
		"a node's nameservers": {PodSettings{Policy: Default}, NodeSettings{ResolvConf: &resolvconf.Config{Nameservers: podrand.Addrs("::1", "::2", "::3", "::4", "::5")}}, []string{
			`DNSConfigForming 2 nameservers are left out, from "::4" on: a Pod has at most 3`}},
		"six search domains": {none(DNSConfig{Searches: names(6, 10)}), node(t), nil},
		"a seventh":          {none(DNSConfig{Searches: names(7, 10)}), node(t), []string{" " + pending}},
		"a seventh, glibc":   {withLibc(none(DNSConfig{Searches: names(7, 10)}), Glibc), node(t), []string{" " + first6, " " + pending}},
		"a seventh, any":     {withLibc(none(DNSConfig{Searches: names(7, 10)}), LibcUnknown), node(t), []string{" " + first6, " " + pending}},
		"a seventh, musl":    {withLibc(none(DNSConfig{Searches: names(7, 10)}), Musl), node(t), []string{" " + pending}},
		"256 characters":     {withLibc(none(DNSConfig{Searches: append(names(1, 128), names(2, 127)[1])}), Glibc), node(t), nil},
		"257 characters": {withLibc(none(DNSConfig{Searches: names(2, 128)}), Glibc), node(t), []string{
			` spec.dnsConfig.searches: search domains of 257 characters: glibc 2.25 and earlier takes only the first 256`}},
		"a line that musl reads": {withLibc(none(DNSConfig{Searches: names(2, 123)}), Musl), node(t), nil},
		"a line that musl passes over": {withLibc(none(DNSConfig{Searches: append(names(1, 123), names(2, 124)[1])}), Musl), node(t), []string{
			` spec.dnsConfig.searches: the search line has 255 characters: musl ignores lines of more than 254, so it uses no search domains`}},
		"a 33rd search domain": {PodSettings{Libc: GoResolver, DNSConfig: &DNSConfig{Searches: names(29, 10)}}, node(t), []string{
			`DNSConfigForming spec.dnsConfig.searches: 1 search domain is left out, from "xxxxxxx.bc" on: a Pod has at most 32`,
			strings.Replace(" "+pending, " 7 ", " 32 ", 1)}},
		"a node's 33rd": {PodSettings{Libc: GoResolver}, NodeSettings{ClusterDNS: podrand.Addrs("::1"), ClusterDomain: "z", ResolvConf: &resolvconf.Config{Searches: names(31, 10)}}, []string{
			`DNSConfigForming 2 search domains are left out, from "xxxxxxx.bd" on: a Pod has at most 32`,
			strings.TrimPrefix(strings.Replace(pending, " 7 ", " 32 ", 1), "spec.dnsConfig.searches:")}},
		"253 characters in one": {none(DNSConfig{Searches: names(1, 253)}), node(t), nil},
		"254 characters in one": {none(DNSConfig{Searches: append(names(1, 254), "a")}), node(t), []string{
			`DNSConfigForming spec.dnsConfig.searches: 1 search domain is left out, the first begins "` + strings.Repeat("x", 64) + `": one has at most 253 characters`}},
		"2,048 characters": {none(DNSConfig{Searches: append(names(8, 227), names(9, 224)[8])}), node(t), []string{strings.Replace(" "+pending, " 7 ", " 9 ", 1)}},
		"2,049 characters": {none(DNSConfig{Searches: append(names(8, 227), names(9, 225)[8])}), node(t), []string{
			`DNSConfigForming spec.dnsConfig.searches: 1 search domain is left out, from "` + strings.Repeat("x", 64) + `" on: together they have at most 2048 characters`,
			strings.Replace(" "+pending, " 7 ", " 8 ", 1)}},
		"an option of no resolver":    {withLibc(none(DNSConfig{Options: options("ndots:2", "nocache")}), LibcUnknown), node(t), []string{` spec.dnsConfig.options[1]: option "nocache" has no effect: no known resolver supports it`}},
		"an option that musl lacks":   {withLibc(none(DNSConfig{Options: options("timeout:1", "single-request-reopen")}), Musl), node(t), []string{` spec.dnsConfig.options[1]: option "single-request-reopen" has no effect: musl does not support it`}},
		"an option that glibc lacks":  {withLibc(none(DNSConfig{Options: options("rotate", "tcp")}), Glibc), node(t), []string{` spec.dnsConfig.options[1]: option "tcp" has no effect: glibc does not support it`}},
		"an option that glibc had":    {withLibc(none(DNSConfig{Options: options("no-aaaa", "inet6")}), Glibc), node(t), []string{` spec.dnsConfig.options[1]: option "inet6" has no effect: glibc does not support it`}},
		"an option that Go lacks":     {none(DNSConfig{Options: options("rotate", "no-aaaa")}), node(t), []string{` spec.dnsConfig.options[1]: option "no-aaaa" has no effect: Go's resolver does not support it`}},
		"ndots without a value":       {none(DNSConfig{Options: options("ndots")}), node(t), []string{` spec.dnsConfig.options[0]: option "ndots" has no effect without a value`}},
		"a value in an option's name": {none(DNSConfig{Options: []resolvconf.Option{{Name: "ndots:2"}}}), node(t), []string{` spec.dnsConfig.options[0]: the name "ndots:2" contains a value: if the policy has that option, too, the kubelet writes both, in no fixed order`}},
		"an option of two words":      {none(DNSConfig{Options: []resolvconf.Option{{Name: "rotate edns0"}}}), node(t), []string{` spec.dnsConfig.options[0]: "rotate edns0" is not one word: it is left out`}},
		"an options line that musl passes over": {withLibc(none(DNSConfig{Options: []resolvconf.Option{{Name: "timeout", Value: strings.Repeat("1", 239)}}}), Musl), node(t), []string{
			` spec.dnsConfig.options: the options line has 255 characters: musl ignores lines of more than 254, and with it ndots`}},
		"a nameserver in an unusual spelling": {none(DNSConfig{Nameservers: []string{"::1", "2001:DB8:0::1"}}), node(t), []string{
			` spec.dnsConfig.nameservers[1]: IPv6 address "2001:DB8:0::1" should be written as "2001:db8::1" (RFC 5952)`}},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			var got []string
			for _, w := range Resolve(test.pod, test.node).Warnings {
				got = append(got, w.Reason+" "+w.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Resolve(%+v).Warnings =\n%s\nwant\n%s", test.pod, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestCheckNode(t *testing.T) {
	tests := map[string]struct {
		domain   string
		searches []string
		want     []string
	}{
		"29 search domains":                   {"cluster.local", names(29, 5), nil},
		"30 search domains":                   {"cluster.local", names(30, 5), []string{"the node's resolv.conf has 30 search domains: Pods have room for 29 of them"}},
		"32 search domains, and no cluster's": {"", names(32, 5), nil},
		"33 search domains, and no cluster's": {"", names(33, 5), []string{"the node's resolv.conf has 33 search domains: Pods have room for 32 of them"}},
		"253 characters, and a dot":           {"", []string{strings.Repeat("x", 253) + "."}, nil},
		"254 characters":                      {"", []string{strings.Repeat("x", 254)}, []string{`the node's resolv.conf has a search domain of 254 characters, which begins "` + strings.Repeat("x", 64) + `": one has at most 253`}},
		"2,048 characters, and the root":      {"", append(names(8, 227), names(9, 224)[8], "."), nil},
		"2,049 characters":                    {"", append(names(8, 227), names(9, 225)[8]), []string{"the node's resolv.conf has search domains of 2049 characters: together they have at most 2048"}},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			var got []string
			for _, w := range CheckNode(NodeSettings{ClusterDomain: test.domain, ResolvConf: &resolvconf.Config{Searches: test.searches}}) {
				if w.Reason != CheckLimitsForResolvConf {
					t.Errorf("%q has the reason %q", w, w.Reason)
				}
				got = append(got, w.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("CheckNode with the searches %q = %q, want %q", test.searches, got, test.want)
			}
		})
	}
	if got := CheckNode(NodeSettings{}); got != nil {
		t.Errorf("CheckNode without a resolv.conf = %v", got)
	}
}

func TestHostnameOf(t *testing.T) {
	long := strings.Repeat("a", 60) + "--.-bcd"
	fqdn := func(n int) PodSettings { // the FQDN has n octets
		return PodSettings{Namespace: "ns", Name: "web", Hostname: strings.Repeat("h", n-len(".sub.ns.svc.cluster.local")), Subdomain: "sub", SetHostnameAsFQDN: true}
	}
	tests := map[string]struct {
		pod          PodSettings
		kernel, fqdn string
		warnings     []string
		err          string
	}{
		"the Pod's name": {PodSettings{Name: "web-1"}, "web-1", "web-1", nil, ""},
		"a hostname":     {PodSettings{Name: "web-1", Hostname: "dock"}, "dock", "dock", nil, ""},
		"DNS page: busybox-1": {PodSettings{Namespace: "my-namespace", Name: "busybox1", Hostname: "busybox-1", Subdomain: "busybox-subdomain"},
			"busybox-1", "busybox-1.busybox-subdomain.my-namespace.svc.cluster.local", nil, ""},
		"a subdomain alone": {PodSettings{Name: "web-1", Subdomain: "docks"}, "web-1", "web-1.docks.default.svc.cluster.local", nil, ""},
		"setHostnameAsFQDN": {PodSettings{Name: "web-1", Subdomain: "docks", SetHostnameAsFQDN: true},
			"web-1.docks.default.svc.cluster.local", "web-1.docks.default.svc.cluster.local", nil, ""},
		"setHostnameAsFQDN without a subdomain": {PodSettings{Name: "web-1", SetHostnameAsFQDN: true}, "web-1", "web-1",
			[]string{"spec.setHostnameAsFQDN: it has no effect: the Pod has no FQDN without a subdomain"}, ""},
		"64 characters": {fqdn(64), fqdn(64).Hostname + ".sub.ns.svc.cluster.local", fqdn(64).Hostname + ".sub.ns.svc.cluster.local", nil, ""},
		"65 characters": {fqdn(65), fqdn(65).Hostname, fqdn(65).Hostname + ".sub.ns.svc.cluster.local", nil,
			"failed to construct FQDN from pod hostname and cluster domain, FQDN " + fqdn(65).Hostname + ".sub.ns.svc.cluster.local is too long (64 characters is the max, 65 characters requested)"},
		"a long name is cut": {PodSettings{Name: long, Subdomain: "sub"}, strings.Repeat("a", 60), strings.Repeat("a", 60) + ".sub.default.svc.cluster.local",
			[]string{"metadata.name: the kubelet truncates the Pod's hostname to 60 characters: " + strings.Repeat("a", 60)}, ""},
		"the node's network": {PodSettings{Name: "web-1", Hostname: "dock", Subdomain: "docks", HostNetwork: true, SetHostnameAsFQDN: true}, "node-1", "node-1",
			[]string{"spec.setHostnameAsFQDN: it has no effect with hostNetwork: the Pod has the node's hostname"}, ""},
		"hostnameOverride": {PodSettings{Name: "web-1", Hostname: "dock", Subdomain: "docks", HostnameOverride: new("a.example")}, "a.example", "a.example", nil, ""},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			got, err := HostnameOf(test.pod, node(t))
			var warnings []string
			for _, w := range got.Warnings {
				warnings = append(warnings, w.String())
			}
			text := ""
			if err != nil {
				text = err.Error()
				var tooLong *FQDNError
				want := Warning{FQDNTooLong, FailedCreatePodSandBox, "spec.setHostnameAsFQDN", text}
				if !errors.As(err, &tooLong) || tooLong.Warning() != want {
					t.Errorf("HostnameOf(%+v) gives %#v, want one that warns %v", test.pod, err, want)
				}
			}
			if got.Kernel != test.kernel || got.FQDN != test.fqdn || !reflect.DeepEqual(warnings, test.warnings) || text != test.err {
				t.Errorf("HostnameOf(%+v) = %q, %q, %q, %q, want %q, %q, %q, %q", test.pod, got.Kernel, got.FQDN, warnings, text, test.kernel, test.fqdn, test.warnings, test.err)
			}
		})
	}
}
