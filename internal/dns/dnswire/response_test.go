package dnswire_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// response is a Response in a buffer of exactly its limit, to detect writes
// beyond it.
type response struct {
	dnswire.Response
	t      *testing.T
	query  *dnswire.Query
	memory []byte
	limit  int
}

const guard = 0xa5

func start(t *testing.T, q *dnswire.Query, limit int) *response {
	t.Helper()
	r := &response{t: t, query: q, limit: limit, memory: slices.Repeat([]byte{guard}, limit+64)}
	r.Start(r.memory[:0:limit], q, limit)
	return r
}

// ask starts a response to a query without EDNS.
func ask(t *testing.T, name string, typ dnswire.Type, limit int) *response {
	t.Helper()
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: typ})
	if err != nil {
		t.Fatalf("NewQuery(%s %v): %v", name, typ, err)
	}
	return start(t, parse(t, packet), limit)
}

// octets returns the finished message and checks that it is in the buffer.
func (r *response) octets(flags uint16, rcode dnswire.RCode) []byte {
	r.t.Helper()
	wire := r.Finish(flags, rcode)
	if len(wire) > r.limit || len(wire) != r.Len() {
		r.t.Errorf("the message has %d octets, Len() = %d, want at most %d", len(wire), r.Len(), r.limit)
	}
	if &wire[0] != &r.memory[0] {
		r.t.Errorf("the message left the buffer that Start was given")
	}
	if rest := r.memory[r.limit:]; !bytes.Equal(rest, slices.Repeat([]byte{guard}, len(rest))) {
		r.t.Errorf("behind the buffer is written %x", rest)
	}
	return wire
}

// finish returns the finished message as the library parses it.
func (r *response) finish(flags uint16, rcode dnswire.RCode) *dns.Msg {
	r.t.Helper()
	wire := r.octets(flags, rcode)
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		r.t.Fatalf("Unpack(%x): %v", wire, err)
	}
	off := dnswire.HeaderLen + len(r.query.Question)
	for range len(m.Answer) + len(m.Ns) + len(m.Extra) {
		_, next, err := dns.UnpackRR(wire, off)
		if err != nil {
			r.t.Fatalf("UnpackRR(%x, %d): %v", wire, off, err)
		}
		off = next
	}
	counts := [4]byte{byte(len(m.Question)), byte(len(m.Answer)), byte(len(m.Ns)), byte(len(m.Extra))}
	if off != len(wire) || counts != [4]byte{wire[5], wire[7], wire[9], wire[11]} {
		r.t.Errorf("%x has %d octets, records end at %d, sections of %v", wire, len(wire), off, counts)
	}
	return &m
}

// texts returns a section as text, with single spaces.
func texts(rrs []dns.RR) []string {
	list := []string{}
	for _, rr := range rrs {
		list = append(list, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return list
}

// rdata returns the RDATA of a record, given by type and data, as the library
// packs it.
func rdata(tb testing.TB, record string) (dnswire.Type, []byte) {
	tb.Helper()
	rr, err := dns.NewRR(". 5 IN " + record)
	if err != nil {
		tb.Fatalf("NewRR(%q): %v", record, err)
	}
	wire := make([]byte, dns.Len(rr))
	end, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		tb.Fatalf("PackRR(%v): %v", rr, err)
	}
	return dnswire.Type(rr.Header().Rrtype), wire[11:end]
}

// rrset returns an RRset of TTL 5 of records of one type.
func rrset(tb testing.TB, records ...string) dnswire.RRset {
	tb.Helper()
	var typ dnswire.Type
	var all [][]byte
	for _, record := range records {
		var one []byte
		typ, one = rdata(tb, record)
		all = append(all, one)
	}
	return dnswire.NewRRset(typ, 5, all...)
}

// owned returns the printed form of records of one owner and TTL 5.
func owned(owner string, records ...string) []string {
	list := []string{}
	for _, record := range records {
		list = append(list, owner+" 5 IN "+record)
	}
	return list
}

// rotated returns list starting at first and wrapping around.
func rotated[E any](list []E, first int) []E {
	return slices.Concat(list[first:], list[:first])
}

var sets = map[string][]string{
	"A":               {"A 10.0.0.1", "A 10.0.0.2", "A 10.0.0.3", "A 10.0.0.4", "A 10.0.0.5"},
	"AAAA":            {"AAAA fd00::1", "AAAA fd00::2", "AAAA fd00::3"},
	"one record":      {"A 10.0.0.1"},
	"SRV":             {"SRV 0 100 80 a." + web, "SRV 0 100 80 long-name." + web, "SRV 0 100 443 x.example."},
	"TXT of lengths":  {`TXT "a"`, `TXT ""`, `TXT "` + strings.Repeat("x", 255) + `"`, `TXT "bcd"`},
	"PTR":             {"PTR a." + web, "PTR x.example.", "PTR " + web, "PTR cluster.local."},
	"NS":              {"NS b.x.", "NS a.x.", "NS ns." + web},
	"CNAME":           {"CNAME shop.svc.cluster.local."},
	"names and roots": {"PTR .", "PTR a.", "PTR ."},
}

func TestAddRRsetRotates(t *testing.T) {
	for claim, records := range sets {
		t.Run(claim, func(t *testing.T) {
			set := rrset(t, records...)
			for first := range records {
				r := ask(t, web, set.Type, dnswire.MinUDPSize)
				if !r.AddRRset(dnswire.Answer, set, first) {
					t.Errorf("AddRRset(Answer, %q, %d) = false, want true", records, first)
				}
				want := owned(web, rotated(records, first)...)
				if got := texts(r.finish(0, dnswire.NoError).Answer); !slices.Equal(got, want) {
					t.Errorf("AddRRset(Answer, %q, %d) writes\n%q, want\n%q", records, first, got, want)
				}
			}
		})
	}
}

func TestAddRRsetOfNothing(t *testing.T) {
	r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
	before := r.Len()
	if !r.AddRRset(dnswire.Answer, dnswire.RRset{}, 0) || r.Len() != before {
		t.Errorf("AddRRset(Answer, RRset{}, 0) = false or grew the message from %d to %d", before, r.Len())
	}
}

func TestAddRRsetChoosesTheSection(t *testing.T) {
	set := rrset(t, "A 10.0.0.1")
	for section := dnswire.Answer; section <= dnswire.Additional; section++ {
		r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
		r.AddRRset(section, set, 0)
		m := r.finish(0, dnswire.NoError)
		for s, got := range map[dnswire.Section][]dns.RR{dnswire.Answer: m.Answer, dnswire.Authority: m.Ns, dnswire.Additional: m.Extra} {
			want := []string{}
			if s == section {
				want = owned(web, "A 10.0.0.1")
			}
			if !slices.Equal(texts(got), want) {
				t.Errorf("AddRRset(%d, A, 0): section %d is %q, want %q", section, s, texts(got), want)
			}
		}
	}
}

// TestAddRRsetTruncates checks at every limit that as many whole records as fit
// are written and that truncation is reported.
func TestAddRRsetTruncates(t *testing.T) {
	for claim, records := range sets {
		t.Run(claim, func(t *testing.T) {
			set := rrset(t, records...)
			for first := range records {
				order := rotated(records, first)
				ends := recordEnds(t, order)
				empty := ends[0]
				for limit := empty; limit <= ends[len(records)]+1; limit++ {
					r := ask(t, web, set.Type, limit)
					whole := r.AddRRset(dnswire.Answer, set, first)
					fit := len(ends) - 1
					for ends[fit] > limit {
						fit--
					}
					if whole != (fit == len(records)) {
						t.Errorf("AddRRset(Answer, %q, %d) = %v at a limit of %d, where %d records fit", records, first, whole, limit, fit)
					}
					want := owned(web, order[:fit]...)
					if got := texts(r.finish(0, dnswire.NoError).Answer); !slices.Equal(got, want) {
						t.Fatalf("AddRRset(Answer, %q, %d) at a limit of %d writes\n%q, want\n%q", records, first, limit, got, want)
					}
				}
			}
		})
	}
}

// recordEnds returns the length of a message with the first 0, 1, … records.
func recordEnds(t *testing.T, records []string) (ends []int) {
	t.Helper()
	for n := range len(records) + 1 {
		r := ask(t, web, dnswire.TypeA, dnswire.MaxMessage)
		if n > 0 {
			r.AddRRset(dnswire.Answer, rrset(t, records[:n]...), 0)
		}
		ends = append(ends, r.Len())
	}
	return ends
}

func TestReserve(t *testing.T) {
	set := rrset(t, "A 10.0.0.1", "A 10.0.0.2")
	for reserved, want := range map[int]int{0: 2, 16: 1, 17: 0, 32: 0} {
		limit := dnswire.HeaderLen + len(web) + 1 + 4 + 2*16
		r := ask(t, web, dnswire.TypeA, limit)
		if got := r.Room(); got != 32 {
			t.Errorf("Room() = %d, want 32", got)
		}
		r.Reserve(reserved)
		if got := r.Room(); got != 32-reserved {
			t.Errorf("Room() = %d after Reserve(%d), want %d", got, reserved, 32-reserved)
		}
		r.AddRRset(dnswire.Answer, set, 0)
		r.Reserve(-reserved)
		if got := len(r.finish(0, dnswire.NoError).Answer); got != want {
			t.Errorf("%d records fit after Reserve(%d), want %d", got, reserved, want)
		}
		if got := r.Room(); got != 32-16*want {
			t.Errorf("Room() = %d after Reserve(%d) and Reserve(%d), want %d", got, reserved, -reserved, 32-16*want)
		}
	}
}

// TestCompression checks RDATA in the response to a question for
// web.shop.svc.cluster.local, whose labels are at offsets 0c, 10, 15, 19 and
// 21.
func TestCompression(t *testing.T) {
	tests := map[string]struct {
		question, record string
		want             string
	}{
		"the name itself":                 {web, "PTR " + web, "\xc0\x0c"},
		"its parent":                      {web, "PTR shop.svc.cluster.local.", "\xc0\x10"},
		"its last label":                  {web, "PTR local.", "\xc0\x21"},
		"a child":                         {web, "PTR a." + web, "\x01a\xc0\x0c"},
		"a sibling":                       {web, "CNAME db.shop.svc.cluster.local.", "\x02db\xc0\x10"},
		"a cousin of NS":                  {web, "NS ns.dns.cluster.local.", "\x02ns\x03dns\xc0\x19"},
		"a stranger":                      {web, "CNAME www.example.", "\x03www\x07example\x00"},
		"the root":                        {web, "PTR .", "\x00"},
		"the first labels alone are not":  {web, "PTR web.shop.", "\x03web\x04shop\x00"},
		"a label's like end is not":       {web, "PTR uster.local.", "\x05uster\xc0\x21"},
		"a question in upper case":        {strings.ToUpper(web), "PTR db.shop.svc.cluster.local.", "\x02db\xc0\x10"},
		"a question of the root":          {".", "PTR web.", "\x03web\x00"},
		"an octet that looks as a length": {`x\003com.`, "PTR com.", "\x03com\x00"},
		"the same, behind a label":        {`x\003com.`, "PTR a.com.", "\x01a\x03com\x00"},
		"a question longer than 127":      {name255, "PTR " + name255, "\xc0\x0c"},
		"a last label far behind":         {name127, "PTR a.", "\xc1\x08"},
		"SRV is never compressed":         {web, "SRV 1 2 3 " + web, "\x00\x01\x00\x02\x00\x03\x03web\x04shop\x03svc\x07cluster\x05local\x00"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			set := rrset(t, tt.record)
			r := ask(t, tt.question, set.Type, dnswire.MaxMessage)
			if !r.AddRRset(dnswire.Answer, set, 0) {
				t.Fatalf("AddRRset(Answer, %s, 0) = false, want true", tt.record)
			}
			const recordFixed = 12
			wire := r.octets(0, dnswire.NoError)
			if got := string(wire[dnswire.HeaderLen+len(r.query.Question)+recordFixed:]); got != tt.want {
				t.Errorf("AddRRset(Answer, %s, 0) of %s writes %q, want %q", tt.record, tt.question, got, tt.want)
			}
			got := texts(r.finish(0, dnswire.NoError).Answer)
			want := owned(tt.question, tt.record)
			if len(got) != 1 || !strings.EqualFold(got[0], want[0]) {
				t.Errorf("AddRRset(Answer, %s, 0) of %s is read as %q, want %q", tt.record, tt.question, got, want)
			}
		})
	}
}

func soa(zone string) *dnswire.SOA {
	return &dnswire.SOA{
		Zone: dnsname.MustParse(zone), MName: dnsname.MustParse("ns.dns.cluster.local"), RName: dnsname.MustParse("hostmaster.cluster.local"),
		TTL: 30, Serial: 1<<32 - 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minimum: 5,
	}
}

func TestAddSOA(t *testing.T) {
	const numbers = "\xff\xff\xff\xff" + "\x00\x00\x1c\x20" + "\x00\x00\x07\x08" + "\x00\x01\x51\x80" + "\x00\x00\x00\x05"
	tests := map[string]struct {
		question, zone      string
		owner, mname, rname string
	}{
		"below the zone":         {web, "cluster.local.", "\xc0\x19", "\x02ns\x03dns\xc0\x19", "\x0ahostmaster\xc0\x19"},
		"at its apex":            {"cluster.local.", "cluster.local.", "\xc0\x0c", "\x02ns\x03dns\xc0\x0c", "\x0ahostmaster\xc0\x0c"},
		"at its primary":         {"ns.dns.cluster.local.", "cluster.local.", "\xc0\x13", "\xc0\x0c", "\x0ahostmaster\xc0\x13"},
		"names in another zone":  {"10.in-addr.arpa.", "in-addr.arpa.", "\xc0\x0f", "\x02ns\x03dns\x07cluster\x05local\x00", "\x0ahostmaster\x07cluster\x05local\x00"},
		"below the root":         {web, ".", "\x00", "\x02ns\x03dns\xc0\x19", "\x0ahostmaster\xc0\x19"},
		"another suffix":         {"example.", "cluster.local.", "\x07cluster\x05local\x00", "\x02ns\x03dns\x07cluster\x05local\x00", "\x0ahostmaster\x07cluster\x05local\x00"},
		"a question of the root": {".", ".", "\x00", "\x02ns\x03dns\x07cluster\x05local\x00", "\x0ahostmaster\x07cluster\x05local\x00"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			data := tt.mname + tt.rname + numbers
			tail := tt.owner + "\x00\x06\x00\x01\x00\x00\x00\x1e" + string([]byte{0, byte(len(data))}) + data
			text := tt.zone + " 30 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 4294967295 7200 1800 86400 5"
			head := dnswire.HeaderLen + dnsname.MustParse(tt.question).WireLen() + 4
			for limit := head; limit <= head+len(tail)+1; limit++ {
				r := ask(t, tt.question, dnswire.TypeA, limit)
				fits := r.AddSOA(dnswire.Authority, soa(tt.zone))
				if want := limit >= head+len(tail); fits != want {
					t.Errorf("AddSOA(Authority, %s) = %v with %d octets of room, want %v", tt.zone, fits, limit-head, want)
				}
				want, wantText := "", []string{}
				if fits {
					want, wantText = tail, []string{text}
				}
				if got := string(r.octets(0, dnswire.NoError)[head:]); got != want {
					t.Errorf("AddSOA(Authority, %s) with %d octets of room writes %q, want %q", tt.zone, limit-head, got, want)
				}
				if got := texts(r.finish(0, dnswire.NoError).Ns); !slices.Equal(got, wantText) {
					t.Errorf("AddSOA(Authority, %s) with %d octets of room is read as %q, want %q", tt.zone, limit-head, got, wantText)
				}
			}
		})
	}
}

func TestCNAMETargetOwnsTheNextRRset(t *testing.T) {
	type step struct{ owner, record string }
	tests := map[string][]step{
		"one alias": {
			{web, "CNAME db.shop.svc.cluster.local."},
			{"db.shop.svc.cluster.local.", "A 10.0.0.1"},
		},
		"a target that is a pointer": {
			{web, "CNAME svc.cluster.local."},
			{"svc.cluster.local.", "A 10.0.0.1"},
		},
		"a target outside": {
			{web, "CNAME www.example."},
			{"www.example.", "AAAA fd00::1"},
		},
		"a chain": {
			{web, "CNAME a.shop.svc.cluster.local."},
			{"a.shop.svc.cluster.local.", "CNAME cluster.local."},
			{"cluster.local.", "CNAME b.example."},
			{"b.example.", "CNAME c." + web},
			{"c." + web, "SRV 0 100 80 a.b."},
		},
		"a name behind": {
			{web, "CNAME www.example."},
			{"www.example.", "PTR " + web},
		},
	}
	for claim, steps := range tests {
		t.Run(claim, func(t *testing.T) {
			r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
			want := []string{}
			for _, s := range steps {
				if !r.AddRRset(dnswire.Answer, rrset(t, s.record), 0) {
					t.Fatalf("AddRRset(Answer, %s, 0) = false, want true", s.record)
				}
				want = append(want, owned(s.owner, s.record)...)
			}
			if got := texts(r.finish(0, dnswire.NoError).Answer); !slices.Equal(got, want) {
				t.Errorf("AddRRset of %q writes\n%q, want\n%q", steps, got, want)
			}
		})
	}
}

// TestCNAMETargetOwnsWhatFits also covers truncated answers and all rotations
// of an RRset.
func TestCNAMETargetOwnsWhatFits(t *testing.T) {
	for claim, records := range sets {
		t.Run(claim, func(t *testing.T) {
			set := rrset(t, records...)
			for first := range records {
				for limit := 80; limit < 480; limit++ {
					r := ask(t, web, set.Type, limit)
					r.AddRRset(dnswire.Answer, rrset(t, "CNAME a.example."), 0)
					r.AddRRset(dnswire.Answer, set, first)
					all := append(owned(web, "CNAME a.example."), owned("a.example.", rotated(records, first)...)...)
					got := texts(r.finish(0, dnswire.NoError).Answer)
					if !slices.Equal(got, all[:min(len(got), len(all))]) || limit == 479 && len(got) != len(all) {
						t.Fatalf("AddRRset(Answer, %q, %d) behind a CNAME at a limit of %d writes\n%q, want\n%q", records, first, limit, got, all)
					}
				}
			}
		})
	}
}

// TestStartResetsTheResponse checks that no state of the previous response remains.
func TestStartResetsTheResponse(t *testing.T) {
	r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
	r.AddRRset(dnswire.Answer, rrset(t, "CNAME a.example."), 0)
	r.AddSOA(dnswire.Authority, soa("cluster.local"))
	r.AddRRset(dnswire.Answer, rrset(t, "SRV 0 100 80 b."), 0)
	r.SRVTarget(0)
	r.AddOPT(1232, dnswire.BadVers, dnswire.FlagDO)
	r.octets(dnswire.FlagAA|dnswire.FlagTC, dnswire.BadVers)

	r.query = ask(t, web, dnswire.TypeA, dnswire.MinUDPSize).query
	r.Start(r.memory[:0:r.limit], r.query, r.limit)
	r.AddRRset(dnswire.Answer, rrset(t, "A 10.0.0.1"), 0)
	if target, _, _ := r.SRVTarget(0); target != nil {
		t.Errorf("SRVTarget(0) = %q of an answer without SRV, want nil", target)
	}
	m := r.finish(0, dnswire.NoError)
	if got, want := texts(m.Answer), owned(web, "A 10.0.0.1"); !slices.Equal(got, want) || m.Authoritative || m.Truncated || len(m.Ns)+len(m.Extra) > 0 {
		t.Errorf("after another response Start and AddRRset make\n%v, want the answer %q only", m, want)
	}
}

func TestFinish(t *testing.T) {
	const name = "\x01a\x00"
	tests := map[string]struct {
		query, flags uint16
		rcode        dnswire.RCode
		want         uint16
	}{
		"QR is set":                         {0, 0, dnswire.NoError, 0x8000},
		"RD and CD are the query's":         {dnswire.FlagRD | dnswire.FlagCD, 0, dnswire.NoError, 0x8110},
		"AD, TC, AA, RA and Z are not":      {0xffff &^ (0xf << 11) &^ (dnswire.FlagRD | dnswire.FlagCD), 0, dnswire.NoError, 0x8000},
		"the opcode is the query's":         {0xf << 11, 0, dnswire.NotImp, 0xf804},
		"the given flags are set":           {0, dnswire.FlagAA | dnswire.FlagTC, dnswire.NoError, 0x8600},
		"the rcode is":                      {0, 0, dnswire.NXDomain, 0x8003},
		"an extended rcode leaves its part": {0, 0, 0xff7, 0x8007},
		"BADVERS is NOERROR in the header":  {0, 0, dnswire.BadVers, 0x8000},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			packet := message(1, 0, 0, 0, question(name))
			copy(packet, []byte{0xab, 0xcd, byte(tt.query >> 8), byte(tt.query)})
			r := start(t, parse(t, packet), dnswire.MinUDPSize)
			wire := r.octets(tt.flags, tt.rcode)
			want := "\xab\xcd" + string([]byte{byte(tt.want >> 8), byte(tt.want)}) + "\x00\x01\x00\x00\x00\x00\x00\x00" + question(name)
			if string(wire) != want {
				t.Errorf("Finish(%x, %v) of flags %x = %x, want %x", tt.flags, tt.rcode, tt.query, wire, want)
			}
		})
	}
}

func TestStartRepeatsTheQuestion(t *testing.T) {
	tests := map[string]struct {
		packet []byte
		want   []byte // header and question
	}{
		"in its own case":           {message(1, 0, 0, 0, question("\x03WeB\x00")), message(1, 0, 0, 0, question("\x03WeB\x00"))},
		"of a malformed message":    {message(1, 0, 0, 1, question("\x03WeB\x00")), message(1, 0, 0, 0, question("\x03WeB\x00"))},
		"not where it is malformed": {message(1, 0, 0, 0, "\x03WeB"), message(0, 0, 0, 0)},
		"not where there is none":   {message(0, 0, 0, 0), message(0, 0, 0, 0)},
		"not where there are two":   {message(2, 0, 0, 0, question("\x00"), question("\x00")), message(0, 0, 0, 0)},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			var q dnswire.Query
			_ = q.ParseHeader(tt.packet)
			_ = q.ParseBody(tt.packet)
			r := start(t, &q, dnswire.MinUDPSize)
			tt.want[2] |= 0x80 // QR
			if got := r.octets(0, dnswire.NoError); !bytes.Equal(got, tt.want) {
				t.Errorf("Start and Finish of %x make %x, want %x", tt.packet, got, tt.want)
			}
		})
	}
}

func TestResponseAllocatesNothing(t *testing.T) {
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: web, Type: dnswire.TypeSRV, UDPSize: 1232})
	if err != nil {
		t.Fatal(err)
	}
	alias := rrset(t, "CNAME a-name-that-is-longer-than-32-octets.svc.cluster.local.")
	srv := rrset(t, "SRV 0 100 80 a.x.", "SRV 0 100 80 b.x.", "SRV 0 100 443 b.x.")
	glue := rrset(t, "A 10.0.0.1", "A 10.0.0.2")
	names := rrset(t, "NS a-name-that-is-longer-than-32-octets.example.", "NS b.cluster.local.")
	start := soa("a-zone-of-more-than-32-octets.cluster.local")
	cookie := make([]byte, 24)
	buf := make([]byte, 0, dnswire.MaxMessage)
	var q dnswire.Query
	var r dnswire.Response
	var made dnswire.RRsetBuilder
	for claim, limit := range map[string]int{"everything fits": 1232, "little fits": 200} {
		t.Run(claim, func(t *testing.T) {
			got := testing.AllocsPerRun(100, func() {
				_ = q.ParseHeader(packet)
				_ = q.ParseBody(packet)
				r.Start(buf, &q, limit)
				r.AddRRset(dnswire.Answer, alias, 0)
				r.AddRRset(dnswire.Answer, srv, 2)
				for target, at, next := r.SRVTarget(0); target != nil; target, at, next = r.SRVTarget(next) {
					r.AddGlue(glue, target, at)
				}
				r.AddRRset(dnswire.Authority, names, 1)
				r.AddSOA(dnswire.Authority, start)
				r.AddRRset(dnswire.Additional, made.Addr(netip.IPv6Loopback(), 5), 0)
				opt := r.Len()
				r.AddOPT(1232, dnswire.NXDomain, dnswire.FlagDO)
				r.AddOption(opt, dnswire.OptionCookie, cookie)
				r.AddOptionString(opt, dnswire.OptionNSID, "here")
				r.AddEDE(opt, dnswire.EDEOther, "why")
				r.AddPadding(opt, 468)
				r.Finish(dnswire.FlagAA, dnswire.NXDomain)
			})
			if got != 0 {
				t.Errorf("a response allocates %v times, want 0", got)
			}
		})
	}
}
