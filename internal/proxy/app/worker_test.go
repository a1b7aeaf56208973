package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	proxysettings "portolan.dev/portolan/internal/proxy/settings"
	"portolan.dev/portolan/internal/support/programmer"
	"portolan.dev/portolan/internal/support/retry"
)

// fakeTable is a table that fails while it is told to.
type fakeTable struct {
	began    time.Time
	mu       sync.Mutex // guards the fields below
	fail     error
	syncs    []time.Duration // when Sync was called, since the test began
	applies  int
	watches  int
	watchErr error
	notices  chan<- nft.Notice
	configs  []nft.Config // of Configure
	closed   bool
}

func (f *fakeTable) Sync(*frontend.State) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs = append(f.syncs, time.Since(f.began).Truncate(time.Second))
	return 1, f.fail
}

func (f *fakeTable) Apply(*frontend.Changes) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applies++
	return 1, f.fail
}

func (f *fakeTable) Watch(ctx context.Context, notices chan<- nft.Notice) error {
	f.mu.Lock()
	f.watches++
	f.notices = notices
	err := f.watchErr
	f.mu.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (f *fakeTable) Configure(cfg nft.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.configs = append(f.configs, cfg)
}

func (f *fakeTable) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// set changes the table.
func (f *fakeTable) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// synced returns when Sync was called, after everything has come to rest; applied and watched how
// often Apply and Watch were.
func (f *fakeTable) synced() []time.Duration {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.syncs)
}

func (f *fakeTable) applied() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.applies
}

func (f *fakeTable) watched() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watches
}

// notice sends a notice, as a table does.
func (f *fakeTable) notice(n nft.Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.notices <- n:
	default:
	}
}

// workerTest is a worker with a table, and the store that it follows.
type workerTest struct {
	*worker
	store *cluster.Store
	table *fakeTable
	log   bytes.Buffer
}

// startWorker runs a worker in a bubble of synctest until the test ends.
func startWorker(t *testing.T, table *fakeTable, change ...func(*config.Config)) *workerTest {
	t.Helper()
	settings := config.Default()
	for _, c := range change {
		c(&settings)
	}
	settings.Proxy.NodeName = "node-1"
	settings.Proxy.Conntrack = proxysettings.Conntrack{} // leaves the machine as it is
	w := &workerTest{store: cluster.NewStore(), table: table}
	p, err := New(Config{
		Settings: settings, Store: w.store, Loaded: func() {}, Memory: 1,
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.worker = newWorker(p)
	w.open = func(nft.Config) kernelTable { return table }
	table.began = time.Now()
	loaded(w.store, p)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// loaded has a store be as after the first lists of an API server.
func loaded(s *cluster.Store, p *Proxy) {
	s.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, p.Needs()...) })
}

// web is a Service at a cluster IP.
func web(addr string) *cluster.Service {
	return &cluster.Service{
		Key: cluster.Key{Namespace: "shop", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr(addr)},
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}},
	}
}

// seconds returns durations of whole seconds.
func seconds(all ...int) (list []time.Duration) {
	for _, n := range all {
		list = append(list, time.Duration(n)*time.Second)
	}
	return list
}

// TestFailures has the first Syncs fail: attempts become rarer, the proxy is not healthy after a
// while, and a change that waited is measured as long as it waited.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &fakeTable{fail: unix.EBUSY}
		w := startWorker(t, table)
		time.Sleep(500 * time.Millisecond)
		w.store.Update(func(tx *cluster.Tx) {
			tx.CausedAt(time.Now())
			tx.Put(web("10.96.0.10"))
		})
		for _, step := range []struct {
			after   time.Duration
			healthy bool
		}{{59 * time.Second, true}, {10 * time.Second, false}} {
			time.Sleep(step.after)
			if got := w.health.Healthy(); got != step.healthy {
				t.Errorf("after %v: healthy %t, want %t", time.Since(table.began), got, step.healthy)
			}
		}
		time.Sleep(time.Minute)
		table.set(func() { table.fail = nil })
		time.Sleep(retry.LongestPause)
		want := seconds(0, 1, 3, 7, 15, 31, 61, 91, 121, 151)
		if !slices.Equal(table.synced(), want) {
			t.Errorf("Syncs after %v, want %v", table.synced(), want)
		}
		if !w.health.Healthy() {
			t.Error("not healthy after a success")
		}
		if n, sum := delays(t, w.metrics); n != 1 || sum < 150 || sum > 151 {
			t.Errorf("%d delays of %v s, want 1 of 150.5", n, sum)
		}
		if n := strings.Count(w.log.String(), "does not have the present state"); n != 1 {
			t.Errorf("the failure was logged %d times, want once:\n%s", n, w.log.String())
		}
	})
}

// TestRemarks checks that the log says what to do without rights and without a Node.
func TestRemarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &fakeTable{fail: unix.EPERM}
		w := startWorker(t, table)
		time.Sleep(time.Second)
		table.set(func() { table.fail = nil })
		time.Sleep(retry.LongestPause)
		synctest.Wait()
		for _, want := range []string{"it needs the capability NET_ADMIN", "there is no Node of this name"} {
			if n := strings.Count(w.log.String(), want); n != 1 {
				t.Errorf("the log has %q %d times, want once:\n%s", want, n, w.log.String())
			}
		}
	})
}

// TestClockJump: a change that was caused in the future, by a clock that jumped, took no time.
func TestClockJump(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.programmed(map[cluster.Ref]int64{{}: time.Now().Add(time.Hour).UnixNano()})
	if n, sum := delays(t, m); n != 1 || sum != 0 {
		t.Errorf("%d changes from the future took %v s, want 1 and 0", n, sum)
	}
}

// delays returns how many changes were programmed, and after how many seconds in all.
func delays(t *testing.T, m *proxyMetrics) (n uint64, sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.delay)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h := all[0].GetMetric()[0].GetHistogram()
	return h.GetSampleCount(), h.GetSampleSum()
}

// TestComparesHourly: the whole table is compared even if nothing happens.
func TestComparesHourly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := new(fakeTable)
		startWorker(t, table)
		time.Sleep(3*programmer.CompareInterval + time.Minute)
		want := []time.Duration{0, programmer.CompareInterval, 2 * programmer.CompareInterval, 3 * programmer.CompareInterval}
		if !slices.Equal(table.synced(), want) {
			t.Errorf("Syncs after %v, want %v", table.synced(), want)
		}
	})
}

// TestRepairsWait has another program change the table every 100 ms for 10 minutes. The first change
// is repaired at once, others ever later, and the log has two lines. After some calm it begins anew.
func TestRepairsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := new(fakeTable)
		w := startWorker(t, table)
		time.Sleep(10 * time.Second)
		for range 6000 {
			table.notice(nft.Changed)
			time.Sleep(100 * time.Millisecond)
		}
		want := seconds(0, 10, 11, 13, 17, 25, 41)
		if n := len(table.synced()); n < len(want) || n > 30 || !slices.Equal(table.synced()[:len(want)], want) {
			t.Errorf("%d Syncs after %v, want at most 30, first %v", n, table.synced(), want)
		}
		time.Sleep(retry.LongestPause + retry.Calm + time.Second)
		before := len(table.synced())
		table.notice(nft.Changed)
		time.Sleep(2 * retry.Gather)
		if n := len(table.synced()); n != before+1 {
			t.Errorf("a change after calm: %d Syncs at once, want 1", n-before)
		}
		for text, want := range map[string]int{"it is repaired": 2, "again and again": 1} {
			if n := strings.Count(w.log.String(), text); n != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, n, want, w.log.String())
			}
		}
	})
}

// TestWatchEnds has Watch fail: the table is compared, and watched again.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := &fakeTable{watchErr: errors.New("gone")}
		w := startWorker(t, table)
		time.Sleep(5 * time.Minute)
		if n := len(table.synced()); n < 10 || n > 20 || table.watched() != n {
			t.Errorf("%d Syncs and %d Watches in 5 minutes, want 10 to 20 of each", n, table.watched())
		}
		table.set(func() { table.watchErr = nil })
		time.Sleep(retry.LongestPause + time.Second)
		before := len(table.synced())
		table.notice(nft.Changed)
		time.Sleep(retry.LongestPause + time.Second)
		if n := len(table.synced()); n != before+1 {
			t.Errorf("a change afterwards: %d Syncs, want 1", n-before)
		}
		if n := strings.Count(w.log.String(), "not noticed"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, w.log.String())
		}
	})
}

// TestPartial: changes are applied without a Sync, until one fails: then there is one at once, and one a second later.
func TestPartial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := new(fakeTable)
		w := startWorker(t, table)
		synctest.Wait()
		put := func(addr string) {
			w.store.Update(func(tx *cluster.Tx) { tx.Put(web(addr)) })
			synctest.Wait()
		}
		put("10.96.0.10")
		for _, err := range []error{unix.EINTR, unix.EBUSY, unix.ENOENT, nft.ErrOwned} {
			table.set(func() { table.fail = err })
			put("10.96.0.11")
			table.set(func() { table.fail = nil })
			time.Sleep(retry.FirstPause)
			synctest.Wait()
			if missing, _ := w.Ready(); missing != nil {
				t.Errorf("a second after %v: %q", err, missing)
			}
			put("10.96.0.10")
		}
		if table.applied() != 9 || len(table.synced()) != 9 {
			t.Errorf("%d times Apply and %d times Sync, want 9 and 9", table.applied(), len(table.synced()))
		}
	})
}

// TestPodRangesChange checks that the table follows the Node's ranges of Pods without being closed,
// after which a proxy that stands by would own it.
func TestPodRangesChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := new(fakeTable)
		w := startWorker(t, table, func(s *config.Config) { s.Proxy.DetectLocal.Mode = proxysettings.NodeCIDR })
		synctest.Wait()
		for _, cidr := range []string{"10.244.1.0/24", "10.244.2.0/24"} {
			w.store.Update(func(tx *cluster.Tx) {
				tx.Put(&cluster.Node{Name: "node-1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(cidr)}})
			})
			synctest.Wait()
			table.set(func() {
				if n := len(table.configs); n == 0 || !slices.Equal(table.configs[n-1].Pods.CIDRs, []netip.Prefix{netip.MustParsePrefix(cidr)}) {
					t.Errorf("with Pods in %s the table was configured %+v", cidr, table.configs)
				}
				if table.closed {
					t.Errorf("with Pods in %s the table was closed", cidr)
				}
			})
		}
	})
}

// TestLeftOut checks that the log and a metric tell of Services that are left out for want of room, the
// log once.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startWorker(t, new(fakeTable))
		synctest.Wait()
		w.room = 2 * 8 // a namespace has half of it
		put := func(name, addr string) {
			s := web(addr)
			s.Name = name
			w.store.Update(func(tx *cluster.Tx) { tx.Put(s) })
			synctest.Wait()
		}
		const left, back = "level=ERROR msg=\"Services are not served", "all Services are served again"
		check := func(when string, leftOut float64, errors, infos int) {
			t.Helper()
			registry := prometheus.NewRegistry()
			registry.MustRegister(w.metrics.leftOut)
			all, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			if got := all[0].GetMetric()[0].GetGauge().GetValue(); got != leftOut {
				t.Errorf("%s: portolan_proxy_services_left_out is %v, want %v", when, got, leftOut)
			}
			if got := w.log.String(); strings.Count(got, left) != errors || strings.Count(got, back) != infos {
				t.Errorf("%s: logged\n%swant %q %d times and %q %d times", when, got, left, errors, back, infos)
			}
		}
		put("a", "10.96.0.1")
		w.table.notice(nft.Lost) // so that the node has the room
		time.Sleep(time.Minute)
		check("all fit", 0, 0, 0)
		put("b", "10.96.0.2")
		put("c", "10.96.0.3")
		check("two do not fit", 2, 1, 0)
		for _, name := range []string{"a", "b"} {
			w.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, cluster.Key{Namespace: "shop", Name: name}) })
			synctest.Wait()
		}
		check("one is left", 0, 1, 1)
	})
}
