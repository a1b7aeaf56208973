package respond_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// primaries are those who may notify: one address, and who has the key.
type primaries struct {
	addr netip.Addr
	key  *dnswire.TSIGKey
}

func (p primaries) Key(name dnsname.Name) *dnswire.TSIGKey {
	if name == p.key.Name {
		return p.key
	}
	return nil
}

func (p primaries) Notify(_ []byte, from netip.Addr, signed respond.Signed) bool {
	return bool(signed) || from == p.addr
}

func TestNotify(t *testing.T) {
	db, err := zone.New(dnswire.SOA{Zone: dnsname.MustParse("cluster.local")})
	if err != nil {
		t.Fatal(err)
	}
	key := &dnswire.TSIGKey{Name: dnsname.MustParse("k"), Algorithm: dnswire.HMACSHA256, Secret: []byte("secret")}
	who := primaries{netip.MustParseAddr("192.0.2.1"), key}
	for claim, c := range map[string]struct {
		notified respond.NotifyHandler
		from     string
		typ      uint16
		key      *dnswire.TSIGKey
		want     int
		aa       bool
	}{
		"of a server":              {who, "192.0.2.1", dns.TypeSOA, nil, dns.RcodeSuccess, true},
		"of another":               {who, "192.0.2.2", dns.TypeSOA, nil, dns.RcodeRefused, false},
		"signed":                   {who, "192.0.2.2", dns.TypeSOA, key, dns.RcodeSuccess, true},
		"about something else":     {who, "192.0.2.1", dns.TypeA, nil, dns.RcodeFormatError, false},
		"where there is no copy":   {nil, "192.0.2.1", dns.TypeSOA, nil, dns.RcodeNotImplemented, false},
		"with a wrong signature":   {who, "192.0.2.1", dns.TypeSOA, &dnswire.TSIGKey{Name: key.Name, Algorithm: key.Algorithm, Secret: []byte("other")}, dns.RcodeNotAuth, false},
		"signed, where is no copy": {nil, "192.0.2.1", dns.TypeSOA, key, dns.RcodeNotImplemented, false},
	} {
		r, err := respond.New(respond.Config{Data: db, NotifyHandler: c.notified})
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetNotify("cluster.local.")
		m.Question[0].Qtype = c.typ
		query, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var x *dnswire.TSIGExchange
		if c.key != nil {
			x = c.key.NewExchange()
			query = x.Sign(query, time.Now())
		}
		wire, later := r.NewWorker(0).Respond(query, respond.Client{Addr: netip.MustParseAddr(c.from)}, make([]byte, dnswire.MaxMessage))
		if later != nil {
			t.Fatalf("%s: there is no answer yet", claim)
		}
		if c.key == key && c.notified != nil {
			if err := x.Verify(wire, time.Now()); err != nil {
				t.Errorf("%s: the answer's signature: %v", claim, err)
			}
		}
		answer := new(dns.Msg)
		if err := answer.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		if answer.Id != m.Id || !answer.Response || answer.Opcode != dns.OpcodeNotify || answer.Rcode != c.want || answer.Authoritative != c.aa || len(answer.Question) != 1 {
			t.Errorf("%s: answer\n%v\nwant %s, AA %v", claim, answer, dns.RcodeToString[c.want], c.aa)
		}
	}
}

// counted counts what it is asked.
type counted struct {
	primaries
	keys, notices int
}

func (c *counted) Key(name dnsname.Name) *dnswire.TSIGKey {
	c.keys++
	return c.primaries.Key(name)
}

func (c *counted) Notify(apex []byte, from netip.Addr, signed respond.Signed) bool {
	c.notices++
	return c.primaries.Notify(apex, from, signed)
}

// TestNotifyFromDeniedClients checks that neither signatures nor NOTIFYs of clients that
// are denied or over the rate limit are processed. A NOTIFY over the limit gets no
// response, because its sender would accept a truncated one as an acknowledgement.
func TestNotifyFromDeniedClients(t *testing.T) {
	db, err := zone.New(dnswire.SOA{Zone: dnsname.MustParse("cluster.local")})
	if err != nil {
		t.Fatal(err)
	}
	key := &dnswire.TSIGKey{Name: dnsname.MustParse("k"), Algorithm: dnswire.HMACSHA256, Secret: []byte("secret")}
	from := netip.MustParseAddr("192.0.2.1")
	refuse, err := filter.New(filter.Config{Access: []filter.AccessRule{{Action: filter.Refuse, Clients: []netip.Prefix{netip.PrefixFrom(from, 32)}}}})
	if err != nil {
		t.Fatal(err)
	}
	empty := filter.NewRateLimiter(filter.RateLimit{PerSecond: 1, Burst: 1, Prefix4: 32, Prefix6: 128, Slip: 1})
	empty.Count(from, time.Now())
	notice, query := new(dns.Msg).SetNotify("cluster.local."), new(dns.Msg).SetQuestion("cluster.local.", dns.TypeSOA)
	for claim, c := range map[string]struct {
		cfg  respond.Config
		m    *dns.Msg
		want int
	}{
		"a notice, refused":      {respond.Config{Rules: refuse}, notice, dns.RcodeRefused},
		"a query, refused":       {respond.Config{Rules: refuse}, query, dns.RcodeRefused},
		"a notice over the rate": {respond.Config{Limiter: empty}, notice, -1},
		"a query over the rate":  {respond.Config{Limiter: empty}, query, dns.RcodeSuccess},
	} {
		who := &counted{primaries: primaries{from, key}}
		c.cfg.Data, c.cfg.NotifyHandler = db, who
		r, err := respond.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		wire, err := c.m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		wire = key.NewExchange().Sign(wire, time.Now())
		got := -1
		if wire, _ := r.NewWorker(0).Respond(wire, respond.Client{Addr: from}, make([]byte, dnswire.MaxMessage)); wire != nil {
			answer := new(dns.Msg)
			if err := answer.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			got = answer.Rcode
		}
		if got != c.want || who.keys+who.notices > 0 {
			t.Errorf("%s: rcode %d (-1 for no answer), want %d; %d keys, %d notices, want none", claim, got, c.want, who.keys, who.notices)
		}
	}
}
