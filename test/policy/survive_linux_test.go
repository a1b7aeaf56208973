package policy

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/test/namespace"
)

// table is the name of the table of policies.
const table = "portolan-policy"

// onlyFrom is a policy that lets Pods of one app be reached by those of another only.
func onlyFrom(to, from string) *networkingv1.NetworkPolicy {
	return policy("only-"+to, networkingv1.NetworkPolicySpec{
		PodSelector: ofApp(to), Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peer(from)}},
	})
}

// three are Pods of which db may be reached by web, and not by other.
type three struct {
	*world
	db, web, other *pod
}

func withThree(t *testing.T) *three {
	t.Helper()
	w := onNode(t)
	if w == nil {
		return nil
	}
	w.API.Put(onlyFrom("db", "web"))
	s := &three{
		world: w, db: w.launch(t, "db", app("db"), "10.244.1.3"), web: w.launch(t, "web", app("web"), "10.244.1.4"),
		other: w.launch(t, "other", app("other"), "10.244.1.5"),
	}
	serve(t, s.db)
	s.holds(t, "at first")
	return s
}

func (s *three) at() netip.AddrPort { return netip.AddrPortFrom(s.db.Addr(), port) }

// holds verifies that the policy holds.
func (s *three) holds(t *testing.T, when string) {
	t.Helper()
	until(t, "web reaches db "+when, func() bool { return dial(s.web, s.at()) == nil })
	if err := dial(s.other, s.at()); !timedOut(err) {
		t.Errorf("%s: other to db: %v, want a timeout", when, err)
	}
}

// TestSurvives has the agent, its API server and its table harmed. The policy must hold.
func TestSurvives(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	before := ruleset(t)
	s.Stop()
	s.holds(t, "while the agent is away")
	s.Start(t)
	if after := ruleset(t); after != before {
		t.Errorf("a restart changed the table from\n%s\nto\n%s", before, after)
	}
	s.holds(t, "after a restart")

	s.Stop()
	nft(t, "delete table inet "+table) // the kernel of a node that was rebooted has none
	s.Start(t)
	if after := ruleset(t); after != before {
		t.Errorf("a start without a table made\n%s\nwant\n%s", after, before)
	}
	s.holds(t, "after a reboot")

	for _, harm := range []string{"delete table inet " + table, "flush table inet " + table, "flush ruleset"} {
		nft(t, harm)
		until(
			t,
			"the table is repaired after "+harm,
			func() bool { return dial(s.other, s.at()) != nil && ruleset(t) == before },
		)
		s.holds(t, "after "+harm)
	}

	s.API.Stop()
	s.holds(t, "without API server")
	nft(t, "delete table inet "+table)
	until(t, "the table is repaired without API server", func() bool { return ruleset(t) == before })
	s.holds(t, "after a repair without API server")
}

// TestLostMessages has another table change while the agent is frozen until netlink has no room for more messages, and
// so not for those about the end of the table. The agent must compare the table when it runs again.
func TestLostMessages(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	const each, most = 20_000, 25 // elements in a change, and changes
	before := ruleset(t)
	thaw := s.Freeze(t)
	var many strings.Builder
	many.WriteString("add table ip many; add set ip many s { type ipv4_addr; }; flush set ip many s\n")
	many.WriteString("add element ip many s {")
	for i := range each {
		fmt.Fprintf(&many, " 10.0.%d.%d comment %q,", i>>8, i&255, strings.Repeat("x", 120))
	}
	many.WriteString(" }\n")
	file := filepath.Join(t.TempDir(), "many")
	must(t, os.WriteFile(file, []byte(many.String()), 0o600))
	for i := 0; lostMessages(t) == 0; i++ {
		if i == most {
			t.Fatalf("netlink has lost no message after %d changes of %d elements", i, each)
		}
		nft(t, "include "+strconv.Quote(file))
	}
	lost := lostMessages(t)
	nft(t, "delete table inet "+table)
	if lostMessages(t) == lost {
		t.Error("netlink has lost no message about the table")
	}
	thaw()
	until(t, "the table is repaired", func() bool { return ruleset(t) == before })
	s.holds(t, "after messages were lost")
	if known := "another program changed"; strings.Contains(s.Log(), known) {
		t.Errorf("the agent got a message: it logged %q", known)
	}
}

// lostMessages returns how many messages netlink has lost that listeners for changes of nftables should have got.
func lostMessages(t *testing.T) (lost int) {
	t.Helper()
	const family, groups, drops = 1, 3, 8                     // columns; see netlink_native_seq_show of the kernel's af_netlink.c
	text, err := os.ReadFile("/proc/thread-self/net/netlink") // other threads serve Pods
	must(t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) <= drops || f[family] != strconv.Itoa(unix.NETLINK_NETFILTER) || f[groups] != "00000040" {
			continue
		}
		n, err := strconv.Atoi(f[drops])
		must(t, err)
		lost += n
	}
	return lost
}

// TestChanges verifies that what changes takes effect.
func TestChanges(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	reach := func(p *pod, to netip.AddrPort, allowed bool, when string) {
		t.Helper()
		until(
			t,
			fmt.Sprintf("%s reaches %s: %t, %s", p.Name, to, allowed, when),
			func() bool { return (dial(p, to) == nil) == allowed },
		)
	}
	other := s.other.DeepCopy()
	other.Labels = app("web")
	s.API.Put(other)
	reach(s.other, s.at(), true, "as a Pod of web")
	s.API.Put(s.other.Pod)
	reach(s.other, s.at(), false, "as before")

	// A Job that has finished keeps its address in its status, which is another Pod's.
	job := s.newPod("job", app("web"), netip.MustParseAddr("10.244.1.6"))
	s.Attach(t, job)
	s.Add(t, job)
	s.Run(job)
	reach(job, s.at(), true, "while it runs")
	done := job.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	s.Remove(t, job)
	s.API.Put(done)
	next := s.launch(t, "next", app("other"), "10.244.1.6")
	reach(next, s.at(), false, "with the address of a Job of web")

	// The UID of a static Pod is not that of its mirror.
	static := s.newPod("static", app("web"), netip.MustParseAddr("10.244.1.7"))
	s.Attach(t, static)
	mirror := static.DeepCopy()
	mirror.Annotations = map[string]string{
		corev1.MirrorPodAnnotationKey: "of-the-kubelet",
		"kubernetes.io/config.hash":   "of-the-kubelet",
	}
	s.API.Put(mirror)
	static.UID = "of-the-kubelet"
	s.Add(t, static)
	static.Pod = mirror
	s.Run(static)
	reach(static, s.at(), true, "as a static Pod")

	// An address that no Pod has reaches nobody, whoever it is.
	stranger := s.newPod("stranger", app("web"), netip.MustParseAddr("10.244.1.8"))
	s.Attach(t, stranger)
	if err := dial(stranger, s.at()); !timedOut(err) {
		t.Errorf("a Pod before ADD: %v, want a timeout", err)
	}

	for i := range 1000 {
		p := onlyFrom("db", fmt.Sprintf("client-%d", i))
		p.Name = fmt.Sprintf("many-%d", i)
		if i%2 == 0 {
			p.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(int32(6000 + i%10)))}}
		}
		s.API.Put(p)
	}
	late := s.launch(t, "late", app("client-999"), "10.244.1.9")
	reach(late, s.at(), true, "by one of 1,000 policies")
	reach(s.other, s.at(), false, "by none of 1,000 policies")
}

// TestInvalidPolicy has a policy whose selector cannot be read: it isolates all Pods of its namespace, allows
// nothing, and the log says so.
func TestInvalidPolicy(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	serve(t, s.other)
	to := netip.AddrPortFrom(s.other.Addr(), port)
	if err := dial(s.web, to); err != nil {
		t.Fatalf("a Pod that no policy selects: %v", err)
	}
	invalid := onlyFrom("nobody", "web")
	invalid.Spec.PodSelector = metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}},
	}
	invalid.Spec.Ingress[0].From[0].PodSelector = &invalid.Spec.PodSelector
	s.API.Put(invalid)
	until(t, "the invalid policy isolates other", func() bool { return timedOut(dial(s.web, to)) })
	if !strings.Contains(s.Log(), "object is invalid; what is invalid lets nothing through") {
		t.Error("the log says nothing of the invalid policy")
	}
	s.holds(t, "with an invalid policy")
	s.API.Delete(invalid)
	until(t, "other is reached again", func() bool { return dial(s.web, to) == nil })
}

// TestHostNetwork verifies that the node, which a Pod with hostNetwork is, reaches its Pods whatever policies say,
// and is not subject to those that select the Pod.
func TestHostNetwork(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	const nodeAddr = "192.0.2.1"
	must(t, namespace.IP("address add "+nodeAddr+"/32 dev lo"))
	o := object("host", app("db"))
	o.Spec.HostNetwork = true
	host := s.NewPod(o, netip.MustParseAddr(nodeAddr)) // its network is the node's
	s.Run(host)
	serve(t, host)
	for _, addr := range []string{"10.244.1.3", nodeAddr} {
		if err := dial(host, netip.AddrPortFrom(netip.MustParseAddr(addr), port)); err != nil {
			t.Errorf("from the node to %s: %v", addr, err)
		}
	}
	if err := dial(s.other, netip.AddrPortFrom(host.Addr(), port)); err != nil {
		t.Errorf("to a Pod with hostNetwork that a policy selects: %v", err)
	}
	s.holds(t, "beside a Pod with hostNetwork")
}

// TestEndsFlows verifies that connections end that a change forbids, whichever end talks, and that others
// go on.
func TestEndsFlows(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	for _, talker := range []string{"client", "server"} {
		t.Run(talker+" talks", func(t *testing.T) {
			banned, kept := s.connect(t, s.web, talker), s.connect(t, s.db, talker)
			if !banned() || !kept() {
				t.Fatal("the connections do not work at first")
			}
			s.API.Put(onlyFrom("db", "nobody"))
			until(t, "the forbidden connection ends", func() bool { return !banned() })
			time.Sleep(300 * time.Millisecond) // in which data is sent again
			if banned() {
				t.Error("the forbidden connection goes on")
			}
			if !kept() {
				t.Error("the allowed connection ended")
			}
			s.API.Put(onlyFrom("db", "web"))
			until(t, "it is allowed again", func() bool { return dial(s.web, s.at()) == nil })
		})
	}
}

// connect opens a connection from a Pod to db, for itself or for web, on which the talker sends a line
// each time that the result is called, which reports whether it arrived.
func (s *three) connect(t *testing.T, from *pod, talker string) (works func() bool) {
	t.Helper()
	to, at := s.db, netip.AddrPortFrom(s.db.Addr(), 6000)
	if from == s.db { // db is a client, too: nothing restricts what it begins
		to, at = s.other, netip.AddrPortFrom(s.other.Addr(), 6000)
	}
	var l net.Listener
	must(t, to.Network.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":6000")
		return err
	}))
	defer l.Close()
	var client, server net.Conn
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept()
		accepted <- err
	}()
	must(t, from.Network.Do(func() (err error) {
		client, err = net.Dial("tcp", at.String())
		return err
	}))
	must(t, <-accepted)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	speaker, listener := client, server
	if talker == "server" {
		speaker, listener = server, client
	}
	lines := bufio.NewReader(listener)
	n := 0
	return func() bool {
		n++
		want := fmt.Sprintf("%d\n", n)
		if _, err := speaker.Write([]byte(want)); err != nil {
			return false
		}
		must(t, listener.SetReadDeadline(time.Now().Add(time.Second)))
		for {
			line, err := lines.ReadString('\n')
			if err != nil || line == want {
				return err == nil
			}
		}
	}
}

// TestIPv6Later has the node get a range of IPv6, and Pods that start after that both families.
func TestIPv6Later(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	s.API.Put(theNode("10.244.1.0/24", "fd00:244::/112"))
	at := netip.MustParseAddrPort("[fd00:244::13]:5000")
	db := s.launch(t, "db-6", app("db"), "10.244.1.13", at.Addr())
	web := s.launch(t, "web-6", app("web"), "10.244.1.14", netip.MustParseAddr("fd00:244::14"))
	other := s.launch(t, "other-6", app("other"), "10.244.1.15", netip.MustParseAddr("fd00:244::15"))
	serve(t, db)
	until(t, "web reaches db", func() bool { return dial(web, at) == nil })
	if err := dial(other, at); !timedOut(err) {
		t.Errorf("other to db: %v, want a timeout", err)
	}
	stranger := s.newPod("stranger", app("web"), netip.MustParseAddr("10.244.1.16"), netip.MustParseAddr("fd00:244::16"))
	s.Attach(t, stranger)
	if err := dial(stranger, at); !timedOut(err) {
		t.Errorf("a Pod before ADD: %v, want a timeout", err)
	}
	s.holds(t, "for Pods with IPv4 only")
}

// passing is elements that expire: flows that were ended.
var passing = regexp.MustCompile(`elements = \{[^}]* timeout [^}]*\}`)

// ruleset returns the words of the table as nft prints it, sorted since sets have no order, and without
// counts and elements that expire.
func ruleset(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "--stateless", "list", "table", "inet", table).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	words := strings.FieldsFunc(
		passing.ReplaceAllString(string(out), ""),
		func(r rune) bool { return r == ',' || unicode.IsSpace(r) },
	)
	slices.Sort(words)
	return strings.Join(words, "\n")
}

func nft(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("nft", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

func timedOut(err error) bool { return os.IsTimeout(err) }

// TestTakesOver has an agent start beside another one, as in an upgrade. One of them programs the table at a
// time, and Pods start all the time.
func TestTakesOver(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	var during *pod
	s.Replace(t, func() {
		during = s.launch(t, "during", app("web"), "10.244.1.6")
		s.holds(t, "with two agents")
	})
	after := s.launch(t, "after", app("web"), "10.244.1.7")
	for _, p := range []*pod{during, after} {
		until(t, p.Name+" reaches db", func() bool { return dial(p, s.at()) == nil })
	}
	s.holds(t, "after the first agent ended")
	if n := strings.Count(s.Log(), "another program changed"); n > 0 {
		t.Errorf("the agents repaired each other's table %d times", n)
	}
}

// TestAddressUsedAgain has a Pod end to which a client still sends, and another one get its address, which
// the client may not reach.
func TestAddressUsedAgain(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	s.API.Put(onlyFrom("closed", "nobody"))
	const addr = "10.244.1.6"
	open := s.launch(t, "open", app("open"), addr)
	conn := listenUDP(t, open, port)
	first := count(conn, s.other.Addr())
	client := listenUDP(t, s.other, 0)
	defer send(client, netip.AddrPortFrom(open.Addr(), port))()
	go func() { // an answer makes the flow an established one
		for range 100 {
			_, _ = conn.WriteToUDPAddrPort(
				[]byte("!"),
				netip.AddrPortFrom(s.other.Addr(), uint16(client.LocalAddr().(*net.UDPAddr).Port)),
			)
			time.Sleep(time.Millisecond)
		}
	}()
	until(t, "the client reaches the first Pod", func() bool { return first.Load() > 200 })
	conn.Close()
	s.Remove(t, open)
	closed := s.newPod("closed", app("closed"), netip.MustParseAddr(addr))
	s.Attach(t, closed)
	second := count(listenUDP(t, closed, port), s.other.Addr())
	s.Add(t, closed)
	s.Run(closed)
	time.Sleep(500 * time.Millisecond) // in which the client sends
	if n := second.Load(); n > 0 {
		t.Errorf("%d packets of a client of the Pod before reached one that it may not reach", n)
	}
}
