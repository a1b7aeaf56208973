package nodes

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// external is the number of names that the upstream has, and externalTTL their TTL in
// seconds.
const (
	external    = 200
	externalTTL = 60
)

// External returns a name that the upstream has, and its addresses.
func External(i int) (name string, addrs []netip.Addr) {
	i %= external
	addr6 := netip.MustParseAddr("2001:db8::").As16()
	addr6[15] = byte(1 + i)
	addrs = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + i)}), netip.AddrFrom16(addr6)}
	return fmt.Sprintf("www%d.example.org", i), addrs
}

// ServeUpstream answers at Upstream until stop is called: the External names with their
// addresses, all others with NXDOMAIN.
func (w *World) ServeUpstream() (stop func(), err error) {
	at := netip.AddrPortFrom(Upstream, 53).String()
	var udp net.PacketConn
	var tcp net.Listener
	err = w.Outside.Do(func() (err error) {
		if udp, err = net.ListenPacket("udp", at); err != nil {
			return err
		}
		tcp, err = net.Listen("tcp", at)
		return err
	})
	if err != nil {
		return nil, err
	}
	handler := dns.HandlerFunc(answerUpstream())
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: handler}, {Listener: tcp, Handler: handler}} {
		go func() { _ = s.ActivateAndServe() }() // until it is closed
	}
	return func() { udp.Close(); tcp.Close() }, nil
}

func answerUpstream() func(dns.ResponseWriter, *dns.Msg) {
	known := make(map[string][]netip.Addr)
	for i := range external {
		name, addrs := External(i)
		known[name+"."] = addrs
	}
	soa := &dns.SOA{
		Hdr: dns.RR_Header{Name: "org.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: externalTTL},
		Ns:  "ns.org.", Mbox: "hostmaster.org.", Minttl: externalTTL,
	}
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		question := q.Question[0]
		addrs, ok := known[strings.ToLower(question.Name)]
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		for _, a := range addrs {
			head := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: externalTTL}
			switch {
			case question.Qtype == dns.TypeA && a.Is4():
				m.Answer = append(m.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
			case question.Qtype == dns.TypeAAAA && a.Is6():
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
			}
		}
		if len(m.Answer) == 0 {
			m.Ns = []dns.RR{soa}
		}
		if q.IsEdns0() != nil {
			m.SetEdns0(1232, false)
		}
		_ = w.WriteMsg(m) // a client that has gone asks again
	}
}
