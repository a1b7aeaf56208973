package podnetwork

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/pinned"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
	"portolan.dev/portolan/test/program"
)

// TestMain builds the programs before tests run in namespaces without a network.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Short() {
		_, err := cnitool(context.Background())
		if err == nil {
			_, err = program.Build(context.Background(), released)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// released is how the program is built for releases.
var released = program.Options{Env: []string{"CGO_ENABLED=0"}}

// cnitool builds the program of the CNI project, and returns its file.
func cnitool(ctx context.Context) (string, error) {
	const name, module = "cnitool", "github.com/containernetworking/cni"
	built, err := pinned.Set{
		Module:      "portolan.dev/portolan/test/e2e",
		Name:        "cnitool-%s",
		Packages:    map[string]string{name: module + "/cnitool"},
		Versions:    []string{module},
		Environment: []string{"CGO_ENABLED=0"},
	}.Prepare(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	return built.Path(name), err
}

// nodes are the own Node, and another one behind a router. The ranges are large enough for 1,000 Pods.
const nodes = `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: 10.244.0.0/21, podCIDRs: [10.244.0.0/21, "fd00:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
spec: {podCIDR: 10.244.8.0/24, podCIDRs: [10.244.8.0/24, "fd00:2::/64"]}
status: {addresses: [{type: InternalIP, address: 198.51.100.2}]}
`

// node is a node with the directories of its CNI plugin. Its network is that of the test.
type node struct {
	*testing.T
	dir      string
	portolan string
	parts    string // of the agent
	client   pod    // with policies
	cni      *libcni.CNIConfig
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// newNode makes a node without an agent, whose Nodes are these; nil outside of the test's namespaces.
func newNode(t *testing.T, objects string) *node {
	t.Helper()
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return nil
	}
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // the name of a test would make that of the socket too long
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{T: t, dir: dir, parts: "network"}
	n.portolan, err = program.Build(t.Context(), released)
	must(t, err)
	must(t, os.Mkdir(n.path("manifests"), 0o755))
	must(t, os.WriteFile(n.path("manifests/nodes.yaml"), []byte(objects), 0o600))
	n.configure("manifests: " + n.path("manifests"))
	must(t, namespace.IP("link add uplink type veth peer name switch", "link set switch up", "link set uplink up"))
	n.addAddresses()
	// The library makes this itself, but not for concurrent calls.
	starter := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.path("bin")}, n.path("cache"), starter)
	t.Cleanup(func() {
		if text, _ := os.ReadFile(n.path("agent.log")); t.Failed() {
			t.Logf("the agent's log ends with\n%s", text[max(0, len(text)-5000):])
		}
	})
	return n
}

// configure writes the agent's configuration, with sections that say where the cluster is.
func (n *node) configure(sections string) {
	n.Helper()
	must(n, os.WriteFile(n.path("node.yaml"), fmt.Appendf(nil,
		"admin: {listen: ''}\nproxy: {nodeName: n1}\npolicy: {cni: {socket: %[1]s}}\n"+
			"network: {cni: {socket: %[1]s, binDir: %[2]s, confDir: %[3]s}}\n%[4]s\n",
		n.path("cni.sock"), n.path("bin"), n.path("net.d"), sections,
	), 0o600))
}

// addAddresses gives the uplink the node's addresses, and the node its route to others.
func (n *node) addAddresses() {
	n.Helper()
	must(n, namespace.IP(
		"address replace 192.0.2.1/24 dev uplink", "address replace 2001:db8::1/64 dev uplink nodad",
		"route replace default via 192.0.2.254",
	))
}

// start starts an agent. It may run beside another one.
func (n *node) start() *process.Process {
	n.Helper()
	p := &process.Process{
		Path: n.portolan, Log: n.path("agent.log"), Args: []string{"node", "--parts", n.parts, "--config", n.path("node.yaml")},
	}
	must(n, p.Start())
	n.Cleanup(func() { p.Stop(0) })
	return p
}

// usable waits until Pods can start, and returns the network.
func (n *node) usable() *libcni.NetworkConfigList {
	n.Helper()
	await.NoError(n, func() error {
		list, err := n.network("")
		if err != nil {
			return err
		}
		return n.cni.GetStatusNetworkList(n.Context(), list)
	})
	list, err := n.network("")
	must(n, err)
	return list
}

// network loads the network that the agent installed, with another version if there is one.
func (n *node) network(version string) (*libcni.NetworkConfigList, error) {
	text, err := os.ReadFile(n.path("net.d/05-portolan.conflist"))
	if err != nil {
		return nil, err
	}
	if version != "" {
		text = []byte(strings.Replace(string(text), `"cniVersion": "1.1.0"`, `"cniVersion": "`+version+`"`, 1))
	}
	return libcni.ConfListFromBytes(text)
}

// pod is a Pod's sandbox. Each has a port of the node.
type pod struct {
	name     string
	ns       *namespace.Network
	hostPort int
}

func (n *node) newPod(i int) pod {
	n.Helper()
	const firstPort = 20000
	return pod{name: fmt.Sprint("web-", i), ns: namespacetest.New(n), hostPort: firstPort + i}
}

func (n *node) newPods(count int) (all []pod) {
	n.Helper()
	for i := range count {
		all = append(all, n.newPod(i))
	}
	return all
}

// conf is what the runtime passes for a Pod, as containerd does.
func (p pod) conf() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: "sandbox-of-" + p.name, NetNS: p.ns.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", p.name}},
		CapabilityArgs: map[string]any{
			"portMappings": []any{map[string]any{"hostPort": p.hostPort, "containerPort": 80, "protocol": "tcp"}},
		},
	}
}

// add starts a Pod, and returns its addresses.
func (n *node) add(list *libcni.NetworkConfigList, p pod) (addrs []netip.Addr, err error) {
	result, err := n.cni.AddNetworkList(n.Context(), list, p.conf())
	if err != nil {
		return nil, err
	}
	return addressesOf(result)
}

func (n *node) del(list *libcni.NetworkConfigList, p pod) error {
	return n.cni.DelNetworkList(n.Context(), list, p.conf())
}

func addressesOf(result types.Result) (addrs []netip.Addr, err error) {
	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	for _, ip := range current.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		addrs = append(addrs, addr.Unmap())
	}
	if len(addrs) != 2 {
		err = fmt.Errorf("the addresses are %v, want one of each family", addrs)
	}
	return addrs, err
}

// reaches returns an error unless the node can connect to a Pod by each of its addresses.
func (p pod) reaches(addrs []netip.Addr) error {
	var errs []error
	for _, addr := range addrs {
		errs = append(errs, p.answers(addr))
	}
	return errors.Join(errs...)
}

// answers returns an error unless the Pod answers at an address with it.
func (p pod) answers(addr netip.Addr) error {
	l, err := p.listen(addr)
	if err != nil {
		return err
	}
	defer l.Close()
	return connect(l.Addr(), await.Answer)
}

// listen has a Pod listen at an address of its own.
func (p pod) listen(addr netip.Addr) (l net.Listener, err error) {
	err = p.ns.Do(func() error {
		l, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "80"))
		return err
	})
	return l, err
}

func connect(to net.Addr, within time.Duration) error {
	conn, err := net.DialTimeout("tcp", to.String(), within)
	if err != nil {
		return err
	}
	return conn.Close()
}

// each calls do for all Pods at once, as many at a time as a busy kubelet would, and returns those that it failed for.
func each(pods []pod, do func(pod) error) (failed []pod, errs []error) {
	const atOnce = 50
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, p := range pods {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := do(p); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed, errs = append(failed, p), append(errs, fmt.Errorf("%s: %w", p.name, err))
			}
		})
	}
	all.Wait()
	return failed, errs
}

// index matches the number of a device, which is another one when it is made again.
var index = regexp.MustCompile(`^\d+: `)

// counter matches what nft(8) prints of a counter.
var counter = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// state is what the kernel and the disk have of Pods, in lines.
func (n *node) state() string {
	n.Helper()
	var lines []string
	for _, command := range [][]string{
		{"ip", "-o", "link", "show"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
		{"ip", "neigh", "show", "nud", "permanent"}, {"ip", "-6", "neigh", "show", "nud", "permanent"}, {"ip", "rule"},
		{"nft", "list", "ruleset"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			n.Fatalf("%q: %v\n%s", command, err, out)
		}
		for line := range strings.Lines(string(out)) {
			line = counter.ReplaceAllString(strings.TrimSpace(index.ReplaceAllString(line, "")), "counter")
			// Routes to groups and link-local addresses come with links, after a while.
			if !strings.Contains(line, "ff00::/8") && !strings.Contains(line, "fe80:") {
				lines = append(lines, strings.Join(command, " ")+": "+line)
			}
		}
	}
	lines = append(lines, n.records()...)
	slices.Sort(lines) // the kernel lists in the order of changes
	return strings.Join(lines, "\n")
}

// records are the names of the files that hold what a Pod has. Those of addresses that are not to be given again at
// once say when they were released. A file that goes meanwhile, as those do that the agent writes a record to first, is
// none.
func (n *node) records() (names []string) {
	n.Helper()
	must(n, filepath.WalkDir(n.path("network"), func(path string, d fs.DirEntry, err error) error {
		var text []byte
		if err == nil && !d.IsDir() {
			text, err = os.ReadFile(path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil, d.IsDir(), strings.Contains(string(text), `"released"`), strings.HasSuffix(path, ".lock"):
			return err
		}
		names = append(names, path)
		return nil
	}))
	return names
}

// wantState waits until nothing is there but what was before.
func (n *node) wantState(before string) {
	n.Helper()
	if err := await.Within(await.Answer, func() error {
		now := n.state()
		if now == before {
			return nil
		}
		return errors.New(difference(before, now))
	}); err != nil {
		n.Errorf("what is there is not what was before:\n%v", err)
	}
}

// difference lists the lines that one text has and the other has not.
func difference(before, now string) string {
	var out strings.Builder
	old, fresh := strings.Split(before, "\n"), strings.Split(now, "\n")
	for _, line := range fresh {
		if !slices.Contains(old, line) {
			fmt.Fprintf(&out, "+ %s\n", line)
		}
	}
	for _, line := range old {
		if !slices.Contains(fresh, line) {
			fmt.Fprintf(&out, "- %s\n", line)
		}
	}
	return out.String()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
