package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace"
)

// TestKilled: the agent is killed while 100 Pods start and 100 end, and started again; the runtime repeats what failed.
// All Pods that started have their network, no two have the same address, and nothing is left when they have ended.
func TestKilled(t *testing.T) {
	if n := newNode(t, nodes); n != nil {
		n.testKilled()
	}
}

// TestKilledWithPolicies is TestKilled with policies in the same agent, which hold for all Pods that started.
func TestKilledWithPolicies(t *testing.T) {
	if n := newPolicedNode(t, nodes+policies); n != nil {
		n.testKilled()
	}
}

func (n *node) testKilled() {
	n.Helper()
	agent := n.start()
	list := n.usable()
	n.startClient(list)
	before := n.state()
	const count = 100
	all := n.newPods(2 * count)
	ending, starting := all[:count], all[count:]
	for round := range 5 {
		if _, errs := each(ending, func(p pod) error {
			_, err := n.add(list, p)
			return err
		}); len(errs) > 0 {
			n.Fatal(errs[0])
		}
		var done atomic.Int32
		var killed sync.Once
		after := int32(round*35 + 5)
		count := func() {
			if done.Add(1) >= after {
				killed.Do(func() {
					agent.Stop(0)
					agent = n.start()
				})
			}
		}
		ids := make(map[string]bool)
		for _, p := range ending {
			ids[p.name] = true
		}
		failed, _ := each(mixed(ending, starting), func(p pod) error {
			defer count()
			if ids[p.name] {
				return n.del(list, p)
			}
			_, err := n.add(list, p)
			return err
		})
		n.usable()
		n.Logf("round %d: killed after %d of %d calls; %d failed", round, after, len(all), len(failed))
		_, errs := each(ending, func(p pod) error { return n.del(list, p) }) // DEL is repeated, as runtimes do
		for _, err := range errs {
			n.Error(err)
		}
		for _, p := range failed {
			if !ids[p.name] {
				must(n, n.del(list, p))
			}
		}
		n.wantDistinct(starting)
		if _, errs := each(starting, func(p pod) error { return n.del(list, p) }); len(errs) > 0 {
			n.Fatal(errs[0])
		}
		n.wantState(before)
	}
}

// mixed returns the Pods of both in turn.
func mixed(a, b []pod) (all []pod) {
	for i := range a {
		all = append(all, a[i], b[i])
	}
	return all
}

// wantDistinct starts Pods, of which some have started, and checks that each has addresses of its own at which it
// answers.
func (n *node) wantDistinct(pods []pod) {
	n.Helper()
	list := n.usable()
	var mu sync.Mutex
	owners := make(map[netip.Addr]string)
	_, errs := each(pods, func(p pod) error {
		addrs, err := n.add(list, p)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, addr := range addrs {
			if other, taken := owners[addr]; taken {
				return fmt.Errorf("it has %s, as %s has", addr, other)
			}
			owners[addr] = p.name
		}
		return n.serves(p, addrs)
	})
	for _, err := range errs {
		n.Error(err)
	}
}

// TestThousand: 1,000 Pods start and end in parallel, and leave nothing.
func TestThousand(t *testing.T) {
	n := newNode(t, nodes)
	if n == nil {
		return
	}
	n.start()
	list := n.usable()
	before := n.state()
	pods := n.newPods(1000)
	begin := time.Now()
	if _, errs := each(pods, func(p pod) error {
		_, err := n.add(list, p)
		return err
	}); len(errs) > 0 {
		t.Fatalf("%d Pods did not start: %v", len(errs), errs[0])
	}
	added := time.Since(begin)
	if _, errs := each(pods, func(p pod) error { return n.del(list, p) }); len(errs) > 0 {
		t.Fatalf("%d Pods did not end: %v", len(errs), errs[0])
	}
	t.Logf("%d Pods start in %v and end in %v", len(pods), added, time.Since(begin)-added)
	n.wantState(before)
}

// TestReboot: records of another boot are not those of Pods, and their addresses are free.
func TestReboot(t *testing.T) {
	n := newNode(t, nodes)
	if n == nil {
		return
	}
	agent := n.start()
	list := n.usable()
	before := n.state()
	for i := range 3 {
		_, err := n.add(list, n.newPod(i))
		must(t, err)
	}
	agent.Stop(0)
	// What a reboot does, but for the uplink.
	out, err := exec.Command("sh", "-c", `
for d in $(ip -o link | grep -o 'ptl[0-9a-f]*' | sort -u) portolan-vxlan; do ip link del $d; done
ip route flush proto 80; ip -6 route flush proto 80; nft flush ruleset`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	boot := n.path("boot_id")
	must(t, os.WriteFile(boot, []byte("01234567-89ab-cdef-0123-456789abcdef\n"), 0o600))
	must(t, unix.Mount(boot, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""))
	n.start()
	list = n.usable()
	n.wantState(before)
	p := n.newPod(0) // with the same ID, in another namespace
	addrs, err := n.add(list, p)
	must(t, err)
	if addrs[0] != netip.MustParseAddr("10.244.0.1") {
		t.Errorf("the first Pod after the reboot has the addresses %v, want those of the first Pod before", addrs)
	}
	must(t, p.reaches(addrs))
}

// TestTwoAgents: an agent starts before the one that it replaces ends. All Pods start, and keep their network.
func TestTwoAgents(t *testing.T) {
	if n := newNode(t, nodes); n != nil {
		n.testTwoAgents()
	}
}

// TestTwoAgentsWithPolicies is TestTwoAgents with policies in the same agent.
func TestTwoAgentsWithPolicies(t *testing.T) {
	if n := newPolicedNode(t, nodes+policies); n != nil {
		n.testTwoAgents()
	}
}

func (n *node) testTwoAgents() {
	n.Helper()
	agent := n.start()
	list := n.usable()
	n.startClient(list)
	before := n.state()
	old := n.newPod(999)
	addrs, err := n.add(list, old)
	must(n, err)
	for round := range 4 {
		next := n.start()
		await.NoError(n, func() error {
			text, err := os.ReadFile(n.path("agent.log"))
			if got := strings.Count(string(text), "another process makes the network of this node"); err == nil && got <= round {
				err = fmt.Errorf("%d agents wait, want %d", got, round+1)
			}
			return err
		})
		var done atomic.Int32
		var replaced sync.Once
		_, errs := each(n.newPods(100), func(p pod) error {
			addrs, err := n.add(list, p)
			if done.Add(1) == 20 {
				replaced.Do(func() { agent.Signal(syscall.SIGTERM) })
			}
			if err != nil {
				return err
			}
			return errors.Join(n.serves(p, addrs), n.del(list, p))
		})
		for _, err := range errs {
			n.Error(err)
		}
		must(n, n.serves(old, addrs))
		agent.Stop(await.Answer)
		agent = next
	}
	n.usable()
	must(n, n.del(list, old))
	n.wantState(before)
}

// TestUplink: the kernel removes routes with an address of the node, and with a link; they are there again after it.
func TestUplink(t *testing.T) {
	n := newNode(t, nodes)
	if n == nil {
		return
	}
	n.start()
	list := n.usable()
	p := n.newPod(0)
	addrs, err := n.add(list, p)
	must(t, err)
	must(t, p.reaches(addrs))
	before := n.state()
	for _, what := range [][]string{
		{"address del 192.0.2.1/24 dev uplink", "address del 2001:db8::1/64 dev uplink"},
		{"link set uplink down"}, // which removes addresses of IPv6
	} {
		must(t, namespace.IP(what...))
		await.NoError(t, func() error {
			if now := n.state(); strings.Contains(now, "local 2001:db8::1 dev uplink") || strings.Contains(now, "default via") {
				return fmt.Errorf("after %q the node has its address and its route", what)
			}
			return nil
		})
		must(t, namespace.IP("link set uplink up"))
		n.addAddresses()
		await.NoError(t, func() error {
			if now := n.state(); now != before {
				return fmt.Errorf("after %q there is not what was before:\n%s", what, difference(before, now))
			}
			return nil
		})
		must(t, p.reaches(addrs))
	}
}
