package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/conflist"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// fakeTable is a kernel.
type fakeTable struct {
	began time.Time
	hold  chan struct{} // if it is not nil, Apply waits until it is closed
	// resolved are the addresses that a former process gave all sets of domain names; nil: there was none.
	resolved []netip.Addr

	mu      sync.Mutex // guards the fields below
	fail    error
	gone    bool            // another program deleted the table
	syncs   []time.Duration // when Sync was called, since the test began
	applies int
	pods    map[netip.Addr]ruleset.Pod
	devices map[uint32]ruleset.Device
	counts  map[string]uint64 // packets denied of ingress by chain
	notices chan<- nft.Notice
}

func (f *fakeTable) program(rs ruleset.Ruleset) error {
	if f.fail != nil {
		return f.fail
	}
	f.pods, f.devices = maps.Collect(rs.Pods()), maps.Collect(rs.Devices())
	return nil
}

func (f *fakeTable) Sync(rs ruleset.Ruleset) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = false
	f.syncs = append(f.syncs, time.Since(f.began).Truncate(time.Second))
	return f.program(rs)
}

func (f *fakeTable) Apply(rs ruleset.Ruleset, d *ruleset.Delta) error {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies++
	if f.gone {
		return fs.ErrNotExist
	}
	for _, name := range d.GoneChains {
		delete(f.counts, name)
	}
	return f.program(rs)
}

func (f *fakeTable) Assume(ruleset.Ruleset) {}

func (f *fakeTable) Resolved(rs ruleset.Ruleset) (map[string][]netip.Addr, error) {
	all := make(map[string][]netip.Addr)
	for name, s := range rs.Sets() {
		if s.Kind == ruleset.Resolved && f.resolved != nil {
			all[name] = f.resolved
		}
	}
	return all, nil
}

func (f *fakeTable) ChangeResolved([]ruleset.Resolution) error { return nil }

func (f *fakeTable) Cut([]ruleset.Flow) error   { return nil }
func (f *fakeTable) Uncut([]ruleset.Flow) error { return nil }

func (f *fakeTable) Counters(chains ...string) (all []nft.Counter, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.counts {
		if len(chains) == 0 || slices.Contains(chains, name) {
			prefix := nft.Prefix{Event: nft.Denied, Direction: ruleset.Ingress, Chain: name}
			all = append(all, nft.Counter{Prefix: prefix, Packets: n})
		}
	}
	return all, nil
}

func (f *fakeTable) Watch(ctx context.Context, notices chan<- nft.Notice) error {
	f.mu.Lock()
	f.notices = notices
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (f *fakeTable) Close() error { return nil }

// set changes the table.
func (f *fakeTable) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// judges returns the chains of an address after everything has come to rest, and whether a Pod has it.
func (f *fakeTable) judges(addr string) (ruleset.Pod, bool) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pods[netip.MustParseAddr(addr)]
	return p, ok
}

// world is a worker that runs, with a fake kernel.
type world struct {
	*Policy
	table *fakeTable
	end   func()        // has the agent end
	log   *bytes.Buffer // to be read when everything has come to rest
}

// inWorld runs a test with a worker, in a cluster with a Pod web-0 that is isolated for ingress.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		p, err := New(Config{
			Settings: config.Default(),
			Store:    cluster.NewStore(),
			Log:      slog.New(slog.NewTextHandler(log, nil)),
			Node:     "n1",
			Loaded:   func() {},
		})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Policy: p, table: &fakeTable{began: time.Now()}, log: log}
		p.worker.table = w.table
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		owned, ending := make(chan struct{}), make(chan struct{})
		close(owned)
		w.end = func() { close(ending) }
		go func() { ended <- p.worker.run(ctx, owned, ending) }()
		test(t, w)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// load has the cluster be known.
func (w *world) load(objects ...cluster.Object) {
	w.cfg.Store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "shop"})
		tx.Put(&cluster.Node{Name: "n1"})
		tx.Put(&cluster.NetworkPolicy{Key: cluster.Key{Namespace: "shop", Name: "closed"}, Ingress: true})
		for _, o := range objects {
			tx.Put(o)
		}
		tx.SetFreshness(cluster.Live, w.Needs()...)
	})
	synctest.Wait()
}

func webPod(uid string) *cluster.Pod {
	return &cluster.Pod{
		Key:  cluster.Key{Namespace: "shop", Name: "web-0"},
		Node: "n1",
		UID:  uid,
		Spec: new(cluster.PodSpec),
	}
}

func attachment(name, uid, addr string) cni.Attachment {
	return cni.Attachment{
		Sandbox: attach.Sandbox{
			ID:        attach.ID{ContainerID: name, Interface: "eth0"},
			Namespace: "shop",
			Name:      name,
			UID:       uid,
		},
		Addresses: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

// admit calls Admit, and returns a function that reports whether it has returned, with its error.
func (w *world) admit(t *testing.T, a cni.Attachment) (returned func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- w.worker.Admit(ctx, a)
	}()
	return func() (bool, error) {
		synctest.Wait()
		select {
		case err := <-done:
			return true, err
		default:
			return false, nil
		}
	}
}

// TestAdmitWaits verifies that a Pod is admitted when the kernel judges it by its own policies, and that
// nothing passes before.
func TestAdmitWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		returned := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		if done, err := returned(); done {
			t.Fatalf("Admit before the cluster is known = %v, want it to wait", err)
		}
		w.load()
		unknown, ok := w.table.judges("10.0.0.1")
		if !ok || unknown.Ingress == "" || unknown.Egress == "" {
			t.Errorf("a Pod that the model lacks has the chains %+v, %t, want some that deny", unknown, ok)
		}
		if done, err := returned(); done {
			t.Fatalf("Admit before the Pod is known = %v, want it to wait", err)
		}
		w.load(webPod("u1"))
		if done, err := returned(); !done || err != nil {
			t.Fatalf("Admit of a Pod that is known = %t, %v, want it to return", done, err)
		}
		if p, _ := w.table.judges("10.0.0.1"); p.Ingress == "" || p.Ingress == unknown.Ingress || p.Egress != "" {
			t.Errorf("the Pod has the chains %+v, want one for ingress, of its policy", p)
		}
		if err := w.worker.Check(t.Context(), attachment("web-0", "u1", "10.0.0.1")); err != nil {
			t.Errorf("Check: %v", err)
		}
		if err := w.worker.Release(t.Context(), []cni.Attachment{attachment("web-0", "u1", "10.0.0.1")}); err != nil {
			t.Errorf("Release: %v", err)
		}
		if p, ok := w.table.judges("10.0.0.1"); ok {
			t.Errorf("after Release the address has the chains %+v, want none", p)
		}
		if err := w.worker.Check(t.Context(), attachment("web-0", "u1", "10.0.0.1")); err == nil {
			t.Error("Check after Release succeeds")
		}
	})
}

// TestAdmitKnowsPods verifies which Pod of the model counts as that of an attachment.
func TestAdmitKnowsPods(t *testing.T) {
	t.Parallel()
	deleting, mirror, elsewhere := webPod("u1"), webPod("u1"), webPod("u1")
	deleting.Deleting, mirror.StaticUID, elsewhere.Node = true, "u2", "n2"
	for claim, tt := range map[string]struct {
		in   *cluster.Pod
		uid  string
		want bool
	}{
		"the Pod":                         {webPod("u1"), "u1", true},
		"a runtime that knows no UIDs":    {webPod("u1"), "", true},
		"the mirror of a static Pod":      {mirror, "u2", true},
		"the Pod of the name before this": {webPod("u1"), "u2", false},
		"the Pod, which is deleted":       {deleting, "u1", true},
		"a Pod of another node":           {elsewhere, "u1", false},
	} {
		t.Run(claim, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				t.Helper()
				w.load(tt.in)
				returned := w.admit(t, attachment("web-0", tt.uid, "10.0.0.1"))
				if done, err := returned(); done != tt.want || err != nil {
					t.Errorf("Admit returned %t, %v, want %t", done, err, tt.want)
				}
				if tt.want {
					return
				}
				time.Sleep(11 * time.Second)
				done, err := returned()
				if !done || !errors.Is(err, errNotSeen) {
					t.Errorf("Admit returned %t, %v, want %v", done, err, errNotSeen)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("Admit returned %q, want one line", err)
				}
			})
		})
	}
}

// TestEndRefuses verifies that requests are answered at once while the agent ends: what the kernel has or gets
// with one transaction is done, what would wait is refused.
func TestEndRefuses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.load(webPod("u1"))
		waiting := w.admit(t, attachment("unseen", "u2", "10.0.0.2"))
		if done, err := waiting(); done {
			t.Fatalf("Admit of a Pod that is not known = %v, want it to wait", err)
		}
		w.end()
		if done, err := waiting(); !done || !errors.Is(err, attach.ErrStopped) {
			t.Errorf("Admit of a Pod that is not known returned %t, %v, want %v", done, err, attach.ErrStopped)
		}
		if done, err := w.admit(t, attachment("late", "u3", "10.0.0.3"))(); !done || !errors.Is(err, attach.ErrStopped) {
			t.Errorf("a later Admit of a Pod that is not known returned %t, %v, want %v", done, err, attach.ErrStopped)
		}
		if err := w.worker.Release(t.Context(), []cni.Attachment{attachment("unseen", "u2", "10.0.0.2")}); err != nil {
			t.Errorf("Release: %v", err)
		}
		if p, ok := w.table.judges("10.0.0.2"); ok {
			t.Errorf("after Release the address has the chains %+v, want none", p)
		}
		if done, err := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))(); !done || err != nil {
			t.Errorf("Admit of a Pod that is known returned %t, %v, want it to be admitted", done, err)
		}
	})
}

// TestEndBeforeClusterIsKnown verifies that nothing waits for the cluster while the agent ends.
func TestEndBeforeClusterIsKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		waiting := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		w.end()
		if done, err := waiting(); !done || !errors.Is(err, attach.ErrStopped) {
			t.Errorf("Admit returned %t, %v, want %v", done, err, attach.ErrStopped)
		}
		if err := w.worker.Release(t.Context(), []cni.Attachment{attachment("web-0", "u1", "10.0.0.1")}); !errors.Is(err, attach.ErrStopped) {
			t.Errorf("Release: %v, want %v", err, attach.ErrStopped)
		}
	})
}

// TestAdmitTogether verifies that Pods that start together wait for few transactions, and that one ends all that
// end together.
func TestAdmitTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		const pods = 100
		var all []cluster.Object
		for i := range pods {
			p := webPod("u")
			p.Name = fmt.Sprintf("web-%d", i)
			all = append(all, p)
		}
		w.load(all...)
		var returned []func() (bool, error)
		w.table.hold = make(chan struct{})
		var attached []cni.Attachment
		for i := range pods {
			attached = append(attached, attachment(fmt.Sprintf("web-%d", i), "u", fmt.Sprintf("10.0.0.%d", i+1)))
			returned = append(returned, w.admit(t, attached[i]))
		}
		synctest.Wait()
		close(w.table.hold)
		for i, r := range returned {
			if done, err := r(); !done || err != nil {
				t.Errorf("Admit of Pod %d returned %t, %v", i, done, err)
			}
		}
		if _, ok := w.table.judges("10.0.0.100"); !ok {
			t.Error("the kernel does not have the last Pod")
		}
		if n := w.table.applies; n > 2 {
			t.Errorf("%d transactions for %d Pods, want one or two", n, pods)
		}
		w.table.applies = 0
		if err := w.worker.Release(t.Context(), attached); err != nil {
			t.Errorf("Release: %v", err)
		}
		if p, ok := w.table.judges("10.0.0.100"); ok || w.table.applies != 1 {
			t.Errorf("after Release the kernel has the Pod %+v, by %d transactions, want none, by one", p, w.table.applies)
		}
	})
}

// TestKernelFails verifies that Pods are not admitted while the kernel refuses transactions, and that the
// whole table is compared at once, and then every second.
func TestKernelFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.load(webPod("u1"))
		failure := errors.New("no buffer space available")
		w.table.set(func() { w.table.fail = failure })
		returned := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		if done, err := returned(); done {
			t.Fatalf("Admit = %v, want it to wait", err)
		}
		if missing, _ := w.Ready(); len(missing) == 0 || missing[0] != failure.Error() {
			t.Errorf("Ready = %q, want %v", missing, failure)
		}
		time.Sleep(3 * longestRepair / 2)
		w.table.set(func() { w.table.fail = nil })
		time.Sleep(longestRepair)
		if done, err := returned(); !done || err != nil {
			t.Errorf("Admit returned %t, %v", done, err)
		}
		w.table.set(func() {
			if want := []time.Duration{0, 0, time.Second, 2 * time.Second}; !slices.Equal(w.table.syncs, want) {
				t.Errorf("Syncs after %v, want %v", w.table.syncs, want)
			}
		})
		if missing, _ := w.Ready(); len(missing) > 0 {
			t.Errorf("Ready = %q, want nothing missing", missing)
		}
	})
}

// TestDeletedTable verifies that a change that meets a table another program deleted brings the whole table at once.
func TestDeletedTable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.load(webPod("u1"))
		w.table.set(func() { w.table.gone = true })
		begin := time.Now()
		returned := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		if done, err := returned(); !done || err != nil || time.Since(begin) > 0 {
			t.Errorf("Admit returned %t, %v after %v, want it to return at once", done, err, time.Since(begin))
		}
	})
}

// TestRepairs verifies that changes by other programs are repaired, and all is compared if messages were lost, each
// within a second.
func TestRepairs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.load(webPod("u1"))
		for i := range 10 {
			var before int
			w.table.set(func() {
				before = len(w.table.syncs)
				w.table.notices <- []nft.Notice{nft.Changed, nft.Lost}[i%2]
			})
			time.Sleep(longestRepair + 10*time.Millisecond)
			synctest.Wait()
			w.table.set(func() {
				if n := len(w.table.syncs) - before; n != 1 {
					t.Errorf("change %d: %d Syncs within %v, want 1", i, n, longestRepair)
				}
			})
		}
	})
}

// TestPacketsOfGoneChains: packets that a chain counted are not lost when it goes, and not counted again
// when it is back.
func TestPacketsOfGoneChains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.metrics.read(w.table.Counters)
		w.load(webPod("u1"))
		w.admit(t, attachment("web-0", "u1", "10.0.0.1"))
		denied := packetLabels{ruleset.Ingress, nft.Denied}
		for _, want := range []uint64{3, 8, 12} {
			p, _ := w.table.judges("10.0.0.1")
			if p.Ingress == "" {
				t.Fatal("the Pod has no chain for ingress")
			}
			before := w.metrics.countPackets()[denied]
			w.table.set(func() { w.table.counts = map[string]uint64{p.Ingress: want - before} })
			w.cfg.Store.Update(func(tx *cluster.Tx) {
				tx.Delete(cluster.KindNetworkPolicy, cluster.Key{Namespace: "shop", Name: "closed"})
			})
			if p, _ := w.table.judges("10.0.0.1"); p.Ingress != "" {
				t.Fatalf("the Pod has the chain %s without a policy", p.Ingress)
			}
			if got := w.metrics.countPackets()[denied]; got != want {
				t.Errorf("%d packets are counted after the chain has gone, want %d", got, want)
			}
			w.load()
		}
	})
}

// TestReadyNeedsNode: without its Node the agent knows no Pods, so that it enforces nothing, and is not ready.
func TestReadyNeedsNode(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct {
		loaded          bool
		node, manifests string
		want            bool
	}{
		"the Node":                    {loaded: true, node: "n1"},
		"another one":                 {loaded: true, node: "n2", want: true},
		"another one, from manifests": {loaded: true, node: "n2", manifests: "shop", want: true},
		"none":                        {loaded: true, want: true},
		"manifests without any":       {loaded: true, manifests: "shop"},
		"not known yet":               {},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			settings := config.Default()
			settings.Manifests = tt.manifests
			p, err := New(Config{
				Settings: settings, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler), Node: "n1",
			})
			if err != nil {
				t.Fatal(err)
			}
			p.cfg.Store.Update(func(tx *cluster.Tx) {
				if tt.node != "" {
					tx.Put(&cluster.Node{Name: tt.node})
				}
				if tt.loaded {
					tx.SetFreshness(cluster.Live, p.Needs()...)
				}
			})
			missing, _ := p.Ready()
			if got := strings.Contains(strings.Join(missing, "\n"), `no Node "n1"`); got != tt.want {
				t.Errorf("Ready names the Node: %t, want %t: %q", got, tt.want, missing)
			}
		})
	}
}

// TestSharedRange: the log says once, and readiness as long as it is so, that a range has addresses of another node.
// The agent is ready.
func TestSharedRange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		const reason = "pod shop/web-0 on node n2 has 10.2.0.9"
		wantSaid := func(when string, lines, remarks, ends int) {
			t.Helper()
			synctest.Wait()
			missing, got := w.Ready()
			if len(missing) > 0 || len(got) != remarks || remarks > 0 && !strings.HasSuffix(got[0], "10.0.0.0/8: "+reason) {
				t.Errorf("%s: Ready = %q, %q, want %d remarks", when, missing, got, remarks)
			}
			logged := strings.Count(w.log.String(), reason)
			ended := strings.Count(w.log.String(), "is not shared with other nodes any more")
			if logged != lines || ended != ends {
				t.Errorf("%s: the log says it %d times, and its end %d times, want %d and %d:\n%s", when, logged, ended, lines, ends, w.log)
			}
		}
		own := &cluster.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		w.load(own)
		wantSaid("a range of its own", 0, 0, 0)
		remote := webPod("u1")
		remote.Node, remote.IPs = "n2", []netip.Addr{netip.MustParseAddr("10.2.0.9")}
		w.load(own, remote)
		wantSaid("a Pod of another node", 1, 1, 0)
		next := *remote
		next.Name, next.IPs = "web-1", []netip.Addr{netip.MustParseAddr("10.2.0.10")}
		w.load(own, &next)
		wantSaid("two Pods", 1, 1, 0)
		w.cfg.Store.Update(func(tx *cluster.Tx) {
			tx.Delete(cluster.KindPod, remote.Key)
			tx.Delete(cluster.KindPod, next.Key)
		})
		wantSaid("no Pod any more", 1, 0, 1)
	})
}

// TestReadyNeedsPlugin: an agent that is to install the plugin is ready only when it did, except that it waits
// for the network of a new node.
func TestReadyNeedsPlugin(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct {
		in               error
		missing, remarks int
		metric           float64
	}{
		"installed":           {metric: 1},
		"cannot be installed": {in: errors.New(`has cniVersion "0.2.0"`), missing: 1},
		"no network yet":      {in: fmt.Errorf("/etc/cni/net.d: %w", conflist.ErrNoNetwork), remarks: 1},
	} {
		t.Run(claim, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				t.Helper()
				w.load()
				if n := installedMetric(t, w); len(n) > 0 {
					t.Errorf("before the first attempt the metric is %v, want none", n)
				}
				w.network().Observe(tt.in)
				missing, remarks := w.Ready()
				if len(missing) != tt.missing || len(remarks) != tt.remarks {
					t.Errorf("Ready after %v = %q, %q, want %d missing, %d remarks", tt.in, missing, remarks, tt.missing, tt.remarks)
				}
				if got := installedMetric(t, w); !slices.Equal(got, []float64{tt.metric}) {
					t.Errorf("after %v the metric is %v, want %v", tt.in, got, tt.metric)
				}
			})
		})
	}
}

// installedMetric returns the values of the metric of the installation.
func installedMetric(t *testing.T, w *world) (values []float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(w.Metrics()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "portolan_policy_cni_installed" {
			for _, m := range f.GetMetric() {
				values = append(values, m.GetGauge().GetValue())
			}
		}
	}
	return values
}

// TestDomainsWithoutDNS: one line of the log says that rules with domain names need the part dns.
func TestDomainsWithoutDNS(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct {
		resolves bool
		want     int
	}{"with the part": {resolves: true}, "without": {want: 1}} {
		t.Run(claim, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				t.Helper()
				w.cfg.Resolves = tt.resolves // before the worker has anything to do
				const warning = "rules with domain names allow nothing"
				w.load(webPod("u1"))
				if done, err := w.admit(t, attachment("web-0", "u1", "10.0.0.1"))(); !done || err != nil {
					t.Fatalf("Admit returned %t, %v", done, err)
				}
				if n := strings.Count(w.log.String(), warning); n != 0 {
					t.Errorf("%d warnings without such rules, want none", n)
				}
				for _, name := range []string{"a.example", "b.example"} {
					w.load(&cluster.NetworkPolicy{
						Key: cluster.Key{Namespace: "shop", Name: name}, Egress: true,
						EgressRules: []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Domains: []string{name}}}}},
					})
				}
				if n := strings.Count(w.log.String(), warning); n != tt.want {
					t.Errorf("%d warnings, want %d:\n%s", n, tt.want, w.log)
				}
			})
		})
	}
}

// TestLatePackets verifies for how long after a Pod's end packets of its address are expected.
func TestLatePackets(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		const addr, other = "10.0.0.1", "10.0.0.2"
		expect := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := w.worker.endedLately(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s: endedLately(%s) = %t, want %t", when, addr, got, want)
			}
		}
		restart := func(attached, ended string) {
			t.Helper()
			if done, err := w.admit(t, attachment("web-0", "u1", attached))(); !done || err != nil {
				t.Fatalf("Admit returned %t, %v", done, err)
			}
			if ended == "" {
				return
			}
			if err := w.worker.Release(t.Context(), []cni.Attachment{attachment("web-0", "u1", ended)}); err != nil {
				t.Fatal(err)
			}
		}
		expect("before anything is known", false)
		w.load(webPod("u1"))
		restart(addr, "")
		expect("while a Pod has the address", false)
		restart(addr, addr)
		expect("after its end", true)
		time.Sleep(lateTime / 2)
		restart(other, other)
		expect("after another's end", true)
		restart(addr, "")
		expect("when a Pod has it again", false)
		restart(addr, addr)
		time.Sleep(lateTime)
		expect("later", false)
	})
}
