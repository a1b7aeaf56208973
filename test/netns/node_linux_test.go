package netns

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/netns/nodes"
)

// The names that Pods of the Namespace shop look up.
var (
	shortName   = nodes.Want{Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.20")}}
	twoPartName = nodes.Want{Name: "web.data", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.21")}}
	missingName = nodes.Want{Name: "nosuch"}
)

func externalName() nodes.Want {
	name, addrs := nodes.External(3)
	return nodes.Want{Name: name, Addrs: addrs}
}

// agents are the modes of `portolan node`, each with the log line that ends its start.
var agents = map[string]string{"cache": "msg=serving", "secondary": "zone is followed"}

// small is a cluster of nodes; its programs and files are in dir.
type small struct {
	*nodes.World
	dir     string
	service netip.Addr // that Pods ask
}

// TestNode has Pods look names up by the agent on their node.
func TestNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Parallel()
	dir := t.TempDir()
	w, err := nodes.New([nodes.Count]netip.Addr{netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("10.0.2.2")})
	t.Cleanup(w.Close)
	if err == nil {
		err = nodes.BuildLookup(dir)
	}
	if err == nil {
		err = w.Lead(nodes.Servers[0])
	}
	if err != nil && !inCI() {
		t.Skipf("nodes with Pods need root, nft (Debian: nftables), gcc and musl-gcc: %v", err)
	}
	must(t, err)
	linkProgram(t, dir)
	stop, err := w.ServeUpstream()
	must(t, err)
	t.Cleanup(stop)
	s := &small{World: w, dir: dir, service: nodes.DNSService}
	s.startServer(t)
	for mode, settled := range agents {
		t.Run(mode, func(t *testing.T) {
			config := s.file(t, mode+".yaml", fmt.Sprintf("node: {mode: %s, addresses: [%s, %s], servers: [%s]}\n",
				mode, nodes.Local, s.service, nodes.ServerService)+s.external())
			a := agent{s, config, settled}
			t.Run("packets", a.packets)
			t.Run("killed", a.killed)
			t.Run("upgraded", a.upgraded)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// external returns settings of all processes: an upstream, and no admin listener,
// whose port only one of them would get.
func (s *small) external() string {
	return fmt.Sprintf("admin: {listen: ''}\ndns:\n  forward: {routes: [{upstreams: [%s]}]}\n", nodes.Upstream)
}

func (s *small) file(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(s.dir, name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s *small) startServer(t *testing.T) {
	t.Helper()
	manifests := filepath.Join(s.dir, "manifests")
	must(t, os.Mkdir(manifests, 0o700))
	s.file(t, "manifests/cluster.yaml", cluster())
	config := s.file(t, "serve.yaml", fmt.Sprintf("manifests: %s\n", manifests)+s.external()+
		fmt.Sprintf("  listen: ['%s:53']\n  transfer: {allow: [{clients: [172.16.0.0/16]}]}\n", nodes.Servers[0]))
	s.start(t, s.Server, "serve", config)
	s.await(t, s.Server, nodes.Servers[0])
}

// start starts Portolan, until the test ends.
func (s *small) start(t *testing.T, at *nodes.Place, command, config string) *nodes.Process {
	t.Helper()
	p, err := at.Start(filepath.Join(t.TempDir(), "log"), filepath.Join(s.dir, "portolan"), command, "--config", config)
	must(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of portolan %s:\n%s", command, p.Log())
		}
	})
	return p
}

// await waits until a server has the right answer.
func (s *small) await(t *testing.T, from *nodes.Place, server netip.Addr) {
	t.Helper()
	want := nodes.Want{Name: nodes.Searched(shortName.Name, "shop"), Addrs: shortName.Addrs}
	await.NoError(t, func() error {
		q, err := from.Ask(server, want, 20*time.Millisecond)
		must(t, err)
		if q.Result != nodes.Right {
			return fmt.Errorf("%s does not answer %s", server, want.Name)
		}
		return nil
	})
}

func (s *small) lookUp(t *testing.T, libc nodes.Libc, want nodes.Want) nodes.Lookup {
	t.Helper()
	l, err := s.StartLookups(0, s.dir, libc)
	must(t, err)
	must(t, l.LookUp(want))
	all, err := l.End()
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%d lookups came to an end, want 1", len(all))
	}
	return all[0]
}

// agent is that of the first node.
type agent struct {
	*small
	config  string // file
	settled string // what it says when it has everything
}

// begin starts it, and waits until it answers.
func (a agent) begin(t *testing.T) *nodes.Process {
	t.Helper()
	p := a.start(t, a.Nodes[0], "node", a.config)
	must(t, p.AwaitLog(a.settled, patience))
	a.await(t, a.Nodes[0], nodes.Local)
	return p
}

// packets counts a Pod's queries with the agent: one for A and one for AAAA, and two
// more for the name without a search domain if it does not exist.
func (a agent) packets(t *testing.T) {
	a.begin(t)
	must(t, a.Resolve(0, nodes.WithSearch("shop", a.service)))
	for _, libc := range []nodes.Libc{nodes.Glibc, nodes.Musl} {
		for want, most := range map[*nodes.Want]int{&shortName: 2, &twoPartName: 2, new(externalName()): 2, &missingName: 4} {
			must(t, a.StartCount())
			if got := a.lookUp(t, libc, *want); got.Result != nodes.Right {
				t.Errorf("%s by %s: %+v", want.Name, libc, got)
			}
			traffic, err := a.Counted(0)
			must(t, err)
			if n := traffic.Queries.Packets; n < 2 || n > most {
				t.Errorf("%s by %s: %d queries, want 2 to %d", want.Name, libc, n, most)
			}
		}
	}
}

// killed kills the agent: from then on the cluster's server answers, to which the
// cluster DNS IP leads.
func (a agent) killed(t *testing.T) {
	const times = 3
	for range times {
		p := a.begin(t)
		p.Kill()
		for range 10 {
			if got := a.lookUp(t, nodes.Glibc, shortName); got.Result != nodes.Right || got.Took > time.Second {
				t.Errorf("after the agent's end: %+v", got)
			}
		}
	}
}

// upgraded starts a second agent beside the first one, which then ends. No query to
// either address is lost.
func (a agent) upgraded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	old := a.begin(t)
	want := nodes.Want{Name: nodes.Searched(shortName.Name, "shop"), Addrs: shortName.Addrs}
	var loads []*nodes.Load
	for _, addr := range []netip.Addr{nodes.Local, a.service} {
		loads = append(loads, a.Pods[0].StartLoad(ctx, addr, 2*time.Millisecond, []nodes.Want{want}))
	}
	const times = 5
	for range times {
		next := a.start(t, a.Nodes[0], "node", a.config)
		must(t, next.AwaitLog(a.settled, patience))
		must(t, old.Stop())
		old = next
	}
	for _, load := range loads {
		queries, err := load.End()
		must(t, err)
		count := make(map[nodes.Result]int)
		for _, q := range queries {
			count[q.Result]++
		}
		if len(queries) < times || count[nodes.Right] != len(queries) {
			t.Errorf("%d queries: %d lost, %d failed, %d wrong", len(queries), count[nodes.Lost], count[nodes.Failed], count[nodes.Wrong])
		}
		t.Logf("%d queries", len(queries))
	}
}
