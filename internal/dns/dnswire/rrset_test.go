package dnswire_test

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

func TestRDATAIsAsTheLibraryPacksIt(t *testing.T) {
	target := dnsname.MustParse(web)
	tests := map[string]struct {
		record string
		got    []byte
	}{
		"SRV":                  {"SRV 1 65535 443 " + web, dnswire.AppendSRV(nil, 1, 65535, 443, target.AppendWire(nil))},
		"SRV to the root":      {"SRV 0 0 0 .", dnswire.AppendSRV(nil, 0, 0, 0, []byte{0})},
		"TXT":                  {`TXT "1.1.0"`, dnswire.AppendTXT(nil, "1.1.0")},
		"TXT of nothing":       {`TXT ""`, dnswire.AppendTXT(nil, "")},
		"TXT of 255 octets":    {`TXT "` + strings.Repeat("x", 255) + `"`, dnswire.AppendTXT(nil, strings.Repeat("x", 255))},
		"TXT of more is cut":   {`TXT "` + strings.Repeat("x", 255) + `"`, dnswire.AppendTXT(nil, strings.Repeat("x", 256))},
		"a name as CNAME":      {"CNAME " + web, target.AppendWire(nil)},
		"an address as A":      {"A 10.0.0.1", netip.MustParseAddr("10.0.0.1").AsSlice()},
		"an address as AAAA":   {"AAAA fd00::1", netip.MustParseAddr("fd00::1").AsSlice()},
		"an appended SRV":      {"SRV 1 2 3 .", dnswire.AppendSRV([]byte("before"), 1, 2, 3, []byte{0})[len("before"):]},
		"an appended TXT":      {`TXT "abc"`, dnswire.AppendTXT([]byte("before"), "abc")[len("before"):]},
		"TXT octets are taken": {`TXT "\000\255"`, dnswire.AppendTXT(nil, "\x00\xff")},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if _, want := rdata(t, tt.record); !bytes.Equal(tt.got, want) {
				t.Errorf("RDATA of %s is %x, want %x", tt.record, tt.got, want)
			}
		})
	}
}

func TestRRset(t *testing.T) {
	for claim, records := range sets {
		t.Run(claim, func(t *testing.T) {
			set := rrset(t, records...)
			if int(set.Count) != len(records) || set.TTL() != 5 {
				t.Errorf("NewRRset(%q) has %d records of TTL %d, want %d, 5", records, set.Count, set.TTL(), len(records))
			}
			var want [][]byte
			for _, record := range records {
				_, one := rdata(t, record)
				want = append(want, one)
			}
			if got := set.RData(); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("NewRRset(%q).RData() = %x, want %x", records, got, want)
			}
		})
	}
}

// TestRDATATooLong checks that RDATA too long for a record is omitted and that
// the other records remain.
func TestRDATATooLong(t *testing.T) {
	fits, tooLong := make([]byte, 1<<16-1), make([]byte, 1<<16)
	var a dnswire.RRsetBuilder
	a.Start(dnswire.TypeTXT, 5)
	for _, rdata := range [][]byte{{1}, tooLong, fits} {
		a.Add(rdata)
	}
	for claim, set := range map[string]dnswire.RRset{
		"NewRRset":    dnswire.NewRRset(dnswire.TypeTXT, 5, []byte{1}, tooLong, fits),
		"AppendRRset": dnswire.ReadRRset(dnswire.AppendRRset(nil, dnswire.TypeTXT, 5, []byte{1}, tooLong, fits)),
		"Assembly":    a.RRset(),
	} {
		if got := set.RData(); set.Count != 2 || len(got) != 2 || len(got[0]) != 1 || len(got[1]) != len(fits) {
			t.Errorf("%s: %d records, said to be %d, want those of 1 and of %d octets", claim, len(got), set.Count, len(fits))
		}
	}
}

func TestZeroRRset(t *testing.T) {
	var zero dnswire.RRset
	if zero.TTL() != 0 || len(zero.RData()) != 0 || zero.Target() != nil {
		t.Errorf("RRset{}: TTL() = %d, RData() = %x, Target() = %x, want nothing", zero.TTL(), zero.RData(), zero.Target())
	}
	empty := dnswire.NewRRset(dnswire.TypePTR, 5)
	if empty.Count != 0 || empty.Target() != nil {
		t.Errorf("NewRRset(PTR, 5) has %d records, Target() = %x, want none", empty.Count, empty.Target())
	}
}

// TestRDataCannotBeOverwritten checks that appending to the result of RData does not
// overwrite the next record.
func TestRDataCannotBeOverwritten(t *testing.T) {
	set := rrset(t, "A 10.0.0.1", "A 10.0.0.2")
	_ = append(set.RData()[0], "behind"...)
	if want := rrset(t, "A 10.0.0.1", "A 10.0.0.2"); !set.Equal(want) {
		t.Errorf("after append(RData()[0], …) RData() = %x, want %x", set.RData(), want.RData())
	}
}

func TestNewRRsetHoldsAtMostMaxRecords(t *testing.T) {
	all := slices.Repeat([][]byte{{10, 0, 0, 1}}, dnswire.MaxRecords+1)
	if got := dnswire.NewRRset(dnswire.TypeA, 5, all...); int(got.Count) != dnswire.MaxRecords || len(got.RData()) != dnswire.MaxRecords {
		t.Errorf("NewRRset of %d records holds %d, want %d", len(all), len(got.RData()), dnswire.MaxRecords)
	}
}

func TestEqual(t *testing.T) {
	set := rrset(t, "A 10.0.0.1", "A 10.0.0.2")
	_, first := rdata(t, "A 10.0.0.1")
	_, second := rdata(t, "A 10.0.0.2")
	tests := map[string]struct {
		other dnswire.RRset
		want  bool
	}{
		"the same records":    {rrset(t, "A 10.0.0.1", "A 10.0.0.2"), true},
		"another order":       {rrset(t, "A 10.0.0.2", "A 10.0.0.1"), false},
		"fewer records":       {rrset(t, "A 10.0.0.1"), false},
		"another TTL":         {dnswire.NewRRset(dnswire.TypeA, 6, first, second), false},
		"another type":        {dnswire.NewRRset(dnswire.TypeTXT, 5, first, second), false},
		"nothing":             {dnswire.RRset{}, false},
		"nothing of its type": {dnswire.NewRRset(dnswire.TypeA, 5), false},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if set.Equal(tt.other) != tt.want || tt.other.Equal(set) != tt.want {
				t.Errorf("Equal(%x, %x) = %v, %v, want %v", set.RData(), tt.other.RData(), set.Equal(tt.other), tt.other.Equal(set), tt.want)
			}
		})
	}
	if empty := dnswire.NewRRset(dnswire.TypeA, 5); empty.Equal(dnswire.NewRRset(dnswire.TypeAAAA, 5)) {
		t.Errorf("an empty A RRset equals an empty AAAA RRset, want not")
	}
}

func TestTarget(t *testing.T) {
	tests := map[string]struct {
		records []string
		want    []byte
	}{
		"CNAME":              {[]string{"CNAME a.x."}, []byte("\x01a\x01x")},
		"PTR":                {[]string{"PTR a.x."}, []byte("\x01a\x01x")},
		"the first of two":   {[]string{"NS a.x.", "NS b.x."}, []byte("\x01a\x01x")},
		"the root":           {[]string{"CNAME ."}, []byte{}},
		"none of an A":       {[]string{"A 10.0.0.1"}, nil},
		"none of SRV's":      {[]string{"SRV 0 0 0 a.x."}, nil},
		"none of TXT's name": {[]string{`TXT "a.x."`}, nil},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			got := rrset(t, tt.records...).Target()
			if !bytes.Equal(got, tt.want) || (got == nil) != (tt.want == nil) {
				t.Errorf("Target() of %q = %#v, want %#v", tt.records, got, tt.want)
			}
		})
	}
}

func TestRRsetBuilderAddr(t *testing.T) {
	tests := map[string]struct{ addr, want string }{
		"IPv4":                     {"10.0.0.1", "A 10.0.0.1"},
		"IPv6":                     {"fd00::1", "AAAA fd00::1"},
		"IPv4-mapped IPv6 is IPv6": {"::ffff:10.0.0.1", "AAAA ::ffff:10.0.0.1"},
	}
	var a dnswire.RRsetBuilder
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if got, want := a.Addr(netip.MustParseAddr(tt.addr), 5), rrset(t, tt.want); !got.Equal(want) || got.Count != 1 {
				t.Errorf("Addr(%s, 5) = %v %x, want %v %x", tt.addr, got.Type, got.RData(), want.Type, want.RData())
			}
		})
	}
}

// TestRRsetBuilder checks that Start discards the previous RRset.
func TestRRsetBuilder(t *testing.T) {
	var a dnswire.RRsetBuilder
	a.Addr(netip.IPv6Loopback(), 5)
	a.Start(dnswire.TypePTR, 5)
	a.Add([]byte("\x01a\x01x\x00"))
	a.Add([]byte("\x01b\x00"))
	if got, want := a.RRset(), rrset(t, "PTR a.x.", "PTR b."); !got.Equal(want) || got.Count != 2 {
		t.Errorf("an assembly of a.x. and b. = %d records %x, want %x", got.Count, got.RData(), want.RData())
	}
}

// TestReadRRset checks that AppendRRset writes what NewRRset returns, at any
// offset.
func TestReadRRset(t *testing.T) {
	for claim, records := range map[string][]string{
		"one record": {"A 10.0.0.1"}, "several": {"SRV 0 0 1 a.", "SRV 0 0 2 b.x."}, "none": nil,
	} {
		var typ dnswire.Type
		var all [][]byte
		for _, r := range records {
			var d []byte
			typ, d = rdata(t, r)
			all = append(all, d)
		}
		const before = "before"
		b := append(dnswire.AppendRRset([]byte(before), typ, 5, all...), "behind"...)
		got, want := dnswire.ReadRRset(b[len(before):]), dnswire.NewRRset(typ, 5, all...)
		if !got.Equal(want) || got.Count != want.Count {
			t.Errorf("%s: ReadRRset = %v of %d, %x, want %v of %d, %x", claim, got.Type, got.Count, got.RData(), want.Type, want.Count, want.RData())
		}
	}
}

func TestNewChaosTXT(t *testing.T) {
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: "id.server", Type: dnswire.TypeTXT, Class: dnswire.ClassCHAOS})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, parse(t, packet), dnswire.MinUDPSize)
	r.AddRRset(dnswire.Answer, dnswire.NewChaosTXT("here"), 0)
	want := []string{`id.server. 0 CH TXT "here"`}
	if got := texts(r.finish(0, dnswire.NoError).Answer); !slices.Equal(got, want) {
		t.Errorf(`NewChaosTXT("here") is read as %q, want %q`, got, want)
	}
}

func TestCompareRData(t *testing.T) {
	ordered := map[string][]string{
		"addresses by their octets":       {"A 9.0.0.1", "A 10.0.0.0", "A 10.0.0.1", "A 255.0.0.0"},
		"SRV by target, then by the rest": {"SRV 9 9 9 a.", "SRV 9 9 10 a.", "SRV 10 0 0 a.", "SRV 0 0 1 b.", "SRV 0 0 0 aa."},
		"names canonically":               {"PTR .", "PTR zz.", "PTR aaa.zz.", "PTR b.aaa.zz.", "PTR b.zz.", "PTR zzz."},
		"TXT as octets":                   {`TXT "b"`, `TXT "aa"`, `TXT "ab"`},
	}
	for claim, records := range ordered {
		t.Run(claim, func(t *testing.T) {
			for i, a := range records {
				for j, b := range records {
					typ, aData := rdata(t, a)
					_, bData := rdata(t, b)
					got := dnswire.CompareRData(typ, aData, bData)
					if min(1, max(-1, got)) != min(1, max(-1, i-j)) {
						t.Errorf("CompareRData(%v, %s, %s) = %d, want the sign of %d", typ, a, b, got, i-j)
					}
				}
			}
		})
	}
}
