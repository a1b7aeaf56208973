package announce

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/network/announce/bgp"
	"portolan.dev/portolan/internal/network/announce/failover"
	"portolan.dev/portolan/internal/network/announce/frame"
	"portolan.dev/portolan/internal/network/announce/plan"
	"portolan.dev/portolan/internal/support/retry"
)

const (
	// interval is that of the machines' ticks, and overdue after how much of it a reply takes too long: with
	// failover.Misses, the next node takes over 0.6 to 0.85 seconds after the death of one.
	interval, overdue = 250 * time.Millisecond, 100 * time.Millisecond
	// pausedTime without a tick is a process that was stopped.
	pausedTime = 2 * interval
	// stopTime is how long the end waits for other nodes to take over.
	stopTime = 500 * time.Millisecond
	// conflictPause is the time between lines about conflicts, and between the announcements that defend one address
	// (RFC 5227, DEFEND_INTERVAL).
	conflictPause = 10 * time.Second
	// conflictTime is for how long a conflict is among the Stats.
	conflictTime = 5 * time.Minute
	// maxClaims is how many announcements by strangers are looked at between two ticks.
	maxClaims = 64
	// maxReceived is how many messages of other agents may wait. Further ones are lost.
	maxReceived = 1024
)

// loop is the goroutine that follows the cluster and the links.
type loop struct {
	*Announcer
	self     plan.ID
	cluster  uint64        // see frame.Message.Cluster
	node     *cluster.Node // nil before it is known
	compiler *plan.Compiler
	plan     map[netip.Addr]plan.Address
	ifaces   []iface
	links    map[int]*link // by the index of the interface
	received chan received
	ticked   time.Time
	// claims are announcements by strangers since the last tick, which may be agents that were not heard yet.
	claims []received
	// defended are the addresses with conflicts, and when they were last announced for that; reported is when a conflict
	// was last logged.
	defended map[netip.Addr]time.Time
	reported time.Time
	names    map[plan.ID]string // of the Nodes of the cluster, by their IDs
	former   former
	backoff  retry.Backoff
	again    <-chan time.Time // when links are opened again, nil if all are open
	burst    <-chan time.Time // when more addresses are announced, nil if none are to be
	stopping bool
}

func newLoop(a *Announcer) *loop {
	return &loop{
		Announcer: a, self: plan.IDOf(a.cfg.Node), plan: make(map[netip.Addr]plan.Address),
		compiler: plan.NewCompiler(plan.Config{
			Node: a.cfg.Node, NodeSelector: a.cfg.NodeSelector, Ours: a.cfg.Ours,
		}),
		links: make(map[int]*link), former: former{kernel: a.network.formerNodes()}, names: make(map[plan.ID]string),
		defended: make(map[netip.Addr]time.Time), received: make(chan received, maxReceived),
	}
}

func (l *loop) run(ctx context.Context) error {
	feed := l.cfg.Store.Subscribe()
	defer feed.Close()
	changed := make(chan struct{}, 1)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if l.speaker != nil {
		watching.Go(func() { _ = l.speaker.Run(ctx) }) // its error is nil
	}
	watching.Go(func() { watched <- l.network.watch(running, changed) })
	defer l.former.kernel.Close()
	defer l.closeAll()
	l.lookAtInterfaces()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	late := time.NewTimer(overdue)
	defer late.Stop()
	l.ticked = time.Now()
	done, end := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-done:
			done, end = nil, time.After(stopTime)
			l.stop()
		case <-end:
			return nil
		case err := <-watched:
			return fmt.Errorf("watch interfaces: %w", err)
		case <-feed.Ready():
			l.follow(feed.Pending())
		case <-l.cfg.ServingChanged:
			l.putAll()
			l.tellRouters()
		case <-changed:
			l.lookAtInterfaces()
		case <-l.again:
			l.lookAtInterfaces()
		case in := <-l.received:
			l.receive(&in)
		case <-tick.C:
			l.tick()
			late.Reset(overdue)
		case <-l.burst:
			l.burst = nil
		case <-late.C:
			l.each((*failover.Machine).Overdue)
		}
		l.flush()
		if l.stopping && l.owned() == 0 {
			return nil
		}
	}
}

// each has all machines do something.
func (l *loop) each(do func(*failover.Machine) failover.Output) {
	for _, k := range l.links {
		k.do(do(k.machine), &l.counters, l.cluster)
	}
}

func (l *loop) tick() {
	now := time.Now()
	do := (*failover.Machine).Tick
	if now.Sub(l.ticked) > pausedTime {
		do = (*failover.Machine).Resume
	}
	l.ticked = now
	l.former.stale = l.former.stale || l.former.failed
	l.each(do)
	for i := range l.claims {
		l.defend(&l.claims[i])
	}
	l.claims = l.claims[:0]
	maps.DeleteFunc(l.defended, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > conflictPause })
	for _, k := range l.links {
		k.port.renew()
	}
}

// flush has the links do what they were told, unless it is to wait.
func (l *loop) flush() {
	l.setFormer() // before hosts are told
	if l.burst != nil {
		return
	}
	for _, k := range l.links {
		if k.flush() {
			l.burst = time.After(burstPause)
		}
	}
}

func (l *loop) stop() {
	l.stopping = true
	l.each((*failover.Machine).Stop)
}

func (l *loop) owned() (n int) {
	for _, k := range l.links {
		n += k.machine.Owned()
	}
	return n
}

// follow compiles what changed of the cluster.
func (l *loop) follow(changed cluster.Changes) {
	var changes plan.Changes
	node := l.node
	l.cfg.Store.View(func(v *cluster.View) {
		if v.Loaded(l.Needs()...) {
			changes = l.compiler.Apply(v, changed)
			l.followNodes(v, changed)
			l.cluster = clusterNumber(v)
			if n := v.Node(l.cfg.Node); n != nil {
				l.node = n
			}
		}
	})
	l.apply(changes)
	if len(changes.Put)+len(changes.Delete) > 0 || l.node != node {
		l.tellRouters()
	}
}

// followNodes notes which Nodes there are, and forgets the MACs of those that went.
func (l *loop) followNodes(v *cluster.View, changed cluster.Changes) {
	put := func(name string) { l.names[plan.IDOf(name)] = name }
	if changed.Everything {
		clear(l.names)
		for n := range v.Nodes() {
			put(n.Name)
		}
		l.former.stale = true
	}
	for of := range changed.Objects {
		if of.Kind != cluster.KindNode {
			continue
		}
		l.former.stale = true
		if v.Node(of.Key.Name) != nil {
			put(of.Key.Name)
		} else {
			delete(l.names, plan.IDOf(of.Key.Name))
		}
	}
	if l.former.stale {
		for _, k := range l.links {
			maps.DeleteFunc(k.macs, func(id plan.ID, _ frame.MAC) bool { return l.names[id] == "" })
		}
	}
}

// apply applies changes of the plan.
func (l *loop) apply(changes plan.Changes) {
	for _, a := range changes.Delete {
		delete(l.plan, a)
		for _, k := range l.links {
			l.remove(k, a)
		}
	}
	for a, is := range changes.Put {
		l.plan[a] = is
		l.place(a)
	}
	if len(changes.Put)+len(changes.Delete) > 0 {
		l.count()
	}
}

// tellRouters has routers be told of the addresses that the node serves.
func (l *loop) tellRouters() {
	if l.speaker == nil || l.node == nil {
		return
	}
	state := bgp.State{NextHops: l.node.InternalIPs, Labels: l.node.Labels}
	for a, is := range l.plan {
		if is.Mine && l.cfg.Serving(a) {
			state.Addrs = append(state.Addrs, a)
		}
	}
	l.speaker.Update(state)
}

// clusterNumber returns a number of the cluster: a hash of the UID of its first Service, which never changes. It is 0
// if that is not known.
func clusterNumber(v *cluster.View) uint64 {
	s := v.Service(cluster.Key{Namespace: "default", Name: "kubernetes"})
	if s == nil || s.Spec == nil {
		return 0
	}
	sum := sha256.Sum256([]byte(s.Spec.UID))
	return binary.BigEndian.Uint64(sum[:])
}

// count sets the figures of the plan.
func (l *loop) count() {
	var unlinked, unclaimed, unshown int64
	var example netip.Addr
	for a, is := range l.plan {
		if !slices.ContainsFunc(l.ifaces, func(i iface) bool { return l.isOn(a, &i) }) {
			unlinked++
		}
		if len(is.Ranked) == 0 {
			unclaimed++
		}
		if is.Unshown && len(l.cfg.Interfaces) == 0 {
			unshown++
			example = a
		}
	}
	l.counters.addresses.Store(int64(len(l.plan)))
	l.counters.unlinked.Store(unlinked)
	l.counters.unclaimed.Store(unclaimed)
	if before := l.counters.unshown.Swap(unshown); before == 0 && unshown > 0 {
		l.cfg.Log.Warn(
			"the status of no Node has an address on the link of an address: all nodes are candidates, also those that are "+
				"not on the link; network.announce.nodeSelector names those that are", "address", example,
		)
	}
}

// isOn reports whether an address is announced on an interface.
func (l *loop) isOn(a netip.Addr, i *iface) bool {
	if len(l.cfg.Interfaces) > 0 {
		return slices.Contains(l.cfg.Interfaces, i.name)
	}
	return i.contains(a)
}

// place puts an address on the links that it belongs to.
func (l *loop) place(a netip.Addr) {
	for i := range l.ifaces {
		if at := &l.ifaces[i]; l.isOn(a, at) {
			if k := l.open(at); k != nil {
				l.put(k, a)
			}
		}
	}
}

// putAll puts all addresses on all of their links again.
func (l *loop) putAll() {
	for a := range l.plan {
		l.place(a)
	}
}

func (l *loop) put(k *link, a netip.Addr) {
	var ids []plan.ID
	for _, name := range l.plan[a].Ranked {
		ids = append(ids, plan.IDOf(name))
	}
	k.addrs[a] = struct{}{}
	k.do(k.machine.Put(a, failover.Candidates{Ranked: ids, Serving: l.cfg.Serving(a)}), &l.counters, l.cluster)
}

// remove removes an address from a link, and closes the link if it was the last one.
func (l *loop) remove(k *link, a netip.Addr) {
	if _, on := k.addrs[a]; !on {
		return
	}
	delete(k.addrs, a)
	k.do(k.machine.Remove(a), &l.counters, l.cluster)
	if len(k.addrs) == 0 {
		l.close(k)
	}
}

// open returns the link of an interface, or nil if it cannot be opened or the node stops.
func (l *loop) open(at *iface) *link {
	if k := l.links[at.index]; k != nil || l.stopping {
		return k
	}
	p, err := l.network.open(*at, &l.counters, l.received)
	if err != nil {
		if l.again == nil {
			l.again = time.After(l.backoff.Next())
			l.cfg.Log.Error("addresses of load balancers are not announced; it is tried again", "interface", at.name, "err", err)
		}
		return nil
	}
	k := &link{
		iface: *at, port: p, machine: failover.New(l.self), addrs: make(map[netip.Addr]struct{}),
		macs: make(map[plan.ID]frame.MAC), former: make(map[netip.Addr]plan.ID),
	}
	p.renew()
	l.links[at.index] = k
	l.cfg.Log.Info("announcing addresses of load balancers", "interface", at.name)
	return k
}

func (l *loop) close(k *link) {
	l.counters.owned.Add(-int64(k.machine.Owned()))
	k.port.close()
	delete(l.links, k.index)
	l.former.stale = true
}

func (l *loop) closeAll() {
	for _, k := range l.links {
		l.close(k)
	}
}

// lookAtInterfaces reads the interfaces, closes the links of those that went or changed, and opens new ones.
func (l *loop) lookAtInterfaces() {
	retries := l.again != nil
	l.again = nil
	ifaces, err := l.network.interfaces()
	if err != nil {
		l.cfg.Log.Error("the interfaces of the node cannot be read; it is tried again", "err", err)
		l.again = time.After(l.backoff.Next())
		return
	}
	ifaces = slices.DeleteFunc(ifaces, func(i iface) bool { // above all those of Pods, which come and go all the time
		return len(i.prefixes) == 0 && !slices.Contains(l.cfg.Interfaces, i.name)
	})
	if !retries && slices.EqualFunc(ifaces, l.ifaces, iface.equal) {
		return
	}
	l.ifaces = ifaces
	l.former.stale = true // they may have other addresses on a link
	for _, k := range l.links {
		i := slices.IndexFunc(ifaces, func(i iface) bool { return i.index == k.index })
		if i < 0 || ifaces[i].name != k.name || ifaces[i].mac != k.mac {
			l.cfg.Log.Info("an interface is down, gone or changed", "interface", k.name)
			l.close(k)
			continue
		}
		k.iface = ifaces[i]
		for a := range k.addrs {
			if !l.isOn(a, &k.iface) {
				l.remove(k, a)
			}
		}
	}
	var prefixes []netip.Prefix
	for _, i := range ifaces {
		prefixes = append(prefixes, i.prefixes...)
	}
	l.apply(l.compiler.SetLinks(prefixes))
	l.putAll()
	l.count()
	if l.again == nil {
		l.backoff = retry.Backoff{}
	}
}

// receive takes a message of another agent, or a conflict.
func (l *loop) receive(in *received) {
	k := l.links[in.index]
	if k == nil || in.from == k.mac {
		return
	}
	if in.conflict.IsValid() {
		if len(l.claims) < maxClaims {
			l.claims = append(l.claims, *in)
		}
		return
	}
	if in.message.Cluster != l.cluster {
		return
	}
	if id := plan.ID(in.message.From); l.names[id] != "" { // anybody can send one
		k.macs[id] = in.from
	}
	k.do(k.machine.Receive(&in.message), &l.counters, l.cluster)
}

// defend announces an address that a host announced which is no agent (RFC 5227, section 2.4).
func (l *loop) defend(claim *received) {
	k := l.links[claim.index]
	if k == nil {
		return
	}
	for _, mac := range k.macs {
		if mac == claim.from {
			return
		}
	}
	now := time.Now()
	l.counters.conflicts.Add(1)
	l.counters.conflict.Store(&Conflict{
		Addr: claim.conflict, MAC: net.HardwareAddr(claim.from[:]), Interface: k.name, Seen: now,
	})
	if now.Sub(l.reported) > conflictPause {
		l.reported = now
		l.cfg.Log.Error("another host has the address of a load balancer", "address", claim.conflict,
			"mac", net.HardwareAddr(claim.from[:]), "interface", k.name)
	}
	if now.Sub(l.defended[claim.conflict]) > conflictPause {
		l.defended[claim.conflict] = now
		k.port.announce(claim.conflict)
	}
}
