package app

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	proxysettings "portolan.dev/portolan/internal/proxy/settings"
	"portolan.dev/portolan/internal/support/programmer"
)

// faultyTable is a table of the kernel whose transactions fail at random, before or after they were
// made.
type faultyTable struct {
	*nft.Table
	random *rand.Rand
	faults int
}

func (f *faultyTable) Sync(s *frontend.State) (int, error) {
	return f.disturb(func() (int, error) { return f.Table.Sync(s) })
}

func (f *faultyTable) Apply(c *frontend.Changes) (int, error) {
	return f.disturb(func() (int, error) { return f.Table.Apply(c) })
}

func (f *faultyTable) disturb(transaction func() (int, error)) (int, error) {
	const none, before, after = 2, 3, 4
	kind := f.random.IntN(after + 1)
	err := []error{unix.EINTR, unix.EBUSY, unix.ENOBUFS}[f.random.IntN(3)]
	if kind > none {
		f.faults++
	}
	if kind == before {
		return 0, err
	}
	n, failed := transaction()
	if kind == after && failed == nil {
		return n, err
	}
	return n, failed
}

// TestTransactionsFail changes the endpoint of a Service while transactions fail at random. Connections
// reach the endpoint before the change or after it, and after a success only that.
func TestTransactionsFail(t *testing.T) {
	t.Parallel()
	inNamespace(t, func() {
		endpoints := []string{"10.244.7.2", "10.244.7.3", "10.244.7.4"}
		commands := []string{"link set lo up", "route add 10.96.0.0/16 dev lo"}
		for _, addr := range endpoints {
			commands = append(commands, "address add "+addr+"/32 dev lo")
		}
		for _, command := range commands {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v\n%s", command, err, out)
				return
			}
		}
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		go answerWithAddress(l)

		faulty := &faultyTable{random: rand.New(rand.NewPCG(3, 4))}
		w, store := newFaultyWorker(t, faulty)
		feed := store.Subscribe()
		defer feed.Close()
		defer w.close()
		last, scope := "", programmer.Full
		for i := range 150 {
			next := endpoints[i%len(endpoints)]
			store.Update(func(tx *cluster.Tx) { tx.Put(web("10.96.0.10")); tx.Put(webSlice(next)) })
			changes := feed.Pending()
			for {
				w.apply(t.Context(), changes, scope)
				err := w.programmer.Err()
				got := connect("10.96.0.10:80")
				if got != next && (err == nil || got != last) {
					t.Errorf("change %d to %s (%v): %q answers, before it was %q", i, next, err, got, last)
				}
				if err == nil {
					scope = programmer.Partial
					break
				}
				changes, scope = cluster.Changes{}, programmer.Full
			}
			last = next
		}
		if faulty.faults < 50 {
			t.Errorf("%d faults, want more", faulty.faults)
		}
	})
}

// newFaultyWorker returns a worker that does not run, whose table fails.
func newFaultyWorker(t *testing.T, faulty *faultyTable) (*worker, *cluster.Store) {
	t.Helper()
	settings := config.Default()
	settings.Proxy.NodeName = "node-1"
	settings.Proxy.Conntrack = proxysettings.Conntrack{}
	store := cluster.NewStore()
	p, err := New(Config{Settings: settings, Store: store, Loaded: func() {}, Memory: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	loaded(store, p)
	w := newWorker(p)
	w.open = func(c nft.Config) kernelTable {
		faulty.Table = nft.New(c)
		return faulty
	}
	return w, store
}

// webSlice has an endpoint of the Service web.
func webSlice(addr string) *cluster.EndpointSlice {
	return &cluster.EndpointSlice{
		Key: cluster.Key{Namespace: "shop", Name: "web-1"}, Service: "web", AddressType: cluster.IPv4,
		Ports:     []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
		Endpoints: []cluster.Endpoint{{Addr: netip.MustParseAddr(addr), Ready: true, Serving: true}},
	}
}

// answerWithAddress answers connections with the address at which they arrive.
func answerWithAddress(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		host, _, _ := net.SplitHostPort(c.LocalAddr().String())
		fmt.Fprint(c, strings.TrimPrefix(host, "::ffff:"))
		c.Close()
	}
}

// connect returns what a server answers, or an error; "" if nobody serves the address.
func connect(to string) string {
	c, err := net.DialTimeout("tcp", to, 200*time.Millisecond)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	text, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
