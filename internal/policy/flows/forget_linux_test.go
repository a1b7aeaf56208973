package flows

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// passes is a table that notes which families are read. The first read waits.
type passes struct {
	entries
	began, proceed chan struct{}

	mu   sync.Mutex
	read []ctnetlink.Family
}

func (p *passes) Each(f ctnetlink.Filter, each func(*ctnetlink.Entry)) error {
	p.mu.Lock()
	first := len(p.read) == 0
	p.read = append(p.read, f.Family)
	p.mu.Unlock()
	if first {
		close(p.began)
		<-p.proceed
	}
	return p.entries.Each(f, each)
}

// TestForgetTogether verifies that Pods that end together need few passes: one that runs, and one for all that
// wait for it to end, each of the families of their addresses only.
func TestForgetTogether(t *testing.T) {
	t.Parallel()
	p := &passes{began: make(chan struct{}), proceed: make(chan struct{})}
	p.entries = newEntries(10_000, netip.MustParseAddr("10.244.1.7"))
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	c.open = func() (table, error) { return p, nil }
	var ending sync.WaitGroup
	forget := func(addr netip.Addr) {
		ending.Go(func() {
			if err := c.Forget([]netip.Addr{addr}); err != nil {
				t.Errorf("Forget(%s): %v", addr, err)
			}
		})
	}
	forget(netip.MustParseAddr("fd00::1"))
	<-p.began
	const pods = 50
	for i := range pods {
		forget(netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}))
	}
	await.NoError(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.next == nil || len(c.next.addrs) < pods {
			return errors.New("not all wait for the next pass")
		}
		return nil
	})
	close(p.proceed)
	ending.Wait()
	if want := []ctnetlink.Family{ctnetlink.IPv6, ctnetlink.IPv4}; !slices.Equal(p.read, want) {
		t.Errorf("for %d Pods that end at once the tables of %v are read, want %v", pods, p.read, want)
	}
}

// TestForget verifies whose entries of the kernel's table are deleted.
func TestForget(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	const left = 1000 // the client's port of flows that stay
	flow := func(client, destination, replies string) ctnetlinktest.Flow {
		return ctnetlinktest.Flow{
			Protocol: unix.IPPROTO_TCP, Client: at(client), Destination: at(destination), Replies: at(replies),
		}
	}
	if err := ctnetlinktest.Create(
		flow("10.244.1.7:1", "10.244.2.9:80", "10.244.2.9:80"),
		flow("10.244.2.9:2", "10.244.1.7:80", "10.244.1.7:80"),
		flow("10.244.2.9:3", "10.96.0.10:80", "10.244.1.7:80"),
		flow("10.244.2.9:4", "10.244.1.7:81", "10.244.1.8:80"),
		flow("[fd00::7]:5", "[fd00::9]:80", "[fd00::9]:80"),
		flow("10.244.1.8:1000", "10.244.2.9:80", "10.244.2.9:80"),
		flow("[fd00::8]:1000", "[fd00::9]:80", "[fd00::9]:80"),
	); err != nil {
		t.Fatal(err)
	}
	c := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err := c.Forget([]netip.Addr{netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("fd00::7")}); err != nil {
		t.Fatal(err)
	}
	all := tracked(t)
	if len(all) != 2 || all[0].Client.Port() != left || all[1].Client.Port() != left {
		t.Errorf("the flows %v are left, want those of other Pods", all)
	}
	if err := c.ForgetFunc(func(a netip.Addr) bool { return a == netip.MustParseAddr("fd00::9") }); err != nil {
		t.Fatal(err)
	}
	if all := tracked(t); len(all) != 1 || !all[0].Client.Addr().Is4() {
		t.Errorf("the flows %v are left, want that of IPv4", all)
	}
}
