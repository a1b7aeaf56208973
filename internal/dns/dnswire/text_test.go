package dnswire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

func TestParseType(t *testing.T) {
	tests := map[string]struct {
		in   string
		want dnswire.Type
	}{
		"a mnemonic":                 {"AAAA", dnswire.TypeAAAA},
		"in lower case":              {"srv", dnswire.TypeSRV},
		"in mixed case":              {"CNaMe", dnswire.TypeCNAME},
		"a QTYPE":                    {"ANY", dnswire.TypeANY},
		"a transfer":                 {"ixfr", dnswire.TypeIXFR},
		"TYPE and a number":          {"TYPE65280", 65280},
		"TYPE in lower case":         {"type1", dnswire.TypeA},
		"the lowest number":          {"TYPE0", 0},
		"the greatest number":        {"TYPE65535", 65535},
		"a mnemonic that has a dash": {"NSAP-PTR", 23},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if got, err := dnswire.ParseType(tt.in); err != nil || got != tt.want {
				t.Errorf("ParseType(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestParseTypeRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":                 "",
		"an unknown word":         "ADDRESS",
		"a number alone":          "1",
		"TYPE alone":              "TYPE",
		"a number too great":      "TYPE65536",
		"a number far too great":  "TYPE99999999999999999999",
		"a negative number":       "TYPE-1",
		"a number with a sign":    "TYPE+1",
		"a word behind a number":  "TYPE1x",
		"a space behind":          "TYPE1 ",
		"a space before a number": "TYPE 1",
		"a hexadecimal number":    "TYPE0x1",
		"digits in groups":        "TYPE1_0",
		"a space behind a word":   "A ",
	}
	for claim, in := range tests {
		t.Run(claim, func(t *testing.T) {
			got, err := dnswire.ParseType(in)
			if err == nil {
				t.Fatalf("ParseType(%q) = %v, want an error", in, got)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", in)) {
				t.Errorf("ParseType(%q): error %q does not name it", in, err)
			}
		})
	}
}

func TestEveryTypeIsReadAsItIsPrinted(t *testing.T) {
	for n := range 1 << 16 {
		typ := dnswire.Type(n)
		if got, err := dnswire.ParseType(typ.String()); err != nil || got != typ {
			t.Errorf("ParseType(Type(%d).String()) = ParseType(%q) = %d, %v, want %d", n, typ.String(), got, err, n)
		}
	}
}

func TestRCodeString(t *testing.T) {
	tests := map[dnswire.RCode]string{
		dnswire.NoError: "NOERROR", dnswire.FormErr: "FORMERR", dnswire.ServFail: "SERVFAIL", dnswire.NXDomain: "NXDOMAIN",
		dnswire.NotImp: "NOTIMP", dnswire.Refused: "REFUSED", dnswire.BadVers: "BADVERS",
		12: "RCODE12", 15: "RCODE15", 24: "RCODE24", 255: "RCODE255", 4095: "RCODE4095",
	}
	for code, want := range tests {
		if got := code.String(); got != want {
			t.Errorf("RCode(%d).String() = %q, want %q", uint16(code), got, want)
		}
	}
	for code := range dnswire.RCode(1 << 12) {
		text := code.String()
		if got, err := dnswire.ParseRCode(text); !strings.HasPrefix(text, "RCODE") && (err != nil || got != code) {
			t.Errorf("ParseRCode(%q) = %d, %v, want %d", text, got, err, code)
		}
		if got := code.String(); got == "" || got != strings.ToUpper(got) {
			t.Errorf("RCode(%d).String() = %q, want a mnemonic or RCODE and the number", uint16(code), got)
		}
	}
}

func TestOptionCodeString(t *testing.T) {
	tests := map[dnswire.OptionCode]string{
		dnswire.OptionNSID: "NSID", dnswire.OptionCookie: "COOKIE", dnswire.OptionKeepalive: "KEEPALIVE", dnswire.OptionPadding: "PADDING",
		dnswire.OptionEDE: "EDE", 0: "0", 65001: "65001",
	}
	for code, want := range tests {
		if got := code.String(); got != want {
			t.Errorf("OptionCode(%d).String() = %q, want %q", uint16(code), got, want)
		}
	}
}

func TestRecords(t *testing.T) {
	tests := map[string]struct {
		records []string
		want    []string // data
	}{
		"addresses":        {[]string{"A 10.0.0.1", "A 10.0.0.2"}, []string{"10.0.0.1", "10.0.0.2"}},
		"IPv6 addresses":   {[]string{"AAAA fd00::1"}, []string{"fd00::1"}},
		"names":            {[]string{"PTR a." + web, "PTR ."}, []string{"a." + web, "."}},
		"SRV":              {[]string{"SRV 0 100 443 a.x."}, []string{"0 100 443 a.x."}},
		"TXT is quoted":    {[]string{`TXT "a \"b\" c"`}, []string{`"a \"b\" c"`}},
		"a type of no one": {[]string{`TYPE65280 \# 3 abcdef`}, []string{`\# 3 abcdef`}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			got, err := rrset(t, tt.records...).Records(dnsname.MustParse(web))
			var want []dnswire.Record
			for i, data := range tt.want {
				want = append(want, dnswire.Record{Name: web, TTL: 5, Type: strings.Fields(tt.records[i])[0], Data: data})
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Records(%s) of %q = %q, %v, want %q", web, tt.records, got, err, want)
			}
			for i, r := range got {
				if line := web + "\t5\tIN\t" + want[i].Type + "\t" + want[i].Data; r.String() != line {
					t.Errorf("%#v.String() = %q, want %q", r, r.String(), line)
				}
			}
		})
	}
}

// TestRecordsAreAMasterFile checks that printed records can be parsed again,
// with any octets in the owner.
func TestRecordsAreAMasterFile(t *testing.T) {
	for _, owner := range []string{".", web, `a\.b.x.`, `\000\032\255"();@$'\\.x.`, name255} {
		name := dnsname.MustParse(owner)
		for claim, records := range sets {
			set := rrset(t, records...)
			got, err := set.Records(name)
			if err != nil || len(got) != len(records) {
				t.Fatalf("Records(%s) of %s = %q, %v, want %d records", owner, claim, got, err, len(records))
			}
			var all [][]byte
			for _, r := range got {
				rr, err := dns.NewRR(r.String())
				if err != nil {
					t.Fatalf("NewRR(%q): %v", r, err)
				}
				if n, err := dnsname.Parse(rr.Header().Name); err != nil || n != name {
					t.Errorf("%q is owned by %s, want %s", r, rr.Header().Name, owner)
				}
				_, one := rdata(t, r.Type+" "+r.Data)
				all = append(all, one)
			}
			if again := dnswire.NewRRset(set.Type, set.TTL(), all...); !again.Equal(set) {
				t.Errorf("Records(%s) of %s are read as %x, want %x", owner, claim, again.RData(), set.RData())
			}
		}
	}
}

func TestRecordsNamesWhatItCannotRead(t *testing.T) {
	set := dnswire.NewRRset(dnswire.TypeA, 5, []byte{1, 2, 3})
	if got, err := set.Records(dnsname.MustParse(web)); err == nil || !strings.Contains(err.Error(), web) {
		t.Errorf("Records(%s) of an address of 3 octets = %q, %v, want an error that names it", web, got, err)
	}
}

func TestSOARecord(t *testing.T) {
	got := soa("cluster.local").Record()
	want := "cluster.local.\t30\tIN\tSOA\tns.dns.cluster.local. hostmaster.cluster.local. 4294967295 7200 1800 86400 5"
	if got.String() != want {
		t.Errorf("SOA.Record() = %q, want %q", got, want)
	}
	if _, err := dns.NewRR(got.String()); err != nil {
		t.Errorf("NewRR(%q): %v", got, err)
	}
}

func TestParseMessage(t *testing.T) {
	r := ask(t, web, dnswire.TypeSRV, dnswire.MaxMessage)
	r.AddRRset(dnswire.Answer, rrset(t, "CNAME db."+web), 0)
	r.AddRRset(dnswire.Answer, rrset(t, "SRV 0 100 80 a.x."), 0)
	target, at, _ := r.SRVTarget(0)
	r.AddSOA(dnswire.Authority, soa("cluster.local"))
	r.AddGlue(rrset(t, "A 10.0.0.1"), target, at)
	opt := r.Len()
	r.AddOPT(1232, dnswire.BadVers, dnswire.FlagDO)
	r.AddOptionString(opt, dnswire.OptionCookie, "8 octets")
	r.AddOptionString(opt, dnswire.OptionNSID, "here")
	r.AddOption(opt, dnswire.OptionKeepalive, []byte{1, 44})
	r.AddOption(opt, 65001, []byte{0xab})
	r.AddOption(opt, 65002, nil)
	r.AddEDE(opt, dnswire.EDEProhibited, "why")
	r.AddOption(opt, dnswire.OptionPadding, make([]byte, 2))
	wire := r.octets(dnswire.FlagAA|dnswire.FlagTC|dnswire.FlagRA|dnswire.FlagAD, dnswire.BadVers)

	got, err := dnswire.ParseMessage(wire)
	want := &dnswire.Message{
		Name: web, Type: "SRV", Status: "BADVERS", Code: dnswire.BadVers, Flags: []string{"qr", "aa", "tc", "ra", "ad"},
		Answer: []dnswire.Record{
			{Name: web, TTL: 5, Type: "CNAME", Data: "db." + web},
			{Name: "db." + web, TTL: 5, Type: "SRV", Data: "0 100 80 a.x."},
		},
		Authority:  []dnswire.Record{soa("cluster.local").Record()},
		Additional: []dnswire.Record{{Name: "a.x.", TTL: 5, Type: "A", Data: "10.0.0.1"}},
		Errors:     []dnswire.ExtendedError{{Code: 18, Text: "why"}},
		EDNS:       true,
		Options: map[dnswire.OptionCode]string{
			dnswire.OptionCookie: "38206f6374657473", dnswire.OptionNSID: "68657265", dnswire.OptionKeepalive: "012c",
			dnswire.OptionPadding: "0000", 65001: "ab", 65002: "",
		},
	}
	if err != nil {
		t.Fatalf("ParseMessage(%x): %v", wire, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ParseMessage(%x) =\n%+v, want\n%+v", wire, *got, *want)
	}
	text := ";; status: BADVERS, flags: qr aa tc ra ad\n" +
		";; answer\n" + web + "\t5\tIN\tCNAME\tdb." + web + "\ndb." + web + "\t5\tIN\tSRV\t0 100 80 a.x.\n" +
		";; authority\n" + soa("cluster.local").Record().String() + "\n" +
		";; additional\na.x.\t5\tIN\tA\t10.0.0.1\n" +
		";; error: 18 (why)\n"
	if got.String() != text {
		t.Errorf("Message.String() =\n%s, want\n%s", got, text)
	}
}

func TestParseShortMessages(t *testing.T) {
	packet := message(1, 0, 0, 0, question("\x01A\x00"))
	got, err := dnswire.ParseMessage(packet)
	want := &dnswire.Message{
		Name: "A.", Type: "A", Status: "NOERROR", Flags: []string{"rd"},
		Answer: []dnswire.Record{}, Authority: []dnswire.Record{}, Additional: []dnswire.Record{}, Options: map[dnswire.OptionCode]string{},
	}
	if err != nil {
		t.Fatalf("ParseMessage(%x): %v", packet, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ParseMessage(%x) =\n%+v, want\n%+v", packet, *got, *want)
	}
	if text := ";; status: NOERROR, flags: rd\n"; got.String() != text {
		t.Errorf("Message.String() =\n%s, want\n%s", got, text)
	}
	asJSON, err := json.Marshal(got)
	if want := `{"name":"A.","type":"A","status":"NOERROR","flags":["rd"],"answer":[],"authority":[],"additional":[]}`; err != nil || string(asJSON) != want {
		t.Errorf("Marshal(%+v) = %s, %v, want %s", got, asJSON, err, want)
	}
}

func TestParseMessageReadsAnyRCode(t *testing.T) {
	for rcode := range dnswire.RCode(1 << 12) {
		r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
		r.AddOPT(1232, rcode, 0)
		wire := r.octets(0, rcode)
		if got, err := dnswire.ParseMessage(wire); err != nil || got.Status != rcode.String() {
			t.Errorf("ParseMessage of rcode %d = %+v, %v, want status %v", uint16(rcode), got, err, rcode)
		}
	}
}

func TestParseMessageReadsUnknownTypes(t *testing.T) {
	r := ask(t, web, 65280, dnswire.MinUDPSize)
	r.AddRRset(dnswire.Answer, rrset(t, `TYPE65280 \# 3 abcdef`, `TYPE65280 \# 0`), 0)
	wire := r.octets(0, dnswire.NoError)
	got, err := dnswire.ParseMessage(wire)
	want := []dnswire.Record{{Name: web, TTL: 5, Type: "TYPE65280", Data: `\# 3 abcdef`}, {Name: web, TTL: 5, Type: "TYPE65280", Data: `\# 0`}}
	if err != nil || !slices.Equal(got.Answer, want) {
		t.Errorf("ParseMessage(%x) = %+v, %v, want the answer %+v", wire, got, err, want)
	}
}

func TestParseMessageRefuses(t *testing.T) {
	whole := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize).octets(0, dnswire.NoError)
	for _, wire := range [][]byte{nil, whole[:11], whole[:20]} {
		if got, err := dnswire.ParseMessage(wire); err == nil {
			t.Errorf("ParseMessage(%x) = %+v, want an error", wire, got)
		}
	}
}

func TestNewQuery(t *testing.T) {
	tests := map[string]struct {
		question dnswire.QuerySpec
		want     string // as the library prints it, without its first line
	}{
		"class IN": {
			dnswire.QuerySpec{Name: "web.shop.", Type: dnswire.TypeA},
			";web.shop. IN A",
		},
		"the closing dot may be left out": {
			dnswire.QuerySpec{Name: "web.shop", Type: dnswire.TypeA},
			";web.shop. IN A",
		},
		"the case is kept": {
			dnswire.QuerySpec{Name: "WeB.Shop.", Type: 65280},
			";WeB.Shop. IN TYPE65280",
		},
		"the root": {
			dnswire.QuerySpec{Name: ".", Type: dnswire.TypeNS},
			";. IN NS",
		},
		"another class": {
			dnswire.QuerySpec{Name: "id.server.", Type: dnswire.TypeTXT, Class: dnswire.ClassCHAOS},
			";id.server. CH TXT",
		},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			packet, err := dnswire.NewQuery(tt.question)
			if err != nil {
				t.Fatalf("NewQuery(%+v): %v", tt.question, err)
			}
			q, m := parse(t, packet), new(dns.Msg)
			if err := m.Unpack(packet); err != nil {
				t.Fatalf("Unpack(%x): %v", packet, err)
			}
			if got := strings.Join(strings.Fields(m.Question[0].String()), " "); got != tt.want {
				t.Errorf("NewQuery(%+v) asks %q, want %q", tt.question, got, tt.want)
			}
			if q.EDNS.Present || q.Flags != 0 || q.Opcode != dnswire.OpcodeQuery {
				t.Errorf("NewQuery(%+v) has EDNS %+v, flags %x, opcode %d, want none", tt.question, q.EDNS, q.Flags, q.Opcode)
			}
		})
	}
}

func TestNewQueryFlags(t *testing.T) {
	for _, flags := range []uint16{0, dnswire.FlagRD, dnswire.FlagCD, dnswire.FlagAD, dnswire.FlagRD | dnswire.FlagCD | dnswire.FlagAD} {
		packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: web, Type: dnswire.TypeA, Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, packet).Flags; got != flags {
			t.Errorf("NewQuery of flags %x has %x", flags, got)
		}
	}
}

func TestNewQueryEDNS(t *testing.T) {
	options := map[dnswire.OptionCode][]byte{
		dnswire.OptionCookie: []byte("8 octets"), dnswire.OptionNSID: nil, dnswire.OptionPadding: make([]byte, 3), dnswire.OptionKeepalive: nil,
		65001: {1}, 65002: {2}, 65003: {3}, 65004: {4}, 9: nil,
	}
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: web, Type: dnswire.TypeA, UDPSize: 1400, Version: 1, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	want := dnswire.EDNS{Present: true, UDPSize: 1400, Version: 1, Cookie: []byte("8 octets"), NSID: true, Keepalive: true, Padding: true}
	if got := parse(t, packet).EDNS; !reflect.DeepEqual(got, want) {
		t.Errorf("NewQuery with options %v has %+v, want %+v", options, got, want)
	}
	var m dns.Msg
	if err := m.Unpack(packet); err != nil {
		t.Fatalf("Unpack(%x): %v", packet, err)
	}
	var codes []uint16
	for _, o := range m.IsEdns0().Option {
		codes = append(codes, o.Option())
	}
	if want := []uint16{3, 9, 10, 11, 12, 65001, 65002, 65003, 65004}; !slices.Equal(codes, want) {
		t.Errorf("NewQuery with options %v has them in the order %v, want %v", options, codes, want)
	}
}

func TestNewQueryRefuses(t *testing.T) {
	for claim, name := range map[string]string{
		"an empty label":         "web..shop.",
		"a label of 64 octets":   "x" + label63 + ".",
		"a name of 256 octets":   "x" + name255,
		"a backslash at the end": `web\`,
	} {
		t.Run(claim, func(t *testing.T) {
			packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA})
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("NewQuery(%s) = %x, %v, want an error that names it", name, packet, err)
			}
		})
	}
}
