package dnswire_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

var transferSOA = dnswire.SOA{
	Zone: dnsname.MustParse("cluster.local"), MName: dnsname.MustParse("a1.ns.dns.cluster.local"), RName: dnsname.MustParse("hostmaster.cluster.local"),
	TTL: 5, Serial: 7, Refresh: 1, Retry: 2, Expire: 3, Minimum: 4,
}

// TestTransfer checks that the messages hold all records in order, are short,
// can be parsed by the library, and compress names where allowed.
func TestTransfer(t *testing.T) {
	x := dnswire.NewTransfer(transferSOA.Zone, dnswire.TypeAXFR)
	x.AddSOA(&transferSOA)
	want := []string{"cluster.local.\t5\tIN\tSOA\ta1.ns.dns.cluster.local. hostmaster.cluster.local. 7 1 2 3 4"}
	const records = 3000
	for i := range records {
		owner := []byte(fmt.Sprintf("\x05n%04d\x04shop\x03svc\x07cluster\x05local", i))
		x.Add(owner, dnswire.NewRRset(dnswire.TypeA, 5, []byte{10, 0, byte(i >> 8), byte(i)}))
		x.Add(owner, dnswire.NewRRset(dnswire.TypeSRV, 5, dnswire.AppendSRV(nil, 0, 100, 80, append(owner, 0))))
		name := fmt.Sprintf("n%04d.shop.svc.cluster.local.", i)
		want = append(want, fmt.Sprintf("%s\t5\tIN\tA\t10.0.%d.%d", name, i>>8, i&255), fmt.Sprintf("%s\t5\tIN\tSRV\t0 100 80 %s", name, name))
	}
	question := []byte("\x07Cluster\x05LOCAL\x00\x00\xfc\x00\x01")
	var got []string
	for i, m := range x.Messages() {
		answer := dnswire.AppendTransferReply(nil, m, dnswire.TransferQuery{ID: 4711, Question: question, EDNS: true}, 1232)
		var read dns.Msg
		if err := read.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		if len(answer) > 17<<10 {
			t.Errorf("message %d has %d octets", i, len(answer))
		}
		if !read.Response || !read.Authoritative || read.Id != 4711 || (len(read.Question) == 1) != (i == 0) || (read.IsEdns0() != nil) != (i == 0) {
			t.Errorf("message %d: %v", i, read.MsgHdr)
		}
		if i == 0 && read.Question[0].Name != "Cluster.LOCAL." {
			t.Errorf("the question is %s", read.Question[0].Name)
		}
		for _, rr := range read.Answer {
			got = append(got, dns.Copy(rr).String())
		}
	}
	got[0] = dns.CanonicalName(got[0]) // which points to the question
	want[0] = dns.CanonicalName(want[0])
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if dns.CanonicalName(got[i]) != dns.CanonicalName(want[i]) {
			t.Fatalf("record %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// TestTransferOfLongRecords checks that a record of any length is sent unless
// no signed message can hold it.
func TestTransferOfLongRecords(t *testing.T) {
	for length, want := range map[int]int{16 << 10: 1, 60000: 1, 1<<16 - 1: 0} {
		x := dnswire.NewTransfer(transferSOA.Zone, dnswire.TypeAXFR)
		x.AddSOA(&transferSOA)
		x.Add([]byte("\x01n\x07cluster\x05local"), dnswire.NewRRset(dnswire.Type(65280), 5, make([]byte, length)))
		x.AddSOA(&transferSOA)
		records := 0
		for _, m := range x.Messages() {
			if len(m) > dnswire.MaxMessage {
				t.Fatalf("a message of %d octets", len(m))
			}
			var read dns.Msg
			if err := read.Unpack(m); err != nil {
				t.Fatal(err)
			}
			records += len(read.Answer)
		}
		if records != 2+want {
			t.Errorf("RDATA of %d octets: %d records, want %d", length, records, 2+want)
		}
	}
}

// TestReadIXFRBase checks queries that another implementation wrote.
func TestReadIXFRBase(t *testing.T) {
	m := new(dns.Msg)
	m.SetIxfr("cluster.local.", 42, "A1.ns.dns.cluster.local.", "hostmaster.cluster.local.")
	m.Compress = true
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	h, ok := dnswire.ReadIXFRBase(wire)
	if want := (dnswire.IXFRBase{Serial: 42, MName: dnsname.MustParse("a1.ns.dns.cluster.local")}); !ok || h != want {
		t.Errorf("ReadHeld = %v, %v, want %v", h, ok, want)
	}
	if _, ok := dnswire.ReadIXFRBase(unsigned(t)); ok {
		t.Errorf("ReadHeld of a query that doesn't say")
	}
}

// TestNotify checks a NOTIFY with the library, and that its reply is matched.
func TestNotify(t *testing.T) {
	notify := dnswire.NewNotify(99, &transferSOA)
	var m dns.Msg
	if err := m.Unpack(notify); err != nil {
		t.Fatal(err)
	}
	if m.Opcode != dns.OpcodeNotify || m.Response || !m.Authoritative || m.Id != 99 || m.Question[0].Qtype != dns.TypeSOA || m.Answer[0].(*dns.SOA).Serial != 7 {
		t.Errorf("NOTIFY is %v", &m)
	}
	reply := new(dns.Msg)
	reply.SetRcode(&m, dns.RcodeNotImplemented)
	wire, err := reply.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if code, ok := dnswire.MatchNotifyReply(wire, notify); !ok || code != dnswire.NotImp {
		t.Errorf("AnswersNotify = %v, %v", code, ok)
	}
	other := append([]byte{}, wire...)
	binary.BigEndian.PutUint16(other, 98)
	for name, reply := range map[string][]byte{"another ID": other, "the NOTIFY": notify, "short": wire[:11]} {
		if _, ok := dnswire.MatchNotifyReply(reply, notify); ok {
			t.Errorf("%s answers it", name)
		}
	}
}

// FuzzReadIXFRBase checks that no query makes parsing panic.
func FuzzReadIXFRBase(f *testing.F) {
	m := new(dns.Msg)
	m.SetIxfr("cluster.local.", 42, "ns.cluster.local.", "hostmaster.cluster.local.")
	wire, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Fuzz(func(t *testing.T, packet []byte) {
		h, ok := dnswire.ReadIXFRBase(packet)
		if !ok && h != (dnswire.IXFRBase{}) {
			t.Errorf("ReadHeld = %v, and not", h)
		}
	})
}
