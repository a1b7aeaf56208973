package dnswire_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// replyTo builds a reply of an upstream: a question for www.example. and
// records, of which SOA, NS and NSEC go into the authority section and those
// marked + into the additional section.
func replyTo(tb testing.TB, records ...string) []byte {
	tb.Helper()
	m := new(dns.Msg)
	m.SetQuestion("www.example.", dns.TypeA)
	m.Response, m.Compress = true, true
	for _, text := range records {
		text, additional := strings.CutPrefix(text, "+")
		rr, err := dns.NewRR(text)
		if err != nil {
			tb.Fatal(err)
		}
		switch rr.Header().Rrtype {
		case dns.TypeSOA, dns.TypeNS, dns.TypeNSEC:
			m.Ns = append(m.Ns, rr)
		default:
			if additional {
				m.Extra = append(m.Extra, rr)
			} else {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	wire, err := m.Pack()
	if err != nil {
		tb.Fatal(err)
	}
	return wire
}

func parseReply(tb testing.TB, wire []byte) *dnswire.Reply {
	tb.Helper()
	r, err := dnswire.ParseReply(wire)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// everyType has a record of each type whose RDATA may be compressed, and some
// others.
var everyType = []string{
	"www.example. 60 CNAME a.www.example.", "a.www.example. 60 A 192.0.2.1", "a.www.example. 60 AAAA 2001:db8::1",
	"a.www.example. 60 MX 10 mail.example.", "a.www.example. 60 PTR host.example.", "a.www.example. 60 SRV 1 2 3 srv.example.",
	"a.www.example. 60 TXT \"some\" \"text\"", "a.www.example. 60 MINFO r.example. e.example.", "a.www.example. 60 RP m.example. t.example.",
	"a.www.example. 60 AFSDB 1 db.example.", "a.www.example. 60 RT 1 rt.example.", "a.www.example. 60 KX 1 kx.example.",
	"a.www.example. 60 PX 1 p.example. q.example.", "a.www.example. 60 NAPTR 1 2 \"u\" \"sip\" \"\" n.example.", "a.www.example. 60 DNAME d.example.",
	"a.www.example. 60 RRSIG A 8 2 60 20300101000000 20200101000000 1 example. AAAA", "a.www.example. 60 HTTPS 1 . alpn=h2",
	"example. 60 SOA ns.example. host.example. 1 2 3 4 5", "example. 60 NS ns.example.", "example. 60 NSEC www.example. A NS",
	"+ns.example. 60 A 192.0.2.53",
}

// respondTo starts a response to a query for name.
func respondTo(tb testing.TB, r *dnswire.Response, name string, limit int) {
	tb.Helper()
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA})
	if err != nil {
		tb.Fatal(err)
	}
	q := new(dnswire.Query)
	if q.ParseHeader(packet) != nil || q.ParseBody(packet) != nil {
		tb.Fatal("the query is malformed")
	}
	r.Start(make([]byte, 0, dnswire.MaxMessage), q, limit)
}

// sections returns the records of a message as text.
func sections(tb testing.TB, wire []byte) (all [3][]string) {
	tb.Helper()
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		tb.Fatalf("what was written: %v", err)
	}
	for i, s := range [][]dnswire.Record{m.Answer, m.Authority, m.Additional} {
		for _, r := range s {
			all[i] = append(all[i], r.String())
		}
	}
	return all
}

// TestAddReply checks that records of every type are relayed unchanged, both in
// the message that they came in and in another one.
func TestAddReply(t *testing.T) {
	wire := replyTo(t, everyType...)
	want := sections(t, wire)
	var r dnswire.Response
	respondTo(t, &r, "www.example.", dnswire.MaxMessage)
	if last := r.AddReply(parseReply(t, wire), dnswire.Aging{}); last != dnswire.Additional {
		t.Errorf("AddReply wrote up to section %d", last)
	}
	if got := sections(t, r.Finish(0, 0)); !equal(got, want) {
		t.Errorf("AddReply wrote\n%q\nwant\n%q", got, want)
	}
	respondTo(t, &r, "another.and.longer.name.test.", dnswire.MaxMessage)
	for rec := range parseReply(t, wire).Records {
		if !r.AddRelayed(rec.Section, rec, dnswire.Aging{}) {
			t.Error("AddForeign cuts off")
		}
	}
	if got := sections(t, r.Finish(0, 0)); !equal(got, want) {
		t.Errorf("AddForeign wrote\n%q\nwant\n%q", got, want)
	}
}

func equal(a, b [3][]string) bool {
	return slices.Equal(a[0], b[0]) && slices.Equal(a[1], b[1]) && slices.Equal(a[2], b[2])
}

// TestAddReplyLimit checks that records that do not fit are omitted from the
// end, and that only a truncated answer is reported.
func TestAddReplyLimit(t *testing.T) {
	p := parseReply(t, replyTo(t, everyType...))
	full := len(replyTo(t, everyType...))
	for limit := full; limit >= 60; limit-- {
		var r dnswire.Response
		respondTo(t, &r, "www.example.", limit)
		last := r.AddReply(p, dnswire.Aging{Age: 10})
		out := r.Finish(0, 0)
		got := sections(t, out)
		if len(out) > limit {
			t.Fatalf("%d octets, the limit is %d", len(out), limit)
		}
		for s := dnswire.Answer; s <= dnswire.Additional; s++ {
			if n := len(got[s-1]); (s <= last) != (n == p.Count(s)) || s > last && s > dnswire.Answer && n > 0 {
				t.Errorf("limit %d: up to section %d, but section %d has %d of %d records", limit, last, s, n, p.Count(s))
			}
		}
		for _, rec := range slices.Concat(got[:]...) {
			if !strings.Contains(rec, "\t50\tIN\t") {
				t.Fatalf("limit %d: %s, want TTL 50", limit, rec)
			}
		}
	}
}

// TestAddReplyToAnotherQuestion checks that nothing is relayed to another
// question.
func TestAddReplyToAnotherQuestion(t *testing.T) {
	var r dnswire.Response
	respondTo(t, &r, "below.www.example.", dnswire.MaxMessage)
	before := r.Len()
	if last := r.AddReply(parseReply(t, replyTo(t, everyType...)), dnswire.Aging{}); last != 0 || r.Len() != before {
		t.Errorf("%d octets up to section %d", r.Len()-before, last)
	}
}

// TestParseReplyRefuses covers malformed and dangerous replies.
func TestParseReplyRefuses(t *testing.T) {
	good := replyTo(t, "www.example. 60 CNAME a.www.example.", "a.www.example. 60 A 192.0.2.1")
	const first = 12 + 13 + 4 // offset of the first record
	for name, edit := range map[string]func(m []byte) []byte{
		"a query":                      func(m []byte) []byte { m[2] &^= 0x80; return m },
		"another opcode":               func(m []byte) []byte { m[2] |= 0x20; return m },
		"no question":                  func(m []byte) []byte { m[5] = 0; return m },
		"two questions":                func(m []byte) []byte { m[5] = 2; return m },
		"a record more":                func(m []byte) []byte { m[7]++; return m },
		"a pointer to itself":          func(m []byte) []byte { m[first+1] = first; return m },
		"a pointer forwards":           func(m []byte) []byte { m[first+1] = first + 5; return m },
		"a pointer into the header":    func(m []byte) []byte { m[first+1] = 4; return m },
		"RDATA longer than the packet": func(m []byte) []byte { m[first+10] = 200; return m },
		"RDATA longer than its name":   func(m []byte) []byte { m[first+11]++; return m },
		"an address of 3 octets":       func(m []byte) []byte { m[len(m)-5] = 3; return m[:len(m)-1] },
		"a reserved label":             func(m []byte) []byte { m[first] = 0x80; return m },
	} {
		if _, err := dnswire.ParseReply(edit(slices.Clone(good))); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for n := range good {
		if _, err := dnswire.ParseReply(good[:n]); err == nil {
			t.Errorf("the first %d of %d octets: taken", n, len(good))
		}
	}
}

// TestParseReplyOPT checks that the OPT record and what follows it are removed.
func TestParseReplyOPT(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("www.example.", dns.TypeA)
	m.Response = true
	m.SetEdns0(1232, true)
	m.Rcode = dns.RcodeBadVers
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: 6, ExtraText: "bogus"})
	behind, _ := dns.NewRR("x.example. 60 A 192.0.2.1")
	m.Extra = append(m.Extra, behind)
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r := parseReply(t, wire)
	if !r.EDNS || r.RCode != dnswire.BadVers || r.Count(dnswire.Additional) != 0 || r.EDE == nil || r.EDE.Code != 6 || r.EDE.Text != "bogus" {
		t.Errorf("reply %+v (%+v)", r, r.EDE)
	}
}

func FuzzReply(f *testing.F) {
	f.Add(replyTo(f, everyType...))
	f.Add(replyTo(f, "www.example. 60 A 192.0.2.1"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		p, err := dnswire.ParseReply(packet)
		if err != nil {
			return
		}
		p.AdjustTTLs(func(rec dnswire.ReplyRecord) uint32 { return min(rec.TTL(), 100) })
		limit := int(binary.BigEndian.Uint16(packet))
		q := new(dnswire.Query)
		if q.ParseHeader(packet) != nil || q.ParseBody(packet) != nil {
			return
		}
		var r dnswire.Response
		r.Start(make([]byte, 0, dnswire.MaxMessage), q, max(limit, dnswire.MinUDPSize))
		r.AddReply(p, dnswire.Aging{Age: 7})
		if out := r.Finish(0, p.RCode); len(out) > max(limit, dnswire.MinUDPSize) {
			t.Fatalf("%d octets, the limit is %d", len(out), limit)
		}
		r.Start(make([]byte, 0, dnswire.MaxMessage), q, dnswire.MaxMessage)
		var name [255]byte
		for rec := range p.Records {
			if len(rec.AppendOwner(name[:0])) > 254 || len(rec.AppendTarget(name[:0])) > 254 {
				t.Fatal("a name that is too long")
			}
			if !r.AddRelayed(rec.Section, rec, dnswire.Aging{Stale: 30}) {
				return
			}
		}
		again, err := dnswire.ParseReply(r.Finish(0, p.RCode))
		if err != nil {
			t.Fatalf("what AddForeign wrote is malformed: %v", err)
		}
		for s := dnswire.Answer; s <= dnswire.Additional; s++ {
			if again.Count(s) != p.Count(s) {
				t.Fatalf("section %d has %d records, want %d", s, again.Count(s), p.Count(s))
			}
		}
	})
}

// TestAddresses checks the addresses in records, and the zero address for
// malformed ones.
func TestAddresses(t *testing.T) {
	for text, want := range map[string][]string{
		"www.example. 60 A 192.0.2.1":           {"192.0.2.1"},
		"www.example. 60 AAAA 2001:db8::1":      {"2001:db8::1"},
		"www.example. 60 TXT 192.0.2.1":         nil,
		`www.example. 60 TYPE65280 \# 3 000100`: nil,
		`www.example. 60 TYPE65280 \# 1 00`:     {"invalid IP"},
		"www.example. 60 HTTPS 1 svc.example. alpn=h2,h3 port=8443 ipv4hint=192.0.2.1,10.0.0.1 ech=AAAA ipv6hint=fd00::1": {"192.0.2.1", "10.0.0.1", "fd00::1"},
		"www.example. 60 SVCB 1 svc.example. ipv6hint=2001:db8::1,2001:db8::2":                                            {"2001:db8::1", "2001:db8::2"},
		`www.example. 60 TYPE65280 \# 2 0001`:                                                                             {"invalid IP"},
		`www.example. 60 TYPE65280 \# 3 0001c0`:                                                                           {"invalid IP"},
		`www.example. 60 TYPE65280 \# 12 0001c00c 0004 0004 0a000001`:                                                     {"invalid IP"}, // a compressed name
		`www.example. 60 TYPE65280 \# 11 000100 0004 0008 0a000001`:                                                       {"invalid IP"}, // truncated
		`www.example. 60 TYPE65280 \# 14 000100 0004 0004 0a000001 000600`:                                                {"10.0.0.1", "invalid IP"},
		`www.example. 60 TYPE65280 \# 13 000100 0004 0006 0a000001 0a00`:                                                  {"10.0.0.1", "invalid IP"},
	} {
		var got []string
		// TYPE65280 becomes HTTPS, which the library would not pack with
		// errors.
		reply := parseReply(t, bytes.ReplaceAll(replyTo(t, text), []byte{0xff, 0, 0, 1}, []byte{0, 65, 0, 1}))
		for rec := range reply.Records {
			for addr := range rec.Addresses {
				got = append(got, addr.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: addresses %q, want %q", text, got, want)
		}
		for rec := range reply.Records {
			for range rec.Addresses {
				break // the zero address is the last
			}
		}
	}
}
