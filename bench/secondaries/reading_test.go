package secondaries

import (
	"net/netip"
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// transferOf returns an answer with SOAs of these serials, with an address after each
// but the last. For a serial of 0 there is only the address.
func transferOf(t dnswire.Type, serials ...uint32) []byte {
	x := dnswire.NewTransfer(apex, t)
	address := netip.MustParseAddr("192.0.2.1").As4()
	for i, serial := range serials {
		if serial != 0 {
			x.AddSOA(&dnswire.SOA{Zone: apex, Serial: serial})
		}
		if i < len(serials)-1 {
			x.Add([]byte(apex.WireLabels()), dnswire.NewRRset(dnswire.TypeA, 5, address[:]))
		}
	}
	m := x.Messages()[0]
	m[2] |= byte(dnswire.FlagQR >> 8)
	return m
}

func TestReading(t *testing.T) {
	held := &dnswire.SOA{Zone: apex, Serial: 3}
	for claim, c := range map[string]struct {
		has                   *dnswire.SOA
		message               []byte
		ended, differs, wrong bool
	}{
		"a zone":                        {nil, transferOf(dnswire.TypeAXFR, 4, 4), true, false, false},
		"a zone goes on":                {nil, transferOf(dnswire.TypeAXFR, 4, 0), false, false, false},
		"a zone instead":                {held, transferOf(dnswire.TypeIXFR, 4, 4), true, false, false},
		"nothing new":                   {held, transferOf(dnswire.TypeIXFR, 3), true, false, false},
		"another zone's serial":         {nil, transferOf(dnswire.TypeAXFR, 4, 5), false, false, true},
		"something behind the end":      {nil, transferOf(dnswire.TypeAXFR, 4, 4, 4), false, false, true},
		"no start of authority":         {nil, transferOf(dnswire.TypeAXFR, 0, 4), false, false, true},
		"no message of any kind at all": {nil, nil, false, false, true},
	} {
		r := &reading{has: c.has}
		err := r.message(c.message)
		if (err != nil) != c.wrong || !c.wrong && (r.ended != c.ended || r.differs != c.differs) {
			t.Errorf("%s: ended %t, differs %t, %v", claim, r.ended, r.differs, err)
		}
	}
}

// TestReadingDifference checks a difference: it has four SOAs, of which the first two
// are adjacent.
func TestReadingDifference(t *testing.T) {
	x := dnswire.NewTransfer(apex, dnswire.TypeIXFR)
	now, held := &dnswire.SOA{Zone: apex, Serial: 4}, &dnswire.SOA{Zone: apex, Serial: 3}
	for _, soa := range []*dnswire.SOA{now, held, now, now} {
		x.AddSOA(soa)
	}
	m := x.Messages()[0]
	m[2] |= byte(dnswire.FlagQR >> 8)
	r := &reading{has: held}
	if err := r.message(m); err != nil || !r.ended || !r.differs || r.soa != *now {
		t.Errorf("ended %t, differs %t, %v", r.ended, r.differs, err)
	}
}

func TestLarge(t *testing.T) {
	for want, f := range map[string]float64{"999": 999, "25.0 k": 25_000, "1.3 M": 1_330_039, "19.8 G": 19.8e9} {
		if got := large(f); got != want {
			t.Errorf("large(%g) = %q, want %q", f, got, want)
		}
	}
}
