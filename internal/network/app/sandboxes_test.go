package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
)

// errKilled is what everything returns once the process of a test has ended.
var errKilled = errors.New("killed")

// kernel is a fake of links, ports and admission that can end the process after some steps. What it has stays.
type kernel struct {
	mu       sync.Mutex
	steps    int // until the process is killed; negative is never
	calls    []string
	links    map[string]string // down or up, by the host's end
	limits   map[string][2]link.Bandwidth
	ports    map[string][]nft.Port
	admitted map[attach.ID][]netip.Addr
	fail     map[string]error // of a call
}

func newKernel() *kernel {
	return &kernel{
		steps: -1, links: make(map[string]string), limits: make(map[string][2]link.Bandwidth), ports: make(map[string][]nft.Port),
		admitted: make(map[attach.ID][]netip.Addr), fail: make(map[string]error),
	}
}

// do does a step, unless the process is killed before it.
func (k *kernel) do(call string, step func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.steps == 0 {
		return errKilled
	}
	k.steps--
	k.calls = append(k.calls, call)
	if err := k.fail[call]; err != nil {
		return err
	}
	step()
	return nil
}

func (k *kernel) Create(_ link.Config, pod link.Pod) (int, error) {
	return 7, k.do("create", func() {
		k.links[pod.Host] = "down"
		k.limits[pod.Host] = [2]link.Bandwidth{pod.Ingress, pod.Egress}
	})
}

func (k *kernel) Up(_ link.Config, pod link.Pod) error {
	return k.do("up", func() { k.links[pod.Host] = "up" })
}

func (k *kernel) Check(_ link.Config, pod link.Pod) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.links[pod.Host] != "up" {
		return fmt.Errorf("device %s is missing", pod.Host)
	}
	if want := [2]link.Bandwidth{pod.Ingress, pod.Egress}; k.limits[pod.Host] != want {
		return fmt.Errorf("the limits are %v, not %v", k.limits[pod.Host], want)
	}
	return nil
}

func (k *kernel) Prune() error { return nil }

func (k *kernel) Refresh(link.Config, link.Pod) error { return nil }

func (k *kernel) List() ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.links)), nil
}

// kernelPorts and kernelPolicies are the kernel as other interfaces.
type (
	kernelPorts    struct{ *kernel }
	kernelPolicies struct{ *kernel }
	kernelEnds     struct{ *kernel }
)

func (k kernelEnds) Delete(host string) error {
	return k.do("delete", func() { delete(k.links, host) })
}

func (k kernelPorts) AddPorts(owner string, all []nft.Port) error {
	k.mu.Lock()
	for other, has := range k.ports {
		if other != owner && len(has) > 0 && len(all) > 0 && has[0].HostPort == all[0].HostPort {
			k.mu.Unlock()
			return &nft.ConflictError{Port: all[0], Owner: other}
		}
	}
	k.mu.Unlock()
	return k.do("ports", func() { k.ports[owner] = all })
}

func (k kernelPorts) CheckPorts(owner string, all []nft.Port) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.ports[owner], all) {
		return fmt.Errorf("the ports are %v, not %v", k.ports[owner], all)
	}
	return nil
}

func (k kernelPorts) DeletePorts(owner string) error {
	return k.do("delete ports", func() { delete(k.ports, owner) })
}

func (k kernelPolicies) Admit(_ context.Context, s attach.Sandbox, addrs []netip.Addr, device attach.Device) error {
	if device.Index != 7 || !strings.HasPrefix(device.Name, "ptl") {
		return fmt.Errorf("device %v", device)
	}
	return k.do("admit", func() { k.admitted[s.ID] = addrs })
}

func (k kernelPolicies) Release(_ context.Context, id attach.ID) error {
	return k.do("release", func() { delete(k.admitted, id) })
}

func (k kernelPolicies) Check(_ context.Context, s attach.Sandbox, _ []netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.admitted[s.ID]; !ok {
		return errors.New("its policies are missing")
	}
	return nil
}

func (k kernelPolicies) Ready() error { return nil }
func (k kernelPolicies) Begin()       {}
func (k kernelPolicies) End()         {}

type kernelFlows struct{}

func (kernelFlows) begin([]nft.Port) {}
func (kernelFlows) end([]nft.Port)   {}

// left returns what the kernel has of Pods.
func (k *kernel) left() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var parts []string
	for host, state := range k.links {
		parts = append(parts, host+" "+state)
	}
	for owner := range k.ports {
		parts = append(parts, "ports of "+owner)
	}
	for id := range k.admitted {
		parts = append(parts, "policies of "+id.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// start starts a process with the kernel and the records in dir.
func start(t *testing.T, k *kernel, dir, ranges string) *sandboxes {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	pool, err := ipam.Open(ipam.Config{Dir: dir, Reuse: time.Minute, Now: time.Now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Prefix
	for text := range strings.FieldsSeq(ranges) {
		all = append(all, netip.MustParsePrefix(text))
	}
	if err := pool.SetRanges(all); err != nil {
		t.Fatal(err)
	}
	s := &sandboxes{
		pool: pool, links: kernelEnds{k}, ports: kernelPorts{k}, admission: kernelPolicies{k}, log: log,
		node:  func() (link.Config, error) { return link.Config{MTU: 1450}, nil },
		await: func(context.Context) (link.Config, error) { return link.Config{MTU: 1450}, nil },
		flows: kernelFlows{}, busy: make(map[attach.ID]*turn),
	}
	owners, err := s.restore()
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	clear(k.ports)
	for _, o := range owners {
		k.ports[o.Name] = o.Ports
	}
	k.mu.Unlock()
	return s
}

const dual = "10.244.1.0/24 fd00:1::/64"

func request(verb attach.Verb, pod string) attach.Request {
	return attach.Request{Verb: verb, Sandbox: attach.Sandbox{
		ID: attach.ID{ContainerID: "id-of-" + pod, Interface: "eth0"}, Network: "portolan", NetNS: "/run/netns/" + pod,
		Namespace: "shop", Name: pod, UID: "u-" + pod,
	}}
}

func add(pod string) attach.Request {
	r := request(attach.Add, pod)
	r.Ports = []attach.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 81}}
	return r
}

// TestAdd: ADD makes everything in the order in which no packet passes before its policies, CHECK finds it, and DEL
// undoes it, twice.
func TestAdd(t *testing.T) {
	t.Parallel()
	k := newKernel()
	s := start(t, k, t.TempDir(), dual)
	result, err := s.handle(t.Context(), add("web"))
	if err != nil {
		t.Fatal(err)
	}
	host := link.HostName("id-of-web", "eth0")
	want := attach.Result{
		Host: attach.Interface{Name: host, MAC: "ee:ee:ee:ee:ee:ee", MTU: 1450},
		Pod:  attach.Interface{Name: "eth0", MAC: "0a:58:0a:f4:01:01", MTU: 1450},
		Addrs: []attach.Address{
			{Address: "10.244.1.1/32", Gateway: "169.254.1.1"}, {Address: "fd00:1::1/128", Gateway: "fe80::1"},
		},
	}
	if result.Host != want.Host || result.Pod != want.Pod || !slices.Equal(result.Addrs, want.Addrs) {
		t.Errorf("ADD: %+v, want %+v", *result, want)
	}
	if got := strings.Join(k.calls, ", "); got != "create, admit, up, ports" {
		t.Errorf("ADD did %s", got)
	}
	const owner = "shop/web (id-of-web,eth0)"
	if got := k.ports[owner]; len(got) != 2 || got[0].HostPort != 8080 || got[0].To.String() != "10.244.1.1:80" {
		t.Errorf("ports %+v", k.ports)
	}
	check := request(attach.Check, "web")
	check.Addresses = []string{"10.244.1.1", "fd00:1::1"}
	if _, err := s.handle(t.Context(), check); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	check.Addresses = check.Addresses[:1]
	if _, err := s.handle(t.Context(), check); err == nil || !strings.Contains(err.Error(), "ADD had the result [10.244.1.1]") {
		t.Errorf("CHECK with another result: %v", err)
	}
	for range 2 {
		if _, err := s.handle(t.Context(), request(attach.Release, "web")); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	if left := k.left(); left != "" || len(s.pool.All()) > 0 {
		t.Errorf("left: %s, %v", left, s.pool.All())
	}
}

// TestCheck: CHECK names everything that the kernel lacks of what ADD recorded, also after a restart, and although CHECK
// does not have the runtime's configuration.
func TestCheck(t *testing.T) {
	t.Parallel()
	host, id := link.HostName("id-of-web", "eth0"), request(attach.Add, "web").ID
	for claim, test := range map[string]struct {
		damage func(*kernel)
		want   []string
	}{
		"nothing":   {func(*kernel) {}, nil},
		"a limit":   {func(k *kernel) { k.limits[host] = [2]link.Bandwidth{} }, []string{"the limits are [{0 0} {0 0}], not [{1000 0} {2000 64}]"}},
		"ports":     {func(k *kernel) { clear(k.ports) }, []string{"the ports are [], not [TCP 8080 TCP 8080]"}},
		"all three": {func(k *kernel) { delete(k.links, host); clear(k.ports); delete(k.admitted, id) }, []string{"is missing", "the ports are []", "its policies are missing"}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			k, dir := newKernel(), t.TempDir()
			r := add("web")
			r.Bandwidth = &attach.Bandwidth{IngressRate: 1000, EgressRate: 2000, EgressBurst: 64}
			if _, err := start(t, k, dir, dual).handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			s := start(t, k, dir, dual)
			test.damage(k)
			check := request(attach.Check, "web")
			check.Addresses = []string{"10.244.1.1", "fd00:1::1"}
			_, err := s.handle(t.Context(), check)
			if (err == nil) != (test.want == nil) {
				t.Errorf("CHECK: %v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("CHECK: %v, want %q", err, want)
				}
			}
			s.node = func() (link.Config, error) { return link.Config{}, errNotSynced }
			_, err = s.handle(t.Context(), check)
			if refused, ok := errors.AsType[*attach.RefusedError](err); !ok || refused.Code != attach.CodeTryAgain {
				t.Errorf("CHECK while the node is not known: %v, want that it is tried again", err)
			}
		})
	}
}

// TestRestore: the ports of Pods whose links are there come before those of others, and the older before the newer.
func TestRestore(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	s := start(t, k, dir, dual)
	for _, pod := range []string{"gone", "z-older", "a-newer"} {
		if _, err := s.handle(t.Context(), add(pod)); err != nil {
			t.Fatal(err)
		}
		clear(k.ports) // so that the next can have the same
	}
	delete(k.links, link.HostName("id-of-gone", "eth0"))
	owners, err := start(t, k, dir, dual).restore()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range owners {
		got = append(got, o.Name)
	}
	want := []string{"shop/z-older (id-of-z-older,eth0)", "shop/a-newer (id-of-a-newer,eth0)", "shop/gone (id-of-gone,eth0)"}
	if !slices.Equal(got, want) {
		t.Errorf("restore: %q, want %q", got, want)
	}
}

// TestFails: whatever step of ADD fails, nothing is left, and the next attempt works.
func TestFails(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"create", "admit", "up", "ports"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			k := newKernel()
			s := start(t, k, t.TempDir(), dual)
			full := errors.New("it is full")
			k.fail[call] = full
			if _, err := s.handle(t.Context(), add("web")); !errors.Is(err, full) {
				t.Errorf("ADD: %v, want %v", err, full)
			}
			if left := k.left(); left != "" || len(s.pool.All()) > 0 {
				t.Errorf("left: %s, %v", left, s.pool.All())
			}
			delete(k.fail, call)
			if _, err := s.handle(t.Context(), add("web")); err != nil {
				t.Errorf("ADD again: %v", err)
			}
		})
	}
}

// TestKilled: the process ends at each step of ADD and of DEL. The next one, after the runtime's DEL or its GC, has
// nothing left of the Pod; and it can start another one, or the same again.
func TestKilled(t *testing.T) {
	t.Parallel()
	del := func(s *sandboxes) error {
		_, err := s.handle(context.Background(), request(attach.Release, "web"))
		return err
	}
	collect := func(s *sandboxes) error {
		_, err := s.handle(context.Background(), attach.Request{Verb: attach.Collect, Sandbox: attach.Sandbox{Network: "portolan"}})
		return err
	}
	for _, verb := range []attach.Verb{attach.Add, attach.Release} {
		for end, ends := range map[string]func(*sandboxes) error{"DEL": del, "GC": collect} {
			for steps := range 5 {
				t.Run(fmt.Sprintf("%s, %d steps, %s", verb, steps, end), func(t *testing.T) {
					t.Parallel()
					k, dir := newKernel(), t.TempDir()
					s := start(t, k, dir, dual)
					if verb == attach.Release {
						if _, err := s.handle(t.Context(), add("web")); err != nil {
							t.Fatal(err)
						}
					}
					k.steps = steps
					r := add("web")
					r.Verb = verb
					_, err := s.handle(t.Context(), r)
					if steps < 4 && verb == attach.Add && err == nil {
						t.Fatal("nothing was killed")
					}
					k.steps = -1
					s = start(t, k, dir, dual)
					if _, err := s.handle(t.Context(), add("web")); err != nil {
						t.Errorf("ADD of the same again: %v", err)
					}
					if err := ends(s); err != nil {
						t.Errorf("%s: %v", end, err)
					}
					if left := k.left(); left != "" || len(s.pool.All()) > 0 {
						t.Errorf("left: %s, %v", left, s.pool.All())
					}
				})
			}
		}
	}
}

// TestAway: a Pod whose DEL came while the agent was away has no link when the agent is back.
func TestAway(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), filepath.Join(t.TempDir(), "network")
	s := start(t, k, dir, dual)
	for _, pod := range []string{"web", "db"} {
		if _, err := s.handle(t.Context(), request(attach.Add, pod)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		attach.End(filepath.Join(filepath.Dir(dir), "cni.sock"), request(attach.Add, "web").ID)
	}
	s = start(t, k, dir, dual)
	s.endAll(t.Context())
	if want := "policies of id-of-db,eth0, " + link.HostName("id-of-db", "eth0") + " up"; k.left() != want || len(s.pool.All()) != 1 {
		t.Errorf("left: %s, and %d records, want %s", k.left(), len(s.pool.All()), want)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 { // the tombstone, and the record of the other
		t.Errorf("files: %v, %v", files, err)
	}
}

// deletedThen are links of which the first deletion is followed by something else.
type deletedThen struct {
	kernelEnds
	then func(host string)
}

func (d *deletedThen) Delete(host string) error {
	err := d.kernelEnds.Delete(host)
	if then := d.then; then != nil {
		d.then = nil
		then(host)
	}
	return err
}

// TestAwayAndAgain: a Pod that ended while the agent was away, and starts again while others of them are undone, keeps
// its link.
func TestAwayAndAgain(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), filepath.Join(t.TempDir(), "network")
	s := start(t, k, dir, dual)
	for _, pod := range []string{"web", "db"} {
		if _, err := s.handle(t.Context(), request(attach.Add, pod)); err != nil {
			t.Fatal(err)
		}
		attach.End(filepath.Join(filepath.Dir(dir), "cni.sock"), request(attach.Add, pod).ID)
	}
	s = start(t, k, dir, dual)
	again := "db"
	s.links = &deletedThen{kernelEnds{k}, func(host string) {
		if host == link.HostName("id-of-db", "eth0") { // they are undone in any order
			again = "web"
		}
		if _, err := s.handle(t.Context(), request(attach.Add, again)); err != nil {
			t.Error(err)
		}
	}}
	s.endAll(t.Context())
	id := "id-of-" + again
	if want := "policies of " + id + ",eth0, " + link.HostName(id, "eth0") + " up"; k.left() != want {
		t.Errorf("left: %s, want %s", k.left(), want)
	}
}

// TestLostRecords: links whose records are lost stay, since their Pods go on, and the others are known.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	s := start(t, k, dir, dual)
	for _, pod := range []string{"web", "db"} {
		if _, err := s.handle(t.Context(), request(attach.Add, pod)); err != nil {
			t.Fatal(err)
		}
	}
	before := k.left()
	if err := os.Remove(filepath.Join(dir, "id-of-web,eth0"+attach.LinkSuffix)); err != nil {
		t.Fatal(err)
	}
	s = start(t, k, dir, dual)
	if after := k.left(); after != before || len(s.pool.All()) != 1 {
		t.Errorf("left: %s, and %d records, want %s, and 1", after, len(s.pool.All()), before)
	}
}

// TestPortOfAPodThatIsGone: a Pod gets a port of the node that one has whose link is gone, and not that of another.
func TestPortOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	k := newKernel()
	s := start(t, k, t.TempDir(), dual)
	if _, err := s.handle(t.Context(), add("web")); err != nil {
		t.Fatal(err)
	}
	_, err := s.handle(t.Context(), add("next"))
	if _, taken := errors.AsType[*nft.ConflictError](err); !taken {
		t.Errorf("ADD with the port of another: %v, want a conflict", err)
	}
	delete(k.links, link.HostName("id-of-web", "eth0")) // with its network namespace
	if _, err := s.handle(t.Context(), add("next")); err != nil {
		t.Errorf("ADD after the other has gone: %v", err)
	}
	if left := k.left(); strings.Contains(left, "id-of-web") {
		t.Errorf("left: %s", left)
	}
}

// TestReclaim: when all addresses are used, those of sandboxes that are gone are given to new Pods, and if none is gone
// the error says what to do.
func TestReclaim(t *testing.T) {
	t.Parallel()
	k := newKernel()
	s := start(t, k, t.TempDir(), "10.244.1.0/30")
	for _, pod := range []string{"a", "b"} {
		if _, err := s.handle(t.Context(), request(attach.Add, pod)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.handle(t.Context(), request(attach.Add, "c"))
	if _, full := errors.AsType[*ipam.ExhaustedError](err); !full {
		t.Errorf("ADD of a third Pod: %v, want that there is no address", err)
	}
	delete(k.links, link.HostName("id-of-a", "eth0")) // with its network namespace
	result, err := s.handle(t.Context(), request(attach.Add, "c"))
	if err != nil || result.Addrs[0].Address != "10.244.1.1/32" {
		t.Errorf("ADD after a Pod has gone: %+v, %v", result, err)
	}
}

// TestRefusals: what cannot be done is told, with the code of the specification.
func TestRefusals(t *testing.T) {
	t.Parallel()
	k := newKernel()
	s := start(t, k, t.TempDir(), dual)
	noPod, port, protocol, address, path := add("web"), add("web"), add("web"), add("web"), add("web")
	noPod.Name = ""
	port.Ports[0].ContainerPort = 0
	protocol.Ports[0].Protocol = "icmp"
	address.Ports[0].HostIP = "eth0"
	path.ContainerID = "../x"
	chained := add("web")
	chained.Verb = attach.Admit
	unknown := add("web")
	unknown.Verb = "mend"
	for name, test := range map[string]struct {
		r    attach.Request
		code attach.Code
		want string
	}{
		"no Pod":              {noPod, attach.CodeEnvironment, "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME"},
		"no port":             {port, attach.CodeConfig, "portMappings: host port 8080 has no container port"},
		"a protocol":          {protocol, attach.CodeConfig, `portMappings: protocol "icmp" of host port 8080 is not tcp, udp or sctp`},
		"no address":          {address, attach.CodeConfig, `portMappings: host IP "eth0" of host port 8080 is not an address`},
		"a path":              {path, attach.CodeEnvironment, "container ID"},
		"another network":     {chained, attach.CodeConfig, "the agent of this node makes the network of Pods itself"},
		"an unknown verb":     {unknown, 0, `verb "mend" is unknown`},
		"CHECK without a Pod": {request(attach.Check, "web"), 0, "the agent has not made this link"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := s.handle(t.Context(), test.r)
			refused, _ := errors.AsType[*attach.RefusedError](err)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || test.code != 0 && (refused == nil || refused.Code != test.code) {
				t.Errorf("error %v, want code %d, %s", err, test.code, test.want)
			}
		})
	}
}

// TestParallel: a thousand Pods that start and end at the same time, some twice, leave nothing.
func TestParallel(t *testing.T) {
	t.Parallel()
	k := newKernel()
	s := start(t, k, t.TempDir(), "10.244.0.0/20 fd00:1::/64")
	var all sync.WaitGroup
	for i := range 1000 {
		pod := fmt.Sprint("web-", i)
		for range 1 + i%2 {
			all.Go(func() {
				if _, err := s.handle(t.Context(), request(attach.Add, pod)); err != nil {
					t.Errorf("ADD: %v", err)
				}
				if _, err := s.handle(t.Context(), request(attach.Release, pod)); err != nil {
					t.Errorf("DEL: %v", err)
				}
			})
		}
	}
	all.Wait()
	if left := k.left(); left != "" || len(s.pool.All()) > 0 || len(s.busy) > 0 {
		t.Errorf("left: %s, %d records, %d turns", left, len(s.pool.All()), len(s.busy))
	}
}
