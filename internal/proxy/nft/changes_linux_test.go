package nft_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// TestAffinityChains checks that a Sync removes the chains of affinity that no frontend uses.
func TestAffinityChains(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	front := func(seconds int, n int) *frontend.Frontend {
		f := tcp(vip(0, 1), frontend.Plain, endpoints(0, n)...)
		f.Affinity = &frontend.Affinity{Group: "shop/web", Timeout: time.Duration(seconds) * time.Second}
		return f
	}
	table := w.table(nil)
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front(100, 1)}})
	for _, f := range []*frontend.Frontend{front(200, 2), front(300, 3), front(300, 2)} {
		must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{f}}))
	}
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front(300, 2)}})
	found := regexp.MustCompile(`(?m)^\tchain (affinity-[^ ]*)`).FindAllStringSubmatch(layoutOf(t, nft.DefaultName), -1)
	var got []string
	for _, match := range found {
		got = append(got, match[1])
	}
	slices.Sort(got)
	want := []string{
		"affinity-300-endpoints-2", "affinity-300-external-local-2", "affinity-300-group-2", "affinity-300-group-local-2",
		"affinity-300-local-2", "affinity-300-masquerade-2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("chains of affinity: %q, want %q", got, want)
	}
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("afterwards: %s", a)
	}
	must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{front(100, 1)}}))
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("with a timeout that had been removed: %s", a)
	}
}

// TestAffinityFlaps checks that the kernel does not keep the chains of all timeouts that a Service had.
func TestAffinityFlaps(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	front := func(seconds int) *frontend.Frontend {
		f := tcp(vip(0, 1), frontend.Plain, endpoints(0, 1)...)
		f.Affinity = &frontend.Affinity{Group: "shop/web", Timeout: time.Duration(seconds) * time.Second}
		return f
	}
	table := w.table(nil)
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front(1000)}})
	const changes, most = 200, 400
	for i := range changes {
		must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{front(1001 + i)}}))
	}
	chains := regexp.MustCompile(`(?m)^\tchain affinity-`).FindAllString(layoutOf(t, nft.DefaultName), -1)
	if len(chains) > most {
		t.Errorf("%d chains of affinity after %d timeouts, want at most %d", len(chains), changes, most)
	}
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("afterwards: %s", a)
	}
}

// TestServiceCIDRs changes ranges that overlap and touch at random: the kernel has what it would have
// from scratch, and drops packets to exactly these addresses.
func TestServiceCIDRs(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	// Outside refuses what is not dropped.
	namespacetest.Do(t, w.outside, func() {
		for _, cidr := range prefixes("10.96.0.0/24", "fd00:96::/112") {
			must(t, w.refuseAll(cidr))
		}
	})
	all := prefixes(
		"10.96.0.0/28", "10.96.0.16/28", "10.96.0.32/28", "10.96.0.0/27", "10.96.0.32/27", "10.96.0.8/30", "10.96.0.0/26", "10.96.0.63/32",
		"fd00:96::/124", "fd00:96::10/124", "fd00:96::/123", "fd00:96::18/125",
	)
	probe := func(f int, i uint64) netip.Addr { // address i of the ranges above
		return netip.MustParseAddr([2]string{"10.96.0." + strconv.FormatUint(i, 10), "fd00:96::" + strconv.FormatUint(i, 16)}[f])
	}
	random := rand.New(rand.NewPCG(5, 6))
	table, scratch := w.table(nil), w.table(func(c *nft.Config) { c.Name = "scratch" })
	w.sync(table, new(frontend.State))
	const rounds, dials = 150, 25
	for round := range rounds {
		var some []netip.Prefix
		for _, p := range all {
			if random.IntN(3) == 0 {
				some = append(some, p)
			}
		}
		random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		state := &frontend.State{ServiceCIDRs: some}
		switch random.IntN(3) {
		case 0:
			w.sync(table, state)
		default:
			must(t, apply(table, &frontend.Changes{ServiceCIDRs: append([]netip.Prefix{}, some...)}))
		}
		w.sync(scratch, new(frontend.State))
		w.sync(scratch, state)
		for _, family := range []string{"ip", "ip6"} {
			if got, want := cidrsOf(t, family, nft.DefaultName), cidrsOf(t, family, "scratch"); got != want {
				t.Fatalf("round %d, %v: the kernel has\n%s, from scratch\n%s", round, some, got, want)
			}
		}
		if n := w.sync(table, state); n != 0 {
			t.Fatalf("round %d, %v: Sync changed %d elements", round, some, n)
		}
		if round%(rounds/dials) != 0 {
			continue
		}
		must(t, scratch.Close())
		nftCommand(t, "delete table ip scratch; delete table ip6 scratch") // it would drop, too
		f := random.IntN(2)
		to := probe(f, uint64(random.IntN(64)))
		want, wait := "refused", patience
		if slices.ContainsFunc(some, func(p netip.Prefix) bool { return p.Contains(to) }) {
			want, wait = "timeout", 100*time.Millisecond
		}
		if a := w.dialWithin(wait, w.pod, podClient[f], netip.AddrPortFrom(to, 80)); a.err != want {
			t.Errorf("round %d, %v: %s: %s, want %s", round, some, to, a, want)
		}
	}
}

// refuseAll has a namespace refuse connections to all addresses of a range.
func (w *world) refuseAll(cidr netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.RouteReplace(localRoute(lo.Attrs().Index, cidr))
}

// cidrsOf returns the ranges of cluster IPs that a table has.
func cidrsOf(t *testing.T, family, table string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "list", "set", family, table, "service-cidrs").Output()
	must(t, err)
	return strings.ReplaceAll(string(out), "table "+family+" "+table, "")
}

// peak is how much memory the process had at most, in octets, since it was reset.
func peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	var kilobytes int
	_, err = fmt.Sscan(string(rest), &kilobytes)
	must(t, err)
	return kilobytes << 10
}

// resetPeak makes the peak be what the process has (proc_pid_clear_refs(5)).
func resetPeak(t *testing.T) {
	t.Helper()
	debug.FreeOSMemory()
	must(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
}

// TestManyDeleted deletes 5,000 Services at once, by Apply and by Sync: 30,000 elements of a port each.
// Clients of another Service notice nothing, and it takes little memory.
func TestManyDeleted(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	const services, mostMemory = 5000, 20 << 20
	stays := tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)
	whole := &frontend.State{Frontends: []*frontend.Frontend{stays}}
	var gone frontend.Changes
	for i := range services {
		at := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		f := tcp(at, frontend.Plain, endpoints(0, 3)...)
		whole.Frontends = append(whole.Frontends, f)
		gone.Delete = append(gone.Delete, f.Address)
	}
	less := &frontend.State{Frontends: []*frontend.Frontend{stays}}
	table := w.table(nil)
	for by, remove := range map[string]func() (int, error){
		"Apply": func() (int, error) { return table.Apply(&gone) },
		"Sync":  func() (int, error) { return table.Sync(less) },
	} {
		if n := w.sync(table, whole); n < services*6 {
			t.Errorf("before %s: %d elements, want %d", by, n, services*6)
		}
		quiet := w.keepDialing(netip.AddrPortFrom(vip(0, 1), 80), stays.Endpoints...)
		last := netip.AddrPortFrom(gone.Delete[services-1].Addr, 80)
		if a := w.dial(w.pod, podClient[0], last); a.err != "" {
			t.Errorf("before %s: %s", by, a)
		}
		resetPeak(t)
		before := peak(t)
		n, err := remove()
		must(t, err)
		more := peak(t) - before
		if n != services*6 {
			t.Errorf("%s changed %d elements, want %d", by, n, services*6)
		}
		if t.Logf("%s: %d KiB more", by, more>>10); by == "Apply" && more > mostMemory { // a Sync reads all
			t.Errorf("%s took %d MiB, want at most %d", by, more>>20, mostMemory>>20)
		}
		quiet()
		if a := w.dialWithin(100*time.Millisecond, w.pod, podClient[0], last); a.err == "" {
			t.Errorf("after %s: %s", by, a)
		}
		if n := w.sync(table, less); n != 0 {
			t.Errorf("after %s, Sync changed %d elements", by, n)
		}
	}
}

// keepDialing has a Pod open connections one after the other until the function that it returns is
// called. All must work, and reach one of the servers.
func (w *world) keepDialing(to netip.AddrPort, servers ...netip.AddrPort) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		namespacetest.Do(w.t, w.pod, func() {
			for ; ; n++ {
				if a := dial(podClient[0], to); a.err != "" || !slices.Contains(servers, a.server) {
					w.t.Errorf("connection %d to %s: %s, want one of %s", n, to, a, servers)
				}
				select {
				case <-stopping:
					return
				case <-time.After(2 * time.Millisecond):
				}
			}
		})
		stopped <- n + 1
	}()
	return func() {
		close(stopping)
		w.t.Logf("%d connections to %s", <-stopped, to)
	}
}

// TestConfigure checks that a table gets another layout without a moment in which another process
// can own it.
func TestConfigure(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	state := &frontend.State{Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)}}
	table := w.table(nil)
	w.sync(table, state)
	var stop atomic.Bool
	var others sync.WaitGroup
	attempts := 0
	others.Go(func() {
		for ; !stop.Load(); attempts++ {
			other := nft.New(nft.Config{Families: []nft.Family{nft.IPv4}})
			if _, err := other.Sync(state); !errors.Is(err, nft.ErrOwned) {
				t.Errorf("another process, attempt %d: %v, want %v", attempts, err, nft.ErrOwned)
			}
			other.Close()
		}
	})
	const changes = 20
	for i := range changes {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(i), 0}), 24)
		table.Configure(nft.Config{Families: []nft.Family{nft.IPv4, nft.IPv6}, Pods: frontend.Pods{CIDRs: []netip.Prefix{cidr}}})
		w.sync(table, state)
		if !strings.Contains(w.list(), cidr.String()) {
			t.Errorf("there is no rule for Pods in %s", cidr)
		}
	}
	stop.Store(true)
	others.Wait()
	if attempts < changes {
		t.Errorf("%d attempts of another process during %d changes", attempts, changes)
	}
}
