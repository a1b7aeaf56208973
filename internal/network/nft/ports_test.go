package nft

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
)

// TestConflicts: a port that another Pod has is refused, with its name; nothing changes then.
func TestConflicts(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("10.244.1.7:8080")
	to6 := netip.MustParseAddrPort("[fd00::7]:8080")
	at := func(addr string) netip.Addr { return netip.MustParseAddr(addr) }
	base := Port{Protocol: TCP, HostPort: 80, To: to}
	for claim, test := range map[string]struct {
		has, wants []Port
		want       string
	}{
		"the same port":                  {[]Port{base}, []Port{base}, "hostPort TCP 80 is that of shop/web"},
		"another port":                   {[]Port{base}, []Port{{Protocol: TCP, HostPort: 81, To: to}}, ""},
		"another protocol":               {[]Port{base}, []Port{{Protocol: UDP, HostPort: 80, To: to}}, ""},
		"another family":                 {[]Port{base}, []Port{{Protocol: TCP, HostPort: 80, To: to6}}, ""},
		"one address of all":             {[]Port{base}, []Port{{Protocol: TCP, HostIP: at("192.0.2.1"), HostPort: 80, To: to}}, "hostPort TCP 192.0.2.1:80 is that of shop/web"},
		"all addresses, one of which":    {[]Port{{Protocol: TCP, HostIP: at("192.0.2.1"), HostPort: 80, To: to}}, []Port{{Protocol: TCP, HostIP: at("0.0.0.0"), HostPort: 80, To: to}}, "hostPort TCP 80 is that of shop/web"},
		"another address":                {[]Port{{Protocol: TCP, HostIP: at("192.0.2.1"), HostPort: 80, To: to}}, []Port{{Protocol: TCP, HostIP: at("127.0.0.1"), HostPort: 80, To: to}}, ""},
		"twice in a Pod":                 {nil, []Port{base, {Protocol: TCP, HostPort: 80, To: netip.AddrPortFrom(to.Addr(), 81)}}, "hostPort TCP 80 is that of another container of the same Pod"},
		"the same twice":                 {nil, []Port{base, base}, ""},
		"an address of the other family": {nil, []Port{{Protocol: TCP, HostIP: at("::1"), HostPort: 80, To: to}}, "hostPort TCP [::1]:80 to 10.244.1.7:8080: of another family"},
		"no port":                        {nil, []Port{{Protocol: TCP, To: to}}, "hostPort TCP 0 to 10.244.1.7:8080: invalid"},
	} {
		s := newPorts()
		if err := s.restore([]Owner{{"shop/web", test.has}}, nil); err != nil {
			t.Errorf("%s: restore: %v", claim, err)
		}
		all, err := normal(test.wants)
		if err == nil {
			err = s.check("shop/api", all)
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", claim, got, test.want)
		}
	}
}

// TestRestore: of two Pods that are recorded with one port, the one has it for which the kernel has it, whatever the
// order; if the kernel has neither's, the first.
func TestRestore(t *testing.T) {
	t.Parallel()
	ports := func(hostPort uint16, to string) []Port {
		return []Port{{Protocol: TCP, HostPort: hostPort, To: netip.MustParseAddrPort(to)}}
	}
	first, second := ports(80, "10.244.1.7:80"), ports(80, "10.244.1.8:80")
	both := slices.Concat(second, ports(81, "10.244.1.8:81"))
	owners := []Owner{{"b", first}, {"a", second}, {"c", ports(90, "10.244.1.9:80")}}
	for claim, test := range map[string]struct {
		owners []Owner
		kernel []Port
		want   string // who has the port
	}{
		"the kernel has neither's":      {owners, nil, "b"},
		"the kernel has the first's":    {owners, first, "b"},
		"the kernel has the second's":   {owners, second, "a"},
		"the kernel has a part":         {[]Owner{{"b", first}, {"a", both}}, second, "b"},
		"the kernel has all of the two": {[]Owner{{"b", first}, {"a", both}}, both, "a"},
	} {
		s := newPorts()
		err := s.restore(test.owners, portElements(test.kernel))
		if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.Owner != test.want {
			t.Errorf("%s: restore = %v, want a conflict with %s", claim, err, test.want)
		}
		if got := slices.Sorted(maps.Keys(s.holders[first[0].key()])); !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: port 80 is that of %v, want %s", claim, got, test.want)
		}
		if test.kernel == nil && s.owners["c"] == nil {
			t.Errorf("%s: the port of a third Pod is left out", claim)
		}
	}
}
