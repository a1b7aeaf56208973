package dnswire_test

import (
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

var someSOA = dnswire.SOA{
	Zone: dnsname.MustParse("cluster.local"), MName: dnsname.MustParse("x.ns.dns.cluster.local"), RName: dnsname.MustParse("hostmaster.cluster.local"),
	TTL: 5, Serial: 7, Refresh: 7200, Retry: 1800, Expire: 86400, Minimum: 5,
}

func TestSOA(t *testing.T) {
	rdata := someSOA.AppendRData(nil)
	if got, ok := dnswire.ParseSOA(someSOA.Zone, someSOA.TTL, rdata); !ok || got != someSOA {
		t.Errorf("ParseSOA(AppendRData()) = %+v, %v, want %+v", got, ok, someSOA)
	}
	for n := range rdata {
		if got, ok := dnswire.ParseSOA(someSOA.Zone, 5, rdata[:n]); ok {
			t.Errorf("ParseSOA of the first %d octets = %+v", n, got)
		}
	}
	if _, ok := dnswire.ParseSOA(someSOA.Zone, 5, append(rdata, 0)); ok {
		t.Error("ParseSOA takes an octet too many")
	}
}

// TestTransferQuery checks the query against another implementation.
func TestTransferQuery(t *testing.T) {
	for typ, has := range map[uint16]*dnswire.SOA{dns.TypeAXFR: nil, dns.TypeIXFR: &someSOA} {
		var m dns.Msg
		if err := m.Unpack(dnswire.AppendTransferQuery(nil, 9, someSOA.Zone, has, 65002)); err != nil {
			t.Fatal(err)
		}
		if m.Id != 9 || m.RecursionDesired || m.Question[0] != (dns.Question{Name: "cluster.local.", Qtype: typ, Qclass: dns.ClassINET}) {
			t.Errorf("query is\n%v", &m)
		}
		if opt := m.IsEdns0(); len(opt.Option) != 1 || opt.Option[0].Option() != 65002 {
			t.Errorf("query has the options of\n%v", opt)
		}
		if has == nil && len(m.Ns) == 0 {
			continue
		}
		want := "cluster.local.\t5\tIN\tSOA\tx.ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5"
		if len(m.Ns) != 1 || m.Ns[0].String() != want {
			t.Errorf("query has in its authority section %v, want %s", m.Ns, want)
		}
	}
}
