package secondary

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// soaAt returns the SOA of the cluster's zone with that serial.
func soaAt(serial uint32, mname string) dnswire.SOA {
	soa := dnswire.SOA{Zone: clusterZone, TTL: 5, Serial: serial, MName: clusterZone, RName: clusterZone}
	if mname != "" {
		soa.MName, _ = clusterZone.Child(mname)
	}
	return soa
}

func soaRecord(serial uint32) []byte {
	soa := soaAt(serial, "")
	return wireRecord([]byte(clusterZone.WireLabels()), dnswire.TypeSOA, 5, soa.AppendRData(nil))
}

func aRecord(label string) []byte {
	name, _ := clusterZone.Child(label)
	return wireRecord([]byte(name.WireLabels()), dnswire.TypeA, 5, []byte{192, 0, 2, 1})
}

func metadataRecord() []byte {
	return wireRecord([]byte(clusterZone.WireLabels()), zone.TypeMetadata, 0, zone.AppendMetadata(nil, new(zone.Metadata)))
}

// messageOf returns a message of a reply with ID 1 and without question.
func messageOf(records ...[]byte) []byte {
	m := []byte{0, 1, 0x84, 0, 0, 0, 0, byte(len(records)), 0, 0, 0, 0}
	for _, r := range records {
		m = append(m, r...)
	}
	return m
}

// TestReader covers valid and malformed transfers.
func TestReader(t *testing.T) {
	other := soaAt(7, "x")
	foreign := wireRecord([]byte("\x07example"), dnswire.TypeA, 5, []byte{192, 0, 2, 1})
	chaos := aRecord("a")
	binary.BigEndian.PutUint16(chaos[len(chaos)-4-2-4-2:], uint16(dnswire.ClassCHAOS))
	metadata, a, b := metadataRecord(), aRecord("a"), aRecord("b")
	has := soaAt(5, "")
	for claim, c := range map[string]struct {
		has      *dnswire.SOA
		messages [][]byte
		want     error
		outcome  outcome
		records  int
	}{
		"AXFR in one message":              {nil, [][]byte{messageOf(soaRecord(7), metadata, a, soaRecord(7))}, nil, whole, 2},
		"AXFR in many":                     {nil, [][]byte{messageOf(soaRecord(7)), messageOf(metadata), messageOf(a, b), messageOf(soaRecord(7))}, nil, whole, 3},
		"AXFR without metadata":            {nil, [][]byte{messageOf(soaRecord(7), a, soaRecord(7))}, ErrNoMetadata, 0, 0},
		"AXFR of another end":              {nil, [][]byte{messageOf(soaRecord(7), metadata, soaRecord(8))}, errStream, 0, 0},
		"AXFR with more behind":            {nil, [][]byte{messageOf(soaRecord(7), metadata, soaRecord(7), a)}, errStream, 0, 0},
		"AXFR without beginning":           {nil, [][]byte{messageOf(a, soaRecord(7))}, errStream, 0, 0},
		"an empty message first":           {nil, [][]byte{messageOf()}, errStream, 0, 0},
		"an empty message later":           {nil, [][]byte{messageOf(soaRecord(7)), messageOf()}, errStream, 0, 0},
		"a name of another zone":           {nil, [][]byte{messageOf(soaRecord(7), metadata, foreign, soaRecord(7))}, errStream, 0, 0},
		"another class":                    {nil, [][]byte{messageOf(soaRecord(7), metadata, chaos, soaRecord(7))}, errStream, 0, 0},
		"IXFR, nothing new":                {&has, [][]byte{messageOf(soaRecord(5))}, nil, unchanged, 0},
		"IXFR, less than we have":          {&has, [][]byte{messageOf(soaRecord(4))}, errHistory, 0, 0},
		"IXFR, another history":            {&has, [][]byte{messageOf(wireRecord([]byte(clusterZone.WireLabels()), dnswire.TypeSOA, 5, other.AppendRData(nil)))}, errHistory, 0, 0},
		"IXFR of one part":                 {&has, [][]byte{messageOf(soaRecord(7), soaRecord(5), a, soaRecord(7), b, soaRecord(7))}, nil, changed, 2},
		"IXFR of two parts, cut anyhow":    {&has, [][]byte{messageOf(soaRecord(7), soaRecord(5)), messageOf(a), messageOf(soaRecord(6)), messageOf(soaRecord(6), b, soaRecord(7)), messageOf(soaRecord(7))}, nil, changed, 2},
		"IXFR answered as AXFR":            {&has, [][]byte{messageOf(soaRecord(7), metadata, a, soaRecord(7))}, nil, whole, 2},
		"IXFR from another serial":         {&has, [][]byte{messageOf(soaRecord(7), soaRecord(4), a, soaRecord(7), soaRecord(7))}, errStream, 0, 0},
		"IXFR with a gap":                  {&has, [][]byte{messageOf(soaRecord(8), soaRecord(5), a, soaRecord(6), soaRecord(7))}, errStream, 0, 0},
		"IXFR, news just came":             {&has, [][]byte{messageOf(soaRecord(7))}, nil, passed, 0},
		"IXFR of another history's serial": {&has, [][]byte{messageOf(wireRecord([]byte(clusterZone.WireLabels()), dnswire.TypeSOA, 5, other.AppendRData(nil)), soaRecord(5), soaRecord(7))}, errHistory, 0, 0},
	} {
		r := &reader{zone: clusterZone, has: c.has, limits: DefaultLimits}
		last, err := false, error(nil)
		for i, m := range c.messages {
			if last, err = r.message(m, 1, nil); err != nil || last != (i == len(c.messages)-1) {
				break
			}
		}
		if !errors.Is(err, c.want) || c.want == nil && (!last || r.outcome != c.outcome || len(r.records)+len(r.changes) != c.records) {
			t.Errorf("%s: last %v, %v, outcome %d of %d records, want %v, outcome %d of %d", claim, last, err, r.outcome, len(r.records)+len(r.changes), c.want, c.outcome, c.records)
		}
	}
}

// FuzzReader checks that no input makes the reader panic or exceed the limits,
// and that a complete transfer is applied or rejected as a whole.
func FuzzReader(f *testing.F) {
	good := func(records ...[]byte) []byte {
		m := messageOf(records...)
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
	}
	f.Add(good(soaRecord(7), metadataRecord(), aRecord("a"), soaRecord(7)), false)
	f.Add(append(good(soaRecord(7), soaRecord(5), aRecord("a")), good(soaRecord(7), aRecord("b"), soaRecord(7))...), true)
	compressed := new(dns.Msg)
	compressed.Id, compressed.Response, compressed.Compress = 1, true, true
	for _, text := range []string{"cluster.local. 5 SOA cluster.local. cluster.local. 7 0 0 0 0", "cluster.local. NS ns.dns.cluster.local.", "a.b.cluster.local. 5 SRV 0 100 80 c.b.cluster.local.", "cluster.local. 5 SOA cluster.local. cluster.local. 7 0 0 0 0"} {
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		compressed.Answer = append(compressed.Answer, rr)
	}
	wire, err := compressed.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...), false)
	f.Fuzz(func(t *testing.T, stream []byte, incremental bool) {
		db, err := zone.New(dnswire.SOA{Zone: clusterZone})
		if err != nil {
			t.Fatal(err)
		}
		c, err := db.Secondary(clusterZone)
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{zone: clusterZone, limits: Limits{Octets: 1 << 12, Records: 50}}
		if incremental {
			soa := soaAt(5, "")
			if err := c.Replace(soa, []zone.TransferRecord{{Name: clusterZone, Type: zone.TypeMetadata, RData: zone.AppendMetadata(nil, new(zone.Metadata))}}); err != nil {
				t.Fatal(err)
			}
			r.has = &soa
		}
		for len(stream) >= 2 {
			n := min(len(stream), 2+int(binary.BigEndian.Uint16(stream)))
			last, err := r.message(stream[2:n], 1, nil)
			stream = stream[n:]
			if len(r.records)+len(r.changes) > 50 {
				t.Fatalf("%d records", len(r.records)+len(r.changes))
			}
			if err != nil {
				return
			}
			if last {
				break
			}
		}
		if r.position != atEnd {
			return
		}
		f := session{Secondary: &Secondary{}}
		if f.apply(&followedZone{copy: c}, &r.answer) == nil && c.SOA() != r.soa {
			t.Errorf("SOA %+v, want %+v", c.SOA(), r.soa)
		}
		db.Entries()
	})
}

// FuzzState checks that no file makes parsing panic.
func FuzzState(f *testing.F) {
	soa := soaAt(7, "")
	state := appendRecord(nil, []byte(clusterZone.WireLabels()), dnswire.TypeSOA, 5, soa.AppendRData(nil))
	f.Add(appendRecord(state, []byte(clusterZone.WireLabels()), zone.TypeMetadata, 0, zone.AppendMetadata(nil, new(zone.Metadata))))
	f.Fuzz(func(t *testing.T, contents []byte) {
		zones, err := parseState(contents)
		if err != nil {
			return
		}
		db, err := zone.New(dnswire.SOA{Zone: clusterZone})
		if err != nil {
			t.Fatal(err)
		}
		c, err := db.Secondary(clusterZone)
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range zones {
			_ = c.Replace(z.soa, z.items) // an error is fine
		}
		db.Entries()
	})
}
