package announce

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// kills returns how many nodes TestNodeDies has die: as many as the environment variable PORTOLAN_KILLS says, or a few.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PORTOLAN_KILLS")
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// bound is how long a change may take on a machine under load. What it takes is logged.
const bound = 5 * time.Second

// TestNodeDies: the next node answers in less than a second after one dies.
func TestNodeDies(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	var took []time.Duration
	for round := range kills(t) {
		i := round % len(vips)
		ranked := w.ranked(vips[i])
		first, next := ranked[0], ranked[1]
		<-time.After(rand.N(interval)) // any moment between two ticks
		first.kill()
		first.link(t, netlink.LinkSetDown)
		took = append(took, w.until(t, i, next.name))
		first.link(t, netlink.LinkSetUp)
		first.start(t)
		w.untilSettled(t)
	}
	report(t, "from death to the first answer", took)
	w.noConflicts(t)
}

// report logs the distribution of times, and fails the test if the longest one is out of bounds.
func report(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	last := len(took) - 1
	t.Logf("%s: p50 %s, p99 %s of %d", what, took[last/2].Round(time.Millisecond), took[last*99/100].Round(time.Millisecond),
		len(took))
	if took[last] > bound {
		t.Errorf("%s: %s, want at most %s", what, took[last], bound)
	}
}

// TestHandsOver: a node that is cordoned or removed, or whose agent ends, hands its addresses over at once.
func TestHandsOver(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	for claim, way := range map[string]struct{ leave, undo func(*testNode) }{
		"removed by the autoscaler": {
			leave: func(n *testNode) { w.command(t, "leave "+n.name) },
			undo:  func(n *testNode) { w.command(t, "return "+n.name) },
		},
		"cordoned": {
			leave: func(n *testNode) { w.command(t, "cordon "+n.name) },
			undo:  func(n *testNode) { w.command(t, "return "+n.name) },
		},
		"its agent ends": {
			leave: func(n *testNode) { n.signal(t, syscall.SIGTERM) },
			undo: func(n *testNode) {
				must(t, n.cmd.Wait())
				n.start(t)
			},
		},
	} {
		var took []time.Duration
		for round := range 2 * kills(t) {
			i := round % len(vips)
			ranked := w.ranked(vips[i])
			way.leave(ranked[0])
			took = append(took, w.until(t, i, ranked[1].name))
			way.undo(ranked[0])
			w.untilSettled(t)
		}
		report(t, claim, took)
	}
	w.noConflicts(t)
}

// TestCutBetweenTwo: two nodes do not hear each other, and the third one and the client hear both. One goes on to
// answer.
func TestCutBetweenTwo(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	ranked := w.ranked(vips[0])
	isolate := func(on bool) {
		for _, n := range ranked[:2] {
			n.link(t, func(l netlink.Link) error { return netlink.LinkSetIsolated(l, on) })
		}
	}
	isolate(true)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if got := w.whoAnswers(0); got != "" && got != ranked[0].name {
			t.Fatalf("node %s answers, want %s", got, ranked[0].name)
		}
	}
	w.untilSettled(t)
	isolate(false)
	w.untilSettled(t)
}

// TestCutOff: a node that the others do not hear, and the client does not either, gives way when they do again.
func TestCutOff(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	ranked := w.ranked(vips[0])
	ranked[1].link(t, netlink.LinkSetDown) // it takes all over, for itself
	w.until(t, 0, ranked[0].name)
	ranked[1].link(t, netlink.LinkSetUp)
	w.untilSettled(t)
	ranked[0].link(t, netlink.LinkSetDown)
	w.until(t, 0, ranked[1].name)
	ranked[0].link(t, netlink.LinkSetUp)
	w.untilSettled(t)
}

// TestAgentStops: an agent that is stopped, and goes on later, takes its addresses back.
func TestAgentStops(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	ranked := w.ranked(vips[0])
	ranked[0].signal(t, syscall.SIGSTOP)
	w.until(t, 0, ranked[1].name)
	ranked[0].signal(t, syscall.SIGCONT)
	w.untilSettled(t)
}

// TestDeafClient: a client that ignores announcements reaches the next node when its own entry ends.
func TestDeafClient(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	namespacetest.Do(t, w.client, func() {
		namespacetest.SetSysctl(t, "net/ipv4/conf/eth0/drop_gratuitous_arp", "1")
		namespacetest.SetSysctl(t, "net/ipv6/conf/eth0/drop_unsolicited_na", "1")
		for _, family := range []string{"ipv4", "ipv6"} {
			namespacetest.SetSysctl(t, "net/"+family+"/neigh/eth0/base_reachable_time_ms", "500")
			namespacetest.SetSysctl(t, "net/"+family+"/neigh/eth0/delay_first_probe_time", "1")
			namespacetest.SetSysctl(t, "net/"+family+"/neigh/eth0/retrans_time_ms", "200")
		}
	})
	w.untilSettled(t)
	for i, a := range vips {
		ranked := w.ranked(a)
		ranked[0].kill()
		ranked[0].link(t, netlink.LinkSetDown)
		t.Logf("the client reached the next node for %s after %s", a, w.until(t, i, ranked[1].name).Round(time.Millisecond))
		ranked[0].link(t, netlink.LinkSetUp)
		ranked[0].start(t)
		w.untilSettled(t)
	}
}

// TestConflicts: each way in which another host says that it has an address is noticed, and nothing that agents and
// other hosts say of it.
func TestConflicts(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	four, six := vips[0].AsSlice(), vips[1]
	host := frame.MAC{2, 9, 9, 9, 9, 9}
	arp := func(op byte, sender, target []byte) []byte {
		b := append(slices.Clone(frame.Broadcast[:]), host[:]...)
		b = append(append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, op), host[:]...)
		return append(append(append(append(b, sender...), make([]byte, 6)...), target...), make([]byte, 18)...)
	}
	someone := []byte{192, 0, 2, 77}
	for claim, test := range map[string]struct {
		vip   int
		frame []byte
		is    bool
	}{
		"an announcement by a request":     {0, arp(1, four, four), true},
		"an announcement by a reply":       {0, arp(2, four, four), true},
		"a reply to somebody":              {0, arp(2, four, someone), true},
		"a question of a host that has it": {0, arp(1, four, someone), true},
		"an advertisement":                 {1, frame.Advertisement(six, host), true},
		"a question":                       {0, arp(1, someone, four), false},
		"a probe":                          {0, arp(1, make([]byte, 4), four), false},
		"a reply about another address":    {0, arp(2, someone, four), false},
	} {
		owner := w.ranked(vips[test.vip])[0]
		before := owner.stats(t)
		namespacetest.Do(t, w.client, func() { transmit(t, test.frame) })
		if !test.is { // and one that is noticed: frames are read in order
			namespacetest.Do(t, w.client, func() { transmit(t, arp(2, four, four)) })
		}
		await.NoError(t, func() error {
			if owner.stats(t).Conflicts == before.Conflicts {
				return fmt.Errorf("%s is no conflict, want one", claim)
			}
			return nil
		})
		if got := owner.stats(t).Conflicts - before.Conflicts; got != 1 {
			t.Errorf("%s: %d conflicts, want 1", claim, got)
		}
	}
}

// TestFlood: questions from many hosts do not keep the agents from hearing each other, nor cost much of a processor.
func TestFlood(t *testing.T) {
	if !namespacetest.OnNode(t) {
		return
	}
	w := newWorld(t)
	w.untilSettled(t)
	owner := w.ranked(vips[0])[0]
	before, taken := owner.cpu(t), make(map[string]uint64)
	for i, n := range w.nodes {
		taken[i] = n.stats(t).Taken
	}
	var sent int
	namespacetest.Do(t, w.client, func() {
		i, err := net.InterfaceByName("eth0")
		must(t, err)
		sent = flood(t, i.Index, vips[0], 2*time.Second)
	})
	used := owner.cpu(t) - before
	t.Logf("%d questions in 2 s took %s of a processor", sent, used)
	if used > time.Second {
		t.Errorf("%d questions in 2 s took %s of a processor, want at most half of one", sent, used)
	}
	w.untilSettled(t)
	for i, n := range w.nodes {
		if got := n.stats(t).Taken; got != taken[i] {
			t.Errorf("during the flood node %s took addresses over: %d, before %d", n.name, got, taken[i])
		}
	}
}

// cpu returns the processor time of the agent.
func (n *testNode) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	must(t, err)
	fields := strings.Fields(string(b)) // see proc_pid_stat(5); the name of the program has no spaces
	var user, system int
	_, err = fmt.Sscan(fields[13]+" "+fields[14], &user, &system)
	must(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
