package nft

import (
	"errors"
	"net/netip"
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
		if err := s.restore(map[string][]Port{"shop/web": test.has}); err != nil {
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
	err := newPorts().restore(map[string][]Port{"a": {base}, "b": {base}, "c": {{Protocol: SCTP, HostPort: 80, To: to}}})
	if conflict, ok := errors.AsType[*ConflictError](err); !ok || conflict.Owner != "a" {
		t.Errorf("restore of a port that two have: %v, want a conflict with a", err)
	}
}
