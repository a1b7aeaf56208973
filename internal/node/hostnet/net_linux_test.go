package hostnet_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/node/hostnet"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

var everything = slices.Concat(locals, clusters)

// whole is the number of objects of a complete agent: a device, four addresses and a
// table.
const whole = 6

// serveCluster starts the cluster's servers on the other node, and the NAT rules that
// lead to them.
func (n *node) serveCluster(t *testing.T) {
	t.Helper()
	namespacetest.Do(t, n.other, func() {
		for _, other := range others {
			_, err := listen(netip.AddrPortFrom(other.Addr(), port), "cluster")
			must(t, err)
		}
	})
	for i, from := range clusters {
		leadTo(t, from, others[i].Addr())
	}
}

// TestAnswers checks that the addresses answer in both families, over UDP and TCP, on
// the node and in a Pod; that none of that is tracked; and that the device has only
// those addresses and no multicast route.
func TestAnswers(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	n.serveCluster(t)
	n.asks(t, "cluster", clusters...)
	a := startAgent(t, settings{Name: "agent", Addresses: everything})
	must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
	n.asks(t, "agent", everything...)
	for _, addr := range everything {
		if has := tracked(t, addr); len(has) > 0 {
			t.Errorf("tracked: %q", has)
		}
	}
	link, err := netlink.LinkByName(a.device)
	must(t, err)
	has, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	must(t, err)
	if len(has) != len(everything) {
		t.Errorf("%d addresses, want %d: %v", len(has), len(everything), has)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	must(t, err)
	for _, r := range routes {
		if r.Type != unix.RTN_LOCAL {
			t.Errorf("route of the device: %v", r)
		}
	}
}

// TestUsableAtOnce checks that packets for the addresses arrive when Install returns.
// The kernel adds the route of an IPv6 address shortly after the address.
func TestUsableAtOnce(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	for range 50 {
		net, err := hostnet.Install(hostnet.Config{Addresses: locals, Port: port, Prefix: "portolan", Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		for _, addr := range locals {
			routes, err := netlink.RouteGet(addr.AsSlice())
			must(t, err)
			if routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("%s: route %v", addr, routes[0])
			}
		}
		must(t, net.Close())
	}
}

// TestKilled checks that an agent that is killed or stops leaves nothing.
func TestKilled(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	a := startAgent(t, settings{Name: "agent", Addresses: everything})
	if has := left(t); len(has) != whole {
		t.Errorf("there is %q, want a device, four addresses and a table", has)
	}
	begin := time.Now()
	a.kill()
	until(t, "nothing is left", func() bool { return len(left(t)) == 0 })
	t.Logf("nothing is left %v after kill -9", time.Since(begin).Round(time.Millisecond))

	startAgent(t, settings{Name: "agent", Addresses: everything}).stop(t)
	if has := left(t); len(has) > 0 {
		t.Errorf("left at the end: %q", has)
	}
}

// harm is a change by others to an agent's objects.
type harm struct {
	does func(t *testing.T, a *agentProcess)
	says string // what the log says is missing
}

func removeDevice(t *testing.T, a *agentProcess) {
	t.Helper()
	link, err := netlink.LinkByName(a.device)
	must(t, err)
	must(t, netlink.LinkDel(link))
}

func setDown(t *testing.T, a *agentProcess) {
	t.Helper()
	link, err := netlink.LinkByName(a.device)
	must(t, err)
	must(t, netlink.LinkSetDown(link))
}

func removeAddress(addr netip.Addr) func(t *testing.T, a *agentProcess) {
	return func(t *testing.T, a *agentProcess) {
		t.Helper()
		link, err := netlink.LinkByName(a.device)
		must(t, err)
		has, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		must(t, err)
		i := slices.IndexFunc(has, func(h netlink.Addr) bool { return h.IP.Equal(addr.AsSlice()) })
		must(t, netlink.AddrDel(link, &has[i]))
	}
}

var harmsToDevice = map[string]harm{
	"device removed":       {removeDevice, "device portolan"},
	"device down":          {setDown, "device is down"},
	"IPv4 address removed": {removeAddress(local4), "address 169.254.20.10"},
	"IPv6 address removed": {removeAddress(local6), "address fd00::a"},
}

// TestRepairsDevice checks that changes to the device are repaired at once.
func TestRepairsDevice(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	for _, lasting := range []string{"", holder(t)} {
		a := startAgent(t, settings{Name: "agent", Addresses: everything, Lasting: lasting})
		for claim, h := range harmsToDevice {
			begin := time.Now()
			h.does(t, a)
			if line := a.await(t, "repaired"); !strings.Contains(line, h.says) {
				t.Errorf("%s: the log says %q, want %q", claim, line, h.says)
			}
			t.Logf("%s: repaired after %v", claim, time.Since(begin).Round(time.Millisecond))
			n.asks(t, "agent", everything...)
			if has := left(t); len(has) != whole {
				t.Errorf("%s: there is %q", claim, has)
			}
			// A second repair does not happen before RepairEvery.
			time.Sleep(time.Until(begin.Add(hostnet.RepairEvery + 200*time.Millisecond)))
		}
		a.stop(t)
		a.await(t, "repairs: 4 <nil>")
	}
}

// TestCantRepair verifies that a failed repair is retried, and logged once.
func TestCantRepair(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	a := startAgent(t, settings{Name: "agent", Addresses: locals})
	disable := "/proc/sys/net/ipv6/conf/" + a.device + "/disable_ipv6"
	must(t, os.WriteFile(disable, []byte("1"), 0))
	if line := a.await(t, "repairing the node's network failed"); !strings.Contains(line, "IPv6 is disabled") {
		t.Errorf("the log says %q", line)
	}
	n.asks(t, "agent", local4)
	must(t, os.WriteFile(disable, []byte("0"), 0))
	if line := a.await(t, "level="); !strings.Contains(line, "repaired") || !strings.Contains(line, local6.String()) {
		t.Errorf("the log says %q", line)
	}
	n.asks(t, "agent", locals...)
	a.stop(t)
	a.await(t, "repairs: 1 <nil>")
}

// TestOwner checks that other processes cannot remove or change an owned table.
func TestOwner(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	startAgent(t, settings{Name: "agent", Addresses: everything})
	flush := rules(t)
	flush.FlushRuleset()
	must(t, flush.Flush())
	all, err := rules(t).ListTables()
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("after nft flush ruleset there are %d tables, want the agent's", len(all))
	}
	for claim, do := range map[string]func(*nftables.Conn){
		"delete table": func(c *nftables.Conn) { c.DelTable(all[0]) },
		"delete rules": func(c *nftables.Conn) { c.FlushTable(all[0]) },
		"add a set": func(c *nftables.Conn) {
			_ = c.AddSet(&nftables.Set{Table: all[0], Name: "more", KeyType: nftables.TypeIPAddr}, nil)
		},
	} {
		conn := rules(t)
		do(conn)
		if err := conn.Flush(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want %v", claim, err, unix.EPERM)
		}
	}
	n.asks(t, "agent", everything...)
}

// TestRepairsPlainTable checks that changes to a table without an owner are repaired at
// the next check.
func TestRepairsPlainTable(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	n.serveCluster(t)
	a := startAgent(t, settings{Name: "agent", Addresses: everything, Lasting: holder(t)})
	table := &nftables.Table{Name: "portolan", Family: nftables.TableFamilyINet}
	elements := func(c *nftables.Conn) {
		set, err := c.GetSetByName(table, "addresses4")
		must(t, err)
		must(t, c.SetDeleteElements(set, []nftables.SetElement{{Key: cluster4.AsSlice()}}))
	}
	for claim, do := range map[string]func(*nftables.Conn){
		"table removed":   func(c *nftables.Conn) { c.DelTable(table) },
		"rules removed":   func(c *nftables.Conn) { c.FlushTable(table) },
		"address removed": elements,
	} {
		begin := time.Now()
		conn := rules(t)
		do(conn)
		must(t, conn.Flush())
		a.await(t, "table portolan")
		took := time.Since(begin)
		if t.Logf("%s: repaired after %v", claim, took.Round(time.Millisecond)); took > hostnet.CheckEvery+time.Second {
			t.Errorf("%s: repaired after %v, want %v at most", claim, took, hostnet.CheckEvery)
		}
		n.asks(t, "agent", everything...)
	}
}

// TestClusterIP checks that the agent answers on the cluster DNS IP while it runs. When
// it is killed, kube-proxy's rules apply and the cluster's servers answer.
func TestClusterIP(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	n.serveCluster(t)
	n.asks(t, "cluster", clusters...)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		for _, addr := range clusters {
			a := startAgent(t, settings{Name: "agent", Addresses: everything})
			n.asks(t, "agent", everything...)
			s := n.startSender(t, addr)
			s.await(t, "agent")
			begin := time.Now()
			must(t, a.cmd.Process.Signal(signal))
			s.await(t, "cluster")
			took := time.Since(begin)
			<-a.ended
			until(t, "nothing is left", func() bool { return len(left(t)) == 0 })
			s.await(t, "cluster")
			sent, lost := s.end(t)
			t.Logf("%s: the cluster answers %v after the signal %q; lost %d of %d queries", addr, took.Round(100*time.Microsecond), signal, lost, sent)
			if took > time.Second {
				t.Errorf("%s: the cluster answers %v after the signal %q", addr, took, signal)
			}
			if signal == syscall.SIGTERM && lost > 0 {
				t.Errorf("%s: lost %d of %d queries at an orderly end", addr, lost, sent)
			}
			n.asks(t, "cluster", clusters...)
		}
	}
}

// TestHandOver checks that no query is lost if a new agent starts while the old one
// serves and then stops.
func TestHandOver(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	n.serveCluster(t)
	for _, lasting := range []string{"", holder(t)} {
		for _, addr := range everything {
			from := startAgent(t, settings{Name: "old", Addresses: everything, Lasting: lasting})
			s := n.startSender(t, addr)
			s.await(t, "old")
			to := startAgent(t, settings{Name: "new", Addresses: everything, Lasting: lasting})
			s.await(t, "new")
			from.stop(t)
			s.await(t, "new")
			sent, lost := s.end(t)
			t.Logf("%s: lost %d of %d queries", addr, lost, sent)
			if lost > 0 {
				t.Errorf("%s: lost %d of %d queries", addr, lost, sent)
			}
			n.asks(t, "new", everything...)
			if has := left(t); len(has) != whole {
				t.Errorf("there is %q", has)
			}
			to.stop(t)
			if has := left(t); len(has) > 0 {
				t.Errorf("left at the end: %q", has)
			}
		}
	}
}

// TestHandOverKilled is like TestHandOver, but the old agent is killed. Only the
// queries waiting for it are lost.
func TestHandOverKilled(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	for _, addr := range locals {
		from := startAgent(t, settings{Name: "old", Addresses: everything})
		s := n.startSender(t, addr)
		s.await(t, "old")
		to := startAgent(t, settings{Name: "new", Addresses: everything})
		s.await(t, "new")
		from.kill()
		until(t, "one device", func() bool { return len(left(t)) == whole })
		s.await(t, "new")
		sent, lost := s.end(t)
		t.Logf("%s: lost %d of %d queries", addr, lost, sent)
		n.asks(t, "new", everything...)
		to.stop(t)
	}
}

// TestLasting checks that, if nothing is removed with the process, the next agent takes
// over the objects of a killed one and removes them when it stops.
func TestLasting(t *testing.T) {
	n := onNode(t)
	if n == nil {
		return
	}
	kind := holder(t)
	startAgent(t, settings{Name: "old", Addresses: everything, Lasting: kind}).kill()
	if has := left(t); len(has) != whole {
		t.Errorf("after kill -9 there is %q, want all", has)
	}
	next := startAgent(t, settings{Name: "new", Addresses: locals, Lasting: kind})
	if has := left(t); len(has) != whole-len(clusters) {
		t.Errorf("the next agent has %q", has)
	}
	n.asks(t, "new", locals...)
	next.stop(t)
	if has := left(t); len(has) > 0 {
		t.Errorf("left at the end: %q", has)
	}
}

// TestNoTUN checks that without /dev/net/tun the log says so and the device is
// persistent, or the error names what was tried.
func TestNoTUN(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("tmpfs", "/dev/net", "tmpfs", 0, ""))
	says := fails(t, nil)
	if holder(t) == "dummy" {
		if says != "" {
			t.Errorf("it says %q", says)
		}
		return
	}
	for _, want := range []string{"failed: addresses: open /dev/net/tun: no such file or directory (give the agent", "; device portolan of kind dummy: "} {
		if !strings.Contains(says, want) || strings.Contains(says, "\n") {
			t.Errorf("it says %q, want one line with %q", says, want)
		}
	}
}

// TestNoRights checks that the error names the missing capability.
func TestNoRights(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	// A process with all capabilities in a new user namespace has none in the network
	// namespace.
	if says := fails(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}); !strings.Contains(says, "NET_ADMIN") {
		t.Errorf("it says %q", says)
	}
}

// TestNoIPv6 checks that the error names the cure, and that IPv4 alone works.
func TestNoIPv6(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	if says := fails(t, nil); !strings.Contains(says, "IPv6 is disabled") {
		t.Errorf("it says %q", says)
	}
	startAgent(t, settings{Name: "agent", Addresses: []netip.Addr{local4}}).stop(t)
}

// fails runs an agent whose Install should fail, and returns its error; "" if it does
// not fail.
func fails(t *testing.T, as *syscall.SysProcAttr) string {
	t.Helper()
	text, err := json.Marshal(settings{Name: "agent", Addresses: everything})
	must(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asAgent+"="+string(text))
	cmd.SysProcAttr = as
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// TestNoEvents checks that the message has the interval of checks.
func TestNoEvents(t *testing.T) {
	if want := " every " + hostnet.CheckEvery.String(); !strings.HasSuffix(hostnet.NoEvents, want) {
		t.Errorf("NoEvents = %q, want it to end with %q", hostnet.NoEvents, want)
	}
}
