package respond_test

import (
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
)

// subnetOf is the client subnet option of a message; nil when there is none.
func subnetOf(m *dns.Msg) *dns.EDNS0_SUBNET {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if s, ok := o.(*dns.EDNS0_SUBNET); ok {
				return s
			}
		}
	}
	return nil
}

// from adds the option to a query: an IPv4 prefix.
func from(prefix string) func(*dns.Msg) {
	return func(q *dns.Msg) {
		_, n, err := net.ParseCIDR(prefix)
		if err != nil {
			panic(err)
		}
		ones, _ := n.Mask.Size()
		q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(ones), Address: n.IP})
	}
}

// bySubnet answers with the address that the client's subnet begins with, and
// with this scope; where there is no subnet, or it is silent of that, with
// 192.0.2.1. It notes what came.
type bySubnet struct {
	scope  uint8
	silent bool
	came   []string
}

func (b *bySubnet) do(_ uint16, q, m *dns.Msg) {
	s, addr := subnetOf(q), "192.0.2.1"
	if s != nil && !b.silent {
		addr = s.Address.String()
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: s.Family, SourceNetmask: s.SourceNetmask, SourceScope: b.scope, Address: s.Address,
		})
	}
	b.came = append(b.came, addr)
	m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 A "+addr))
}

// TestClientSubnet checks that a client's subnet is forwarded on routes with that
// setting only, and that the answer is given only to clients for which it is valid.
func TestClientSubnet(t *testing.T) {
	type step struct{ from, addr, option string }
	const none = ""
	for claim, c := range map[string]struct {
		off    bool
		silent bool
		scope  uint8
		steps  []step
		asked  int
	}{
		"of one subnet": {scope: 24, asked: 4, steps: []step{
			{"198.51.100.0/24", "198.51.100.0", "198.51.100.0/24/24"},
			{"203.0.113.0/24", "203.0.113.0", "203.0.113.0/24/24"},
			{none, "192.0.2.1", ""},
			{none, "192.0.2.1", ""},
			{"198.51.100.0/24", "198.51.100.0", "198.51.100.0/24/24"},
		}},
		"of all": {scope: 0, asked: 1, steps: []step{
			{"198.51.100.0/24", "198.51.100.0", "198.51.100.0/24/0"},
			{"203.0.113.0/25", "198.51.100.0", "203.0.113.0/25/0"},
			{none, "198.51.100.0", ""},
		}},
		"one to nobody is not for all": {scope: 24, asked: 2, steps: []step{
			{none, "192.0.2.1", ""},
			{"198.51.100.0/24", "198.51.100.0", "198.51.100.0/24/24"},
			{none, "192.0.2.1", ""},
		}},
		"who hides is nobody else": {scope: 0, asked: 2, steps: []step{
			{"0.0.0.0/0", "0.0.0.0", "0.0.0.0/0/0"},
			{none, "192.0.2.1", ""},
		}},
		"the upstream says nothing of subnets": {silent: true, asked: 1, steps: []step{
			{"198.51.100.0/24", "192.0.2.1", "198.51.100.0/24/0"},
			{"203.0.113.0/24", "192.0.2.1", "203.0.113.0/24/0"},
			{none, "192.0.2.1", ""},
		}},
		"it says nothing to who hides": {silent: true, asked: 2, steps: []step{
			{none, "192.0.2.1", ""},
			{"198.51.100.0/24", "192.0.2.1", "198.51.100.0/24/0"},
			{"203.0.113.0/24", "192.0.2.1", "203.0.113.0/24/0"},
		}},
		"not set": {off: true, scope: 24, asked: 1, steps: []step{
			{"198.51.100.0/24", "192.0.2.1", ""},
			{"203.0.113.0/24", "192.0.2.1", ""},
		}},
	} {
		t.Run(claim, func(t *testing.T) {
			up := &bySubnet{scope: c.scope, silent: c.silent}
			w := withUpstreams(t, nil, []forward.Route{{ClientSubnet: !c.off}}, up.do)
			for i, s := range c.steps {
				edit := func(*dns.Msg) {}
				if s.from != none {
					edit = from(s.from)
				}
				m := askAll(t, w, "www.example.", dns.TypeA, edit)
				option := ""
				if o := subnetOf(m); o != nil {
					option = o.String()
				}
				if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != s.addr || option != s.option {
					t.Errorf("%d: from %q: %v with %q, want %s with %q", i, s.from, m.Answer, option, s.addr, s.option)
				}
			}
			if len(up.came) != c.asked {
				t.Errorf("the upstream was asked %d times, want %d: %q", len(up.came), c.asked, up.came)
			}
		})
	}
}

// TestClientSubnetMalformed checks that a malformed option is FORMERR if it would be
// forwarded, and ignored otherwise.
func TestClientSubnetMalformed(t *testing.T) {
	up := &bySubnet{}
	w := withUpstreams(t, nil, []forward.Route{{ClientSubnet: true}, {Suffix: dnsname.MustParse("corp.example")}}, up.do)
	for value, rcode := range map[string]int{
		"\x00\x01\x18\x00\xc0\x00\x02": dns.RcodeSuccess,
		"\x00\x01\x18\x18\xc0\x00\x02": dns.RcodeFormatError, // a scope
		"\x00\x01\x14\x00\xc0\x00\x02": dns.RcodeFormatError, // bits behind the prefix
		"\x00\x09\x18\x00\xc0\x00\x02": dns.RcodeFormatError,
		"":                             dns.RcodeFormatError,
	} {
		edit := func(q *dns.Msg) {
			q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: dns.EDNS0SUBNET, Data: []byte(value)})
		}
		for name, want := range map[string]int{"www.example.": rcode, "www.corp.example.": dns.RcodeSuccess, "web.shop.svc.cluster.local.": dns.RcodeSuccess} {
			if m := askAll(t, w, name, dns.TypeA, edit); m.Rcode != want {
				t.Errorf("%s with %x: %s, want %s", name, value, dns.RcodeToString[m.Rcode], dns.RcodeToString[want])
			}
		}
	}
}

// TestClientSubnetMalformedBehindAlias checks that a malformed option is FORMERR,
// without an answer, if only the target of an alias is on a route with the setting.
func TestClientSubnetMalformedBehindAlias(t *testing.T) {
	w := withUpstreams(t, nil, []forward.Route{{Suffix: dnsname.MustParse("corp.example")}, {ClientSubnet: true}}, func(_ uint16, q, m *dns.Msg) {
		m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 CNAME www.near.example."))
	})
	m := askAll(t, w, "www.corp.example.", dns.TypeA, func(q *dns.Msg) {
		q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: dns.EDNS0SUBNET, Data: []byte("\x00")})
	})
	if m.Rcode != dns.RcodeFormatError || len(m.Answer) != 0 || len(m.Question) != 1 {
		t.Errorf("answer:\n%s", m)
	}
}

// TestReplyForAnotherSubnet checks that a reply for another subnet is dropped, and that
// the answer from the query without a subnet has no option.
func TestReplyForAnotherSubnet(t *testing.T) {
	up := &bySubnet{scope: 24}
	w := withUpstreams(t, nil, []forward.Route{{ClientSubnet: true}}, func(port uint16, q, m *dns.Msg) {
		up.do(port, q, m)
		if s := subnetOf(m); s != nil {
			s.Address = net.IPv4(203, 0, 113, 0)
		}
	})
	m := askAll(t, w, "www.example.", dns.TypeA, from("198.51.100.0/24"))
	if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "192.0.2.1" || subnetOf(m) != nil {
		t.Errorf("answer:\n%s", m)
	}
}

// TestClientSubnetInFullResponse checks that space for the option is reserved.
func TestClientSubnetInFullResponse(t *testing.T) {
	for n := range 20 {
		w := withUpstreams(t, func(c *respond.Config) { c.UDPSize = dnswire.MinUDPSize }, []forward.Route{{ClientSubnet: true}}, func(_ uint16, q, m *dns.Msg) {
			m.IsEdns0().Option = q.IsEdns0().Option
			for i := range 20 {
				m.Answer = append(m.Answer, rr(q.Question[0].Name+" 60 TXT "+strings.Repeat("x", n+1)+string(rune('a'+i))))
			}
		})
		m := askAll(t, w, "www.example.", dns.TypeTXT, from("198.51.100.0/24"))
		m.Compress = true
		if wire, _ := m.Pack(); len(wire) > dnswire.MinUDPSize || subnetOf(m) == nil {
			t.Errorf("%d octets, option %v", len(wire), subnetOf(m))
		}
	}
}
