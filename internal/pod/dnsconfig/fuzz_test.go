package dnsconfig

import (
	"reflect"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// FuzzResolve passes settings that the API server would refuse. The result must be
// within the limits and must be a resolv.conf that parses to the same configuration.
func FuzzResolve(f *testing.F) {
	f.Add("ClusterFirst", "nameserver ::1\nsearch a. b\noptions ndots:1\n", "cluster.local", "::1 192.0.2.1", "a,b.,c d", "ndots,edns0", "2", "web")
	f.Add("None", "", "", "x 010.0.0.1 fe80::1%e", ".,,\n", "a:b, ,:", ":\x00", strings.Repeat("-", 70))
	f.Add("Default", "search\ndomain a\nnameserver\n", "z", "", strings.Repeat("x", 300), "", "\nnameserver ::2", "..")
	f.Fuzz(func(t *testing.T, policy, nodeText, domain, servers, searches, names, value, name string) {
		config, _ := ParseNode(nodeText)
		n := NodeSettings{ClusterDomain: domain, ClusterDNS: podrand.Addrs("10.0.0.10"), ResolvConf: &config}
		c := &DNSConfig{Nameservers: strings.Fields(servers), Searches: strings.Split(searches, ",")}
		for optionName := range strings.SplitSeq(names, ",") {
			c.Options = append(c.Options, resolvconf.Option{Name: optionName, Value: value})
		}
		p := PodSettings{Policy: DNSPolicy(policy), Name: name, Subdomain: name, HostnameOverride: &name, SetHostnameAsFQDN: true, DNSConfig: c}

		got := Resolve(p, n).Config
		if len(got.Nameservers) > MaxNameservers || len(got.Searches) > MaxSearches || joinedLen(got.Searches) > MaxSearchList {
			t.Errorf("Resolve(%+v) = %v, beyond the limits", p, got)
		}
		if optionsLen(got) <= resolvconf.MaxLine {
			again, problems, err := resolvconf.Parse(strings.NewReader(got.String()))
			if err != nil || len(problems) > 0 || !reflect.DeepEqual(again, got) {
				t.Errorf("Resolve(%+v) = %#v, which reads as %#v, %v, %v", p, got, again, problems, err)
			}
		}
		for _, err := range Validate(p) {
			if !strings.HasPrefix(err.Error(), "spec.") {
				t.Errorf("Validate(%+v) has the error %q", p, err)
			}
		}
		CheckNode(n)
		if h, err := HostnameOf(p, n); err == nil && len(h.Kernel) > maxFQDN {
			t.Errorf("HostnameOf(%+v) = %q", p, h.Kernel)
		}
	})
}
