package nft_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(m.Run()) }

// tcp returns a frontend of TCP port 80.
func tcp(at netip.Addr, policy frontend.Policy, endpoints ...netip.AddrPort) *frontend.Frontend {
	return &frontend.Frontend{
		Address: frontend.Address{Addr: at, Protocol: frontend.TCP, Port: 80}, Policy: policy, Endpoints: endpoints,
	}
}

// TestPackets sends connections through one frontend of each kind, in each family.
func TestPackets(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	state := new(frontend.State)
	for _, f := range families {
		all := endpoints(f, 3)
		local := tcp(vip(f, 4), frontend.ExternalLocal, all...)
		local.Local = all[:1]
		noLocal := tcp(vip(f, 5), frontend.ExternalLocal, all...)
		limited := tcp(vip(f, 6), frontend.External, all...)
		limited.Sources = []netip.Prefix{netip.PrefixFrom(outClient[f], outClient[f].BitLen())}
		dropped := tcp(vip(f, 7), frontend.Plain)
		dropped.Empty = frontend.Drop
		state.Frontends = append(
			state.Frontends, tcp(vip(f, 1), frontend.Plain, all...), tcp(vip(f, 2), frontend.Plain),
			tcp(vip(f, 3), frontend.External, all...), local, noLocal, limited, dropped,
			tcp(vip(f, 8), frontend.Plain, podEndpoint(f)),
		)
		state.Hairpins = append(state.Hairpins, podEndpoint(f).Addr())
	}
	state.ServiceCIDRs = prefixes("10.96.0.0/24", "fd00:96::/112")
	table := w.table(nil)
	w.sync(table, state)

	for name, f := range families {
		inner, outer := inner[f], outClient[f]
		for claim, c := range map[string]struct {
			from   *namespace.Network
			source netip.Addr
			to     int // VIP
			port   uint16
			want   string // of the server, if it is only one
			client netip.Addr
			err    string
		}{
			"a Pod's source is kept":                            {from: w.pod, source: podClient[f], to: 1, client: podClient[f]},
			"the node is masqueraded to a cluster IP":           {to: 1, client: inner},
			"outside is masqueraded to a cluster IP":            {from: w.outside, source: outer, to: 1, client: inner},
			"no endpoints: refused, for a Pod":                  {from: w.pod, source: podClient[f], to: 2, err: "refused"},
			"no endpoints: refused, for the node":               {to: 2, err: "refused"},
			"an undefined port is refused":                      {from: w.pod, source: podClient[f], to: 1, port: 81, err: "refused"},
			"an unallocated address is dropped":                 {from: w.pod, source: podClient[f], to: 99, err: "timeout"},
			"external: outside is masqueraded":                  {from: w.outside, source: outer, to: 3, client: inner},
			"external: a Pod is masqueraded":                    {from: w.pod, source: podClient[f], to: 3, client: inner},
			"local: outside keeps its source":                   {from: w.outside, source: outer, to: 4, want: endpoint(f, 1).String(), client: outer},
			"local: a Pod keeps its source":                     {from: w.pod, source: podClient[f], to: 4, client: podClient[f]},
			"local: the node is masqueraded":                    {to: 4, client: inner},
			"local without local endpoints: outside is dropped": {from: w.outside, source: outer, to: 5, err: "timeout"},
			"local without local endpoints: Pods reach others":  {from: w.pod, source: podClient[f], to: 5, client: podClient[f]},
			"limited: an allowed source":                        {from: w.outside, source: outer, to: 6, client: inner},
			"limited: another source is dropped":                {from: w.pod, source: podClient[f], to: 6, err: "timeout"},
			"internal Local without endpoints is dropped":       {from: w.pod, source: podClient[f], to: 7, err: "timeout"},
			"an endpoint reaches itself":                        {from: w.servers, source: podEndpoint(f).Addr(), to: 8, client: inner},
		} {
			port := c.port
			if port == 0 {
				port = 80
			}
			wait := patience
			if c.err == "timeout" {
				wait = 200 * time.Millisecond
			}
			got := w.dialWithin(wait, c.from, c.source, netip.AddrPortFrom(vip(f, c.to), port))
			switch {
			case got.err != c.err:
				t.Errorf("%s, %s: %s, want %q", name, claim, got, c.err)
			case c.err != "":
			case c.want != "" && got.server.String() != c.want:
				t.Errorf("%s, %s: %s, want server %s", name, claim, got, c.want)
			case got.client.Addr() != c.client:
				t.Errorf("%s, %s: %s, want client %s", name, claim, got, c.client)
			}
		}
	}
	if n := w.sync(table, state); n != 0 {
		t.Errorf("Sync of the same state changed %d elements", n)
	}
	w.list() // the oldest nft that is supported can list it
}

// podEndpoint is an endpoint that is a client as well.
func podEndpoint(f int) netip.AddrPort { return endpoint(f, 3) }

// TestAffinity checks that a client stays at its endpoint while that is there, over restarts
// and other frontends of the Service, and chooses again when it has gone.
func TestAffinity(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	for name, f := range families {
		state := new(frontend.State)
		affinity := &frontend.Affinity{Group: "shop/web:http/tcp", Timeout: 3 * time.Hour}
		for i := 1; i <= 2; i++ {
			front := tcp(vip(f, i), frontend.External, endpoints(f, 3)...)
			front.Affinity = affinity
			state.Frontends = append(state.Frontends, front)
		}
		table := w.table(nil)
		w.sync(table, state)
		server := func(i int) netip.AddrPort {
			t.Helper()
			a := w.dial(w.outside, outClient[f], netip.AddrPortFrom(vip(f, i), 80))
			if a.err != "" {
				t.Fatalf("%s: %s", name, a)
			}
			return a.server
		}
		first := server(1)
		for range 10 {
			if got := server(1); got != first {
				t.Fatalf("%s: %s, then %s", name, first, got)
			}
			if got := server(2); got != first {
				t.Fatalf("%s: %s at one address, %s at another", name, first, got)
			}
		}
		table.Close()
		table = w.table(nil)
		if n := w.sync(table, state); n != 0 {
			t.Errorf("%s: a restart changed %d elements", name, n)
		}
		if got := server(1); got != first {
			t.Errorf("%s: %s, after a restart %s", name, first, got)
		}
		without := slices.DeleteFunc(endpoints(f, 3), func(e netip.AddrPort) bool { return e == first })
		var less []*frontend.Frontend
		for _, front := range state.Frontends {
			changed := *front
			changed.Endpoints = without
			less = append(less, &changed)
		}
		must(t, apply(table, &frontend.Changes{Put: less}))
		second := server(1)
		if second == first {
			t.Fatalf("%s: still at %s, which has gone", name, first)
		}
		must(t, apply(table, &frontend.Changes{Put: state.Frontends}))
		for range 10 {
			if got := server(2); got != second {
				t.Fatalf("%s: %s, after an endpoint came back %s", name, second, got)
			}
		}
		table.Close()
	}
}

func apply(table interface {
	Apply(*frontend.Changes) (int, error)
}, c *frontend.Changes) error {
	_, err := table.Apply(c)
	return err
}

// TestOwned checks that others cannot change the tables of a process that runs, and that the
// next process takes over those of one that ended.
func TestOwned(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	state := &frontend.State{Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)}}
	first, second := w.table(nil), w.table(nil)
	w.sync(first, state)
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("nft flush ruleset: %v\n%s", err, out)
	}
	if n := w.sync(first, state); n != 0 {
		t.Errorf("after nft flush ruleset %d elements were missing", n)
	}
	if _, err := second.Sync(state); !errors.Is(err, nft.ErrOwned) {
		t.Errorf("a second process: %v, want ErrOwned", err)
	}
	first.Close()
	if n := w.sync(second, state); n != 0 {
		t.Errorf("taking over changed %d elements", n)
	}
}

// TestChurn connects while the set of endpoints changes all the time: no connection fails, and
// none reaches an endpoint that was never one.
func TestChurn(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	all := endpoints(0, 3)
	front := tcp(vip(0, 1), frontend.Plain, all...)
	table := w.table(nil)
	w.sync(table, &frontend.State{Frontends: []*frontend.Frontend{front}})
	const connections, clients = 3000, 4
	var failed, left atomic.Int64
	left.Store(connections)
	done := make(chan struct{})
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			namespacetest.Do(t, w.pod, func() {
				for left.Add(-1) >= 0 {
					if a := dial(podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
						failed.Add(1)
						t.Errorf("%s", a)
					}
				}
			})
		})
	}
	go func() { group.Wait(); close(done) }()
	random := rand.New(rand.NewPCG(1, 2))
	changes := 0
	for ended := false; !ended; changes++ {
		next := *front
		next.Endpoints = nil
		for pick := 1 + random.IntN(1<<len(all)-1); len(next.Endpoints) == 0 || pick > 0; pick >>= 1 {
			if pick&1 != 0 {
				next.Endpoints = append(next.Endpoints, all[len(next.Endpoints)])
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		slices.SortFunc(next.Endpoints, netip.AddrPort.Compare)
		must(t, apply(table, &frontend.Changes{Put: []*frontend.Frontend{&next}}))
		select {
		case <-done:
			ended = true
		default:
		}
	}
	t.Logf("%d connections, %d failed, %d changes", connections, failed.Load(), changes)
}

// TestRepair checks that a plain table that others flushed or changed is noticed, and that
// only what is missing is added.
func TestRepair(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	state := &frontend.State{Frontends: []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...)}}
	table := w.table(nil).Plain()
	total := w.sync(table, state)
	changed, ended := make(chan nft.Notice, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- table.Watch(ctx, changed) }()
	defer func() { stop(); must(t, <-ended) }()
	for _, c := range []struct {
		command string
		missing int
	}{
		{"flush ruleset", total},
		{"delete element ip portolan-proxy services { 10.96.0.1 . tcp . 80 }", 1},
		{"flush map ip portolan-proxy endpoints", 3},
		{"delete table ip portolan-proxy", total},
		{"add element ip portolan-proxy cluster-ips { 10.96.0.77 }", 1},
	} {
		nftCommand(t, c.command)
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatalf("nft %s is not noticed", c.command)
		}
		if n := w.sync(table, state); n != c.missing {
			t.Errorf("nft %s: Sync changed %d elements, want %d", c.command, n, c.missing)
		}
	}
}
