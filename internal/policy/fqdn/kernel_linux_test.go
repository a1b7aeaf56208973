package fqdn

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// sets is a Programmer for sets of the kernel with IPv4 addresses.
type sets struct {
	mu    sync.Mutex
	conn  *nftables.Conn
	table *nftables.Table
}

func (s *sets) ChangeResolved(all []ruleset.Resolution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		var elements []nftables.SetElement
		for _, a := range r.Addrs {
			elements = append(elements, nftables.SetElement{Key: a.AsSlice(), Timeout: r.TTL})
		}
		of := &nftables.Set{Table: s.table, Name: r.Set, KeyType: nftables.TypeIPAddr, HasTimeout: true}
		if err := s.conn.SetAddElements(of, elements); err != nil {
			return err
		}
	}
	return s.conn.Flush()
}

// TestLookupThenConnectInKernel: no connection that follows a lookup is dropped by rules
// that only let packets to the addresses of names pass.
func TestLookupThenConnectInKernel(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	if err := namespace.IP("route add local 198.18.0.0/15 dev lo"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(`table inet test {
		set names { type ipv4_addr; flags timeout; }
		chain out {
			type filter hook output priority 0
			ct state established,related accept
			ip daddr 198.18.0.0/15 ip daddr != @names tcp flags syn counter drop
		}
	}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "0.0.0.0:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	connect := func(addr netip.Addr, limit time.Duration) error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 8080).String(), limit)
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // so that ports are free again
			err = c.Close()
		}
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "test"}
	if connect(netip.MustParseAddr("198.19.255.255"), 100*time.Millisecond) == nil || dropped(t, table) == 0 {
		t.Fatal("the rules let a packet to an address of no name pass")
	}
	before := dropped(t, table)
	lookUp(t, &sets{conn: conn, table: table}, func(addr netip.Addr) error { return connect(addr, time.Minute) })
	if n := dropped(t, table) - before; n > 0 {
		t.Errorf("%d packets to addresses of names were dropped", n)
	}
}

// dropped returns how many packets the rules dropped.
func dropped(t *testing.T, table *nftables.Table) (packets uint64) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: "out"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				packets += c.Packets
			}
		}
	}
	return packets
}
