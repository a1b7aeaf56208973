package dnswire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

const web = "web.shop.svc.cluster.local."

// Names at the limits of RFC 1035, section 2.3.4.
var (
	label63 = strings.Repeat("x", 63)
	name255 = strings.Repeat(label63+".", 3) + strings.Repeat("x", 61) + "."
	name127 = strings.Repeat("a.", 127) // labels
)

// parse parses packet, whose header and body must be valid.
func parse(tb testing.TB, packet []byte) *dnswire.Query {
	tb.Helper()
	q := new(dnswire.Query)
	if err := q.ParseHeader(packet); err != nil {
		tb.Fatalf("ParseHeader(%x): %v", packet, err)
	}
	if err := q.ParseBody(packet); err != nil {
		tb.Fatalf("ParseBody(%x): %v", packet, err)
	}
	return q
}

func TestParseQuery(t *testing.T) {
	cookie8, cookie40 := strings.Repeat("a1", 8), strings.Repeat("b2", 40)
	edns := func(options ...dns.EDNS0) func(*dns.Msg) {
		return func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = options
		}
	}
	tests := map[string]struct {
		name string
		make func(*dns.Msg)
		want dnswire.EDNS
	}{
		"a plain query has no EDNS":  {web, func(*dns.Msg) {}, dnswire.EDNS{}},
		"the root":                   {".", func(*dns.Msg) {}, dnswire.EDNS{}},
		"a name in mixed case":       {"WeB.Shop.SVC.cluster.LOCAL.", func(*dns.Msg) {}, dnswire.EDNS{}},
		"octets that are no letters": {`\000\255[@\.\\.x.`, func(*dns.Msg) {}, dnswire.EDNS{}},
		"a label of 63 octets":       {label63 + ".", func(*dns.Msg) {}, dnswire.EDNS{}},
		"a name of 255 octets":       {name255, func(*dns.Msg) {}, dnswire.EDNS{}},
		"a name of 127 labels":       {name127, func(*dns.Msg) {}, dnswire.EDNS{}},
		"RD, CD, AD and no other":    {web, func(m *dns.Msg) { m.CheckingDisabled, m.AuthenticatedData = true, true }, dnswire.EDNS{}},
		"every other flag": {web, func(m *dns.Msg) {
			m.Response, m.Authoritative, m.Truncated, m.RecursionAvailable = true, true, true, true
		}, dnswire.EDNS{}},
		"another opcode":              {web, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dnswire.EDNS{}},
		"the last opcode":             {web, func(m *dns.Msg) { m.Opcode = 15 }, dnswire.EDNS{}},
		"another class and type":      {web, func(m *dns.Msg) { m.Question[0].Qclass, m.Question[0].Qtype = dns.ClassCHAOS, 65280 }, dnswire.EDNS{}},
		"EDNS without options":        {web, edns(), dnswire.EDNS{Present: true, UDPSize: 1232}},
		"EDNS of size 0":              {web, func(m *dns.Msg) { m.SetEdns0(0, false) }, dnswire.EDNS{Present: true}},
		"EDNS of the greatest size":   {web, func(m *dns.Msg) { m.SetEdns0(65535, false) }, dnswire.EDNS{Present: true, UDPSize: 65535}},
		"EDNS of another version":     {web, func(m *dns.Msg) { m.SetEdns0(512, false); m.IsEdns0().SetVersion(255) }, dnswire.EDNS{Present: true, UDPSize: 512, Version: 255}},
		"DO":                          {web, func(m *dns.Msg) { m.SetEdns0(512, true) }, dnswire.EDNS{Present: true, UDPSize: 512, Flags: dnswire.FlagDO}},
		"other flags of EDNS":         {web, func(m *dns.Msg) { m.SetEdns0(512, false); m.IsEdns0().SetZ(0x7fff) }, dnswire.EDNS{Present: true, UDPSize: 512}},
		"an extended rcode":           {web, func(m *dns.Msg) { m.SetEdns0(512, false); m.IsEdns0().SetExtendedRcode(0xff0) }, dnswire.EDNS{Present: true, UDPSize: 512}},
		"a client cookie":             {web, edns(&dns.EDNS0_COOKIE{Cookie: cookie8}), dnswire.EDNS{Present: true, UDPSize: 1232, Cookie: slices.Repeat([]byte{0xa1}, 8)}},
		"a longest server cookie":     {web, edns(&dns.EDNS0_COOKIE{Cookie: cookie40}), dnswire.EDNS{Present: true, UDPSize: 1232, Cookie: slices.Repeat([]byte{0xb2}, 40)}},
		"the first of two cookies":    {web, edns(&dns.EDNS0_COOKIE{Cookie: cookie8}, &dns.EDNS0_COOKIE{Cookie: cookie40}), dnswire.EDNS{Present: true, UDPSize: 1232, Cookie: slices.Repeat([]byte{0xa1}, 8)}},
		"NSID":                        {web, edns(&dns.EDNS0_NSID{}), dnswire.EDNS{Present: true, UDPSize: 1232, NSID: true}},
		"TCP keepalive":               {web, edns(&dns.EDNS0_TCP_KEEPALIVE{}), dnswire.EDNS{Present: true, UDPSize: 1232, Keepalive: true}},
		"padding":                     {web, edns(&dns.EDNS0_PADDING{Padding: make([]byte, 100)}), dnswire.EDNS{Present: true, UDPSize: 1232, Padding: true}},
		"unknown options":             {web, edns(&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("abc")}, &dns.EDNS0_LOCAL{Code: 65003}, &dns.EDNS0_LOCAL{Code: 65002, Data: []byte("abc")}), dnswire.EDNS{Present: true, UDPSize: 1232}},
		"metadata":                    {web, edns(&dns.EDNS0_LOCAL{Code: 65002}), dnswire.EDNS{Present: true, UDPSize: 1232, Metadata: true}},
		"options after unknown ones":  {web, edns(&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("abc")}, &dns.EDNS0_NSID{}, &dns.EDNS0_PADDING{}), dnswire.EDNS{Present: true, UDPSize: 1232, NSID: true, Padding: true}},
		"records of all sections":     {web, withRecords, dnswire.EDNS{Present: true, UDPSize: 4096}},
		"records with packed names":   {web, func(m *dns.Msg) { m.Compress = true; withRecords(m) }, dnswire.EDNS{Present: true, UDPSize: 4096}},
		"records without EDNS":        {web, func(m *dns.Msg) { m.Answer = records("a. 1 IN A 10.0.0.1") }, dnswire.EDNS{}},
		"an empty record":             {web, func(m *dns.Msg) { m.Extra = []dns.RR{&dns.ANY{Hdr: dns.RR_Header{Name: web, Rrtype: dns.TypeA}}} }, dnswire.EDNS{}},
		"an owner name of 255 octets": {web, func(m *dns.Msg) { m.Answer = records(name255 + " 1 IN A 10.0.0.1") }, dnswire.EDNS{}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			m := new(dns.Msg).SetQuestion(tt.name, dns.TypeSRV)
			tt.make(m)
			packet, err := m.Pack()
			if err != nil {
				t.Fatalf("Pack(%v): %v", m, err)
			}
			q := parse(t, packet)
			if !reflect.DeepEqual(q.EDNS, tt.want) {
				t.Errorf("ParseBody(%x): EDNS = %+v, want %+v", packet, q.EDNS, tt.want)
			}
			checkAgainst(t, q, m, packet)
		})
	}
}

// withRecords adds records to all sections, with an OPT record among them.
func withRecords(m *dns.Msg) {
	m.Answer = records(web+" 1 IN SOA a. b. 1 2 3 4 5", web+" 1 IN A 10.0.0.1")
	m.Ns = records("svc.cluster.local. 1 IN NS ns." + web)
	m.Extra = records("ns." + web + " 1 IN A 10.0.0.1")
	m.SetEdns0(4096, false)
	m.Extra = append(m.Extra, records("other."+web+" 1 IN TSIG hmac-sha256. 1 2 0 3 4 0")...)
}

func records(texts ...string) (rrs []dns.RR) {
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			rr = &dns.RFC3597{Hdr: dns.RR_Header{Name: strings.Fields(text)[0], Rrtype: 65280, Class: dns.ClassINET}, Rdata: "abcd"}
		}
		rrs = append(rrs, rr)
	}
	return rrs
}

// checkAgainst compares q with m, the library's parse of packet.
func checkAgainst(t *testing.T, q *dnswire.Query, m *dns.Msg, packet []byte) {
	t.Helper()
	flags := binary.BigEndian.Uint16(packet[2:])
	if q.ID != m.Id || q.Flags != flags || int(q.Opcode) != m.Opcode || q.QuestionCount() != len(m.Question) {
		t.Errorf("ParseHeader(%x): ID %d, flags %x, opcode %d, %d questions, want %d, %x, %d, %d",
			packet, q.ID, q.Flags, q.Opcode, q.QuestionCount(), m.Id, flags, m.Opcode, len(m.Question))
	}
	name, err := dnsname.Parse(m.Question[0].Name)
	if err != nil || string(q.QName()) != name.WireLabels() {
		t.Errorf("ParseBody(%x): QName = %q, want that of %s (%v)", packet, q.QName(), m.Question[0].Name, err)
	}
	if uint16(q.Type) != m.Question[0].Qtype || uint16(q.Class) != m.Question[0].Qclass {
		t.Errorf("ParseBody(%x): type %d, class %d, want %d, %d", packet, q.Type, q.Class, m.Question[0].Qtype, m.Question[0].Qclass)
	}
	if want := packet[dnswire.HeaderLen:][:name.WireLen()+4]; string(q.Question) != string(want) {
		t.Errorf("ParseBody(%x): Question = %q, want %q", packet, q.Question, want)
	}
	opt := m.IsEdns0()
	if q.EDNS.Present != (opt != nil) {
		t.Fatalf("ParseBody(%x): EDNS.Present = %v, want %v", packet, q.EDNS.Present, opt != nil)
	}
	if opt != nil && (q.EDNS.UDPSize != opt.UDPSize() || (q.EDNS.Flags&dnswire.FlagDO != 0) != opt.Do() || q.EDNS.Version != opt.Version()) {
		t.Errorf("ParseBody(%x): EDNS = %+v, want that of %v", packet, q.EDNS, opt)
	}
}

// message builds a query of ID 0 from the counts of its sections and what
// follows its header.
func message(questions, answer, authority, additional byte, parts ...string) []byte {
	return []byte("\x00\x00\x01\x00" + string([]byte{0, questions, 0, answer, 0, authority, 0, additional}) + strings.Join(parts, ""))
}

// question builds a question of type A and class IN.
func question(name string) string { return name + "\x00\x01\x00\x01" }

// record builds a record of type A and TTL 0.
func record(owner, rdata string) string {
	return owner + "\x00\x01\x00\x01\x00\x00\x00\x00" + string([]byte{0, byte(len(rdata))}) + rdata
}

// opt builds an OPT record of size 1232.
func opt(owner, options string) string {
	return owner + "\x00\x29\x04\xd0\x00\x00\x00\x00" + string([]byte{0, byte(len(options))}) + options
}

// option builds an option of an OPT record.
func option(code dnswire.OptionCode, value string) string {
	return string([]byte{0, byte(code), 0, byte(len(value))}) + value
}

func TestParseBodyRefuses(t *testing.T) {
	const (
		root = "\x00"
		name = "\x03web\x04shop\x00"
	)
	x := func(n int) string { return strings.Repeat("x", n) }
	label := func(n int) string { return string([]byte{byte(n)}) + x(n) }
	labels := func(sizes ...int) string {
		var b strings.Builder
		for _, n := range sizes {
			b.WriteString(label(n))
		}
		return b.String()
	}
	address := record(name, "\x0a\x00\x00\x01")
	cookie := func(n int) string { return option(dnswire.OptionCookie, x(n)) }
	tests := map[string]struct {
		packet []byte
		want   error // nil for the valid variants
	}{
		"a question":                            {message(1, 0, 0, 0, question(name)), nil},
		"no question where one is announced":    {message(1, 0, 0, 0), dnswire.ErrMalformed},
		"a name without its end":                {message(1, 0, 0, 0, "\x03web"), dnswire.ErrMalformed},
		"a label cut short":                     {message(1, 0, 0, 0, "\x03we"), dnswire.ErrMalformed},
		"a question without type and class":     {message(1, 0, 0, 0, name), dnswire.ErrMalformed},
		"a question without class":              {message(1, 0, 0, 0, name, "\x00\x01"), dnswire.ErrMalformed},
		"a question with half a class":          {message(1, 0, 0, 0, name, "\x00\x01\x00"), dnswire.ErrMalformed},
		"a pointer as the question's name":      {message(1, 0, 0, 0, question("\xc0\x0c")), dnswire.ErrMalformed},
		"a pointer in the question's name":      {message(1, 0, 0, 0, question("\x03web\xc0\x00")), dnswire.ErrMalformed},
		"a label of 63 octets":                  {message(1, 0, 0, 0, question(label(63)+root)), nil},
		"a label of 64 octets":                  {message(1, 0, 0, 0, question(label(64)+root)), dnswire.ErrMalformed},
		"a label type of EDNS":                  {message(1, 0, 0, 0, question("\x41"+x(64)+root)), dnswire.ErrMalformed},
		"a label type that never was":           {message(1, 0, 0, 0, question("\x80"+x(128)+root)), dnswire.ErrMalformed},
		"a name of 255 octets":                  {message(1, 0, 0, 0, question(labels(63, 63, 63, 61)+root)), nil},
		"a name of 256 octets":                  {message(1, 0, 0, 0, question(labels(63, 63, 63, 62)+root)), dnswire.ErrMalformed},
		"a name of 256 octets, the last empty":  {message(1, 0, 0, 0, question(labels(63, 63, 63, 60, 1)+root)), dnswire.ErrMalformed},
		"a name of 319 octets":                  {message(1, 0, 0, 0, question(labels(63, 63, 63, 63, 63)+root)), dnswire.ErrMalformed},
		"a name of 128 labels":                  {message(1, 0, 0, 0, question(strings.Repeat("\x01x", 128)+root)), dnswire.ErrMalformed},
		"one octet behind the question":         {message(1, 0, 0, 0, question(name), "\x00"), dnswire.ErrMalformed},
		"a second question not announced":       {message(1, 0, 0, 0, question(name), question(name)), dnswire.ErrMalformed},
		"an answer":                             {message(1, 1, 0, 0, question(name), address), nil},
		"no answer where one is announced":      {message(1, 1, 0, 0, question(name)), dnswire.ErrMalformed},
		"one answer where two are announced":    {message(1, 2, 0, 0, question(name), address), dnswire.ErrMalformed},
		"two answers where one is announced":    {message(1, 1, 0, 0, question(name), address, address), dnswire.ErrMalformed},
		"a record without its last octet":       {message(1, 0, 1, 0, question(name), address[:len(address)-1]), dnswire.ErrMalformed},
		"a record without RDATA":                {message(1, 0, 1, 0, question(name), address[:len(address)-4]), dnswire.ErrMalformed},
		"a record without the whole length":     {message(1, 0, 1, 0, question(name), address[:len(address)-5]), dnswire.ErrMalformed},
		"a record's owner alone":                {message(1, 0, 1, 0, question(name), name), dnswire.ErrMalformed},
		"a record's owner without its end":      {message(1, 0, 1, 0, question(name), "\x03web"), dnswire.ErrMalformed},
		"an empty record":                       {message(1, 0, 1, 0, question(name), record(name, "")), nil},
		"an owner that is a pointer":            {message(1, 1, 0, 0, question(name), record("\xc0\x0c", "")), nil},
		"an owner that ends in a pointer":       {message(1, 1, 0, 0, question(name), record("\x02db\xff\xff", "")), nil},
		"an owner that is half a pointer":       {message(1, 1, 0, 0, question(name), "\xc0"), dnswire.ErrMalformed},
		"an owner of a label type of EDNS":      {message(1, 1, 0, 0, question(name), record("\x41"+x(64)+root, "")), dnswire.ErrMalformed},
		"an owner of 255 octets":                {message(1, 1, 0, 0, question(name), record(labels(63, 63, 63, 61)+root, "")), nil},
		"an owner of 256 octets":                {message(1, 1, 0, 0, question(name), record(labels(63, 63, 63, 62)+root, "")), dnswire.ErrMalformed},
		"an OPT record":                         {message(1, 0, 0, 1, question(name), opt(root, "")), nil},
		"an OPT record behind another":          {message(1, 0, 0, 2, question(name), address, opt(root, "")), nil},
		"two OPT records":                       {message(1, 0, 0, 2, question(name), opt(root, ""), opt(root, "")), dnswire.ErrMalformed},
		"an OPT record that is not the root's":  {message(1, 0, 0, 1, question(name), opt(name, "")), dnswire.ErrMalformed},
		"an OPT record's owner is a pointer":    {message(1, 0, 0, 1, question(name), opt("\xc0\x15", "")), dnswire.ErrMalformed},
		"an OPT record in the answer section":   {message(1, 1, 0, 0, question(name), opt(root, "")), dnswire.ErrMalformed},
		"an OPT record in the authority":        {message(1, 0, 1, 0, question(name), opt(root, "")), dnswire.ErrMalformed},
		"an OPT record without its last octet":  {message(1, 0, 0, 1, question(name), opt(root, option(3, "abc"))[:17]), dnswire.ErrMalformed},
		"half an option's head":                 {message(1, 0, 0, 1, question(name), opt(root, "\x00\x03\x00")), dnswire.ErrMalformed},
		"an option longer than its record":      {message(1, 0, 0, 1, question(name), opt(root, "\x00\x03\x00\x04abc")), dnswire.ErrMalformed},
		"an option shorter than its record":     {message(1, 0, 0, 1, question(name), opt(root, "\x00\x03\x00\x02abc")), dnswire.ErrMalformed},
		"an option that reaches its record end": {message(1, 0, 0, 1, question(name), opt(root, "\x00\x03\x00\x03abc")), nil},
		"an option's longest length":            {message(1, 0, 0, 1, question(name), opt(root, "\x00\x03\xff\xff")), dnswire.ErrMalformed},
		"a cookie of no octets":                 {message(1, 0, 0, 1, question(name), opt(root, cookie(0))), dnswire.ErrMalformed},
		"a cookie of 7 octets":                  {message(1, 0, 0, 1, question(name), opt(root, cookie(7))), dnswire.ErrMalformed},
		"a cookie of 8 octets":                  {message(1, 0, 0, 1, question(name), opt(root, cookie(8))), nil},
		"a cookie of 9 octets":                  {message(1, 0, 0, 1, question(name), opt(root, cookie(9))), dnswire.ErrMalformed},
		"a cookie of 15 octets":                 {message(1, 0, 0, 1, question(name), opt(root, cookie(15))), dnswire.ErrMalformed},
		"a cookie of 16 octets":                 {message(1, 0, 0, 1, question(name), opt(root, cookie(16))), nil},
		"a cookie of 40 octets":                 {message(1, 0, 0, 1, question(name), opt(root, cookie(40))), nil},
		"a cookie of 41 octets":                 {message(1, 0, 0, 1, question(name), opt(root, cookie(41))), dnswire.ErrMalformed},
		"a second cookie of a bad length":       {message(1, 0, 0, 1, question(name), opt(root, cookie(8)+cookie(7))), nil}, // RFC 7873, section 5.2
		"a first cookie of a bad length":        {message(1, 0, 0, 1, question(name), opt(root, cookie(7)+cookie(8))), dnswire.ErrMalformed},
		"a good OPT record and garbage":         {message(1, 0, 0, 1, question(name), opt(root, cookie(8)), "\x00"), dnswire.ErrMalformed},
		"no question":                           {message(0, 0, 0, 0), dnswire.ErrQuestions},
		"no question but a cookie":              {message(0, 0, 0, 1, opt(root, cookie(8))), dnswire.ErrQuestions},
		"no question and garbage":               {message(0, 0, 0, 0, "\x00"), dnswire.ErrMalformed},
		"two questions":                         {message(2, 0, 0, 0, question(name), question(name)), dnswire.ErrQuestions},
		"two questions and an OPT record":       {message(2, 0, 0, 1, question(name), question(name), opt(root, "")), dnswire.ErrQuestions},
		"two questions announced":               {message(2, 0, 0, 0, question(name)), dnswire.ErrMalformed},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			var q dnswire.Query
			if err := q.ParseHeader(tt.packet); err != nil {
				t.Fatalf("ParseHeader(%x): %v", tt.packet, err)
			}
			if err := q.ParseBody(tt.packet); !errors.Is(err, tt.want) {
				t.Errorf("ParseBody(%x) = %v, want %v", tt.packet, err, tt.want)
			}
			if got := q.QuestionCount(); got != int(tt.packet[5]) {
				t.Errorf("ParseHeader(%x): Questions() = %d, want %d", tt.packet, got, tt.packet[5])
			}
			// A response needs an OPT record if the query's could be parsed
			// (RFC 6891, section 6.1.1).
			readable := tt.packet[11] > 0 && strings.Contains(string(tt.packet), root+"\x00\x29") &&
				claim != "an OPT record that is not the root's" && claim != "an OPT record without its last octet"
			if q.EDNS.Present != readable {
				t.Errorf("ParseBody(%x): EDNS = %+v, want it present: %v", tt.packet, q.EDNS, readable)
			}
			if errors.Is(tt.want, dnswire.ErrQuestions) && q.Question != nil {
				t.Errorf("ParseBody(%x): Question = %q, want none", tt.packet, q.Question)
			}
		})
	}
}

// TestParseBodyWithoutQuestion checks a query for a cookie only (RFC 7873,
// section 5.4).
func TestParseBodyWithoutQuestion(t *testing.T) {
	packet := message(0, 0, 0, 1, opt("\x00", option(dnswire.OptionCookie, "8 octets")))
	var q dnswire.Query
	_ = q.ParseHeader(packet)
	if err := q.ParseBody(packet); !errors.Is(err, dnswire.ErrQuestions) || string(q.EDNS.Cookie) != "8 octets" || !q.EDNS.Present {
		t.Errorf("ParseBody(%x) = %v, EDNS = %+v, want %v and a cookie", packet, err, q.EDNS, dnswire.ErrQuestions)
	}
}

// fullQuery returns a query that sets all fields of a Query.
func fullQuery(tb testing.TB) []byte {
	tb.Helper()
	m := new(dns.Msg).SetQuestion(web, dns.TypeSRV)
	m.Opcode = 5
	withRecords(m)
	m.SetEdns0(1232, true)
	o := m.IsEdns0()
	o.SetVersion(1)
	o.Option = []dns.EDNS0{
		&dns.EDNS0_COOKIE{Cookie: "0123456789abcdef"}, &dns.EDNS0_NSID{}, &dns.EDNS0_TCP_KEEPALIVE{}, &dns.EDNS0_PADDING{Padding: []byte("x")},
	}
	m.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT && rr != dns.RR(o) })
	packet, err := m.Pack()
	if err != nil {
		tb.Fatalf("Pack(%v): %v", m, err)
	}
	return packet
}

func TestParseRefusesEveryPrefix(t *testing.T) {
	packet := fullQuery(t)
	parse(t, packet)
	var q dnswire.Query
	for n := range packet {
		want := dnswire.ErrMalformed
		err := q.ParseHeader(packet[:n:n])
		if n < dnswire.HeaderLen {
			want = dnswire.ErrShort
		}
		if err == nil {
			err = q.ParseBody(packet[:n:n])
		}
		if !errors.Is(err, want) {
			t.Errorf("ParseHeader and ParseBody of %d octets of %d: %v, want %v", n, len(packet), err, want)
		}
	}
}

func TestParseResetsTheQuery(t *testing.T) {
	small := message(1, 0, 0, 0, question("\x01a\x00"))
	tests := map[string]struct {
		packet []byte
		err    error
	}{
		"a smaller query":              {small, nil},
		"a query of the root":          {message(1, 0, 0, 0, question("\x00")), nil},
		"a malformed query":            {small[:len(small)-1], dnswire.ErrMalformed},
		"a query without a question":   {message(0, 0, 0, 0), dnswire.ErrQuestions},
		"a query with two questions":   {message(2, 0, 0, 0, question("\x00"), question("\x00")), dnswire.ErrQuestions},
		"a header alone":               {message(1, 0, 0, 0), dnswire.ErrMalformed},
		"what is shorter than headers": {small[:dnswire.HeaderLen-1], dnswire.ErrShort},
		"nothing":                      {nil, dnswire.ErrShort},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			var fresh dnswire.Query
			used := *parse(t, fullQuery(t))
			for _, q := range []*dnswire.Query{&fresh, &used} {
				err := q.ParseHeader(tt.packet)
				if err == nil {
					err = q.ParseBody(tt.packet)
				}
				if !errors.Is(err, tt.err) {
					t.Fatalf("ParseHeader and ParseBody(%x) = %v, want %v", tt.packet, err, tt.err)
				}
			}
			if got, want := show(&used), show(&fresh); got != want {
				t.Errorf("after another query, %x is parsed as\n%s, want\n%s", tt.packet, got, want)
			}
		})
	}
}

// show formats all exported state of q.
func show(q *dnswire.Query) string {
	return fmt.Sprintf("%d %x %d %q %v %d %+v %q %d", q.ID, q.Flags, q.Opcode, q.Question, q.Type, q.Class, q.EDNS, q.QName(), q.QuestionCount())
}

// TestParseBodyAfterErrShort checks that a caller who ignores the error for the
// header gets another one, not the counts of the previous query.
func TestParseBodyAfterErrShort(t *testing.T) {
	q := parse(t, fullQuery(t))
	packet := []byte{1, 2, 3}
	if err := q.ParseHeader(packet); !errors.Is(err, dnswire.ErrShort) {
		t.Fatalf("ParseHeader(%x) = %v, want %v", packet, err, dnswire.ErrShort)
	}
	if err := q.ParseBody(packet); !errors.Is(err, dnswire.ErrMalformed) {
		t.Errorf("ParseBody(%x) = %v, want %v", packet, err, dnswire.ErrMalformed)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	full := fullQuery(t)
	tests := map[string][]byte{
		"a full query":      full,
		"a malformed query": full[:len(full)-1],
		"a short packet":    full[:5],
		"two questions":     message(2, 0, 0, 0, question("\x00"), question("\x00")),
	}
	for claim, packet := range tests {
		t.Run(claim, func(t *testing.T) {
			var q dnswire.Query
			got := testing.AllocsPerRun(100, func() {
				if q.ParseHeader(packet) == nil {
					_ = q.ParseBody(packet)
				}
			})
			if got != 0 {
				t.Errorf("ParseHeader and ParseBody(%x) allocate %v times, want 0", packet, got)
			}
		})
	}
}

func FuzzQuery(f *testing.F) {
	for _, packet := range [][]byte{
		nil, []byte("short"), fullQuery(f), message(0, 0, 0, 0), message(1, 0, 0, 0, question("\x00")),
		message(1, 0, 0, 0, question("\x03WeB\x04sh.p\x00")), message(1, 0, 0, 0, question("\xc0\x0c")),
		message(1, 1, 0, 0, question("\x01a\x00"), record("\xc0\x0c", "\x0a\x00\x00\x01")),
		message(1, 0, 0, 1, question("\x01a\x00"), opt("\x00", option(dnswire.OptionCookie, "8 octets")+option(dnswire.OptionNSID, ""))),
		message(1, 0, 0, 2, question("\x01a\x00"), opt("\x00", ""), opt("\x00", "")),
		message(0, 0, 0, 1, opt("\x00", option(dnswire.OptionCookie, "8 octets"))),
		message(2, 0, 0, 0, question("\x00"), question("\x00")),
	} {
		f.Add(packet)
	}
	for _, q := range []dnswire.QuerySpec{
		{Name: web, Type: dnswire.TypeSRV, Flags: dnswire.FlagRD, UDPSize: 1232},
		{Name: name255, Type: dnswire.TypeANY, Class: dnswire.ClassCHAOS},
		{Name: name127, Type: dnswire.TypeAAAA, UDPSize: 512, Options: map[dnswire.OptionCode][]byte{dnswire.OptionPadding: make([]byte, 9)}},
	} {
		packet, err := dnswire.NewQuery(q)
		if err != nil {
			f.Fatalf("NewQuery(%+v): %v", q, err)
		}
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		var m dns.Msg
		unpackErr := m.Unpack(packet)
		if text, err := dnswire.ParseMessage(packet); (err == nil) != (unpackErr == nil) {
			t.Errorf("ParseMessage(%x) = %+v, %v, and Unpack says %v", packet, text, err, unpackErr)
		}
		var q dnswire.Query
		if err := q.ParseHeader(packet); err != nil {
			if !errors.Is(err, dnswire.ErrShort) || len(packet) >= dnswire.HeaderLen {
				t.Errorf("ParseHeader(%x) = %v, want %v for less than a header only", packet, err, dnswire.ErrShort)
			}
			return
		}
		err := q.ParseBody(packet)
		answer := checkResponse(t, &q)
		if err != nil || unpackErr != nil {
			return
		}
		checkAgainst(t, &q, &m, packet)
		if answer.Question[0] != m.Question[0] {
			t.Errorf("the response to %x repeats the question %v, want %v", packet, answer.Question[0], m.Question[0])
		}
	})
}

// checkResponse checks that a response to q can be parsed, whatever the state
// of q.
func checkResponse(t *testing.T, q *dnswire.Query) *dns.Msg {
	t.Helper()
	r := start(t, q, dnswire.MinUDPSize)
	r.AddSOA(dnswire.Authority, &dnswire.SOA{Zone: dnsname.MustParse("a")})
	at := r.Len()
	r.AddOPT(1232, dnswire.FormErr, q.EDNS.Flags)
	r.AddPadding(at, 128)
	return r.finish(0, dnswire.FormErr)
}
