package policy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/sender"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/plan"
	"portolan.dev/portolan/test/netns/nodes"
)

const (
	serverIP   = "10.1.255.1"
	serverPort = 5000

	// Sources of flows: those of first packets, those of established flows, and one that no policy allows.
	maxBatches = 4 * sender.PortCount / sender.Flows
	later      = 4 * sender.PortCount
	stranger   = 8 * sender.PortCount
	clientPods = stranger / sender.PortCount // the addresses of the others
)

// way is a node that packets pass on their way from clients to a Pod of the node.
type way struct {
	name     string
	tracking bool // the node has onlyTracking
	// policies select the Pod, and name so many different ports; none if 0.
	policies, ports int

	first, established []float64 // by batch, in µs

	world *nodes.Router
	table *nft.Table // nil without policies
	conn  *net.UDPConn
}

// ways are all ways that are compared.
type ways struct {
	empty, tracking *way
	again           *way   // is as tracking: what differs is noise
	policed         []*way // few policies, then many
}

func newWays() *ways {
	return &ways{
		empty:    &way{name: "an empty forward path"},
		tracking: &way{name: "ct state established,related accept", tracking: true},
		again:    &way{tracking: true},
		policed: []*way{
			{name: "10 policies", policies: 10, ports: 10},
			{name: "1,000 policies for 10 ports", policies: 1000, ports: 10},
			{name: "1,000 policies, a port each", policies: 1000, ports: 1000},
		},
	}
}

// named returns the ways in the order of the table.
func (w *ways) named() []*way { return append([]*way{w.empty, w.tracking}, w.policed...) }

// onlyTracking is the least that a firewall with state has.
const onlyTracking = `table inet tracking {
	chain forward {
		type filter hook forward priority 0
		ct state established,related accept
	}
}
`

// measurePackets sends packets all ways, batch by batch in turn.
func (b *bench) measurePackets(ctx context.Context) (figures []figure, err error) {
	w := newWays()
	all := append(w.named(), w.again)
	defer func() {
		for _, one := range all {
			err = errors.Join(err, one.close())
		}
	}()
	for _, one := range all {
		if err := one.build(); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	defer rig.KeepGarbage()()
	for batch := range b.batches {
		for _, one := range rig.Turned(all, batch) {
			if err := one.send(batch); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	b.added = added(w.policed[0], w.empty)
	return w.figures(), nil
}

// build makes the node with its rules, and a server, and finds out whether the rules are in force.
func (w *way) build() (err error) {
	w.world, err = nodes.NewRouter(netip.MustParsePrefix(sender.Range), netip.MustParsePrefix(localRange))
	if err != nil {
		return err
	}
	if w.tracking {
		err = w.world.Node.Rules(onlyTracking)
	} else if w.policies > 0 {
		err = w.program()
	}
	if err != nil {
		return err
	}
	err = w.world.Servers.Do(func() (err error) {
		w.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(server()))
		return err
	})
	if err != nil {
		return err
	}
	go sender.Answer(w.conn)
	return w.world.Client.Do(func() error {
		_, err := sender.Established(server(), stranger)
		switch denied := errors.Is(err, sender.ErrNoAnswer); {
		case denied && w.policies > 0:
			return nil
		case err == nil && w.policies > 0:
			return errors.New("a flow passes that no policy allows")
		}
		return err
	})
}

// program has the kernel of the node hold the policies.
func (w *way) program() error {
	store, err := model(large.eachPod, w.eachSelecting)
	if err != nil {
		return err
	}
	compiler := compile(store)
	return w.world.Node.Do(func() (err error) {
		device, err := net.InterfaceByName("servers")
		if err != nil {
			return err
		}
		// As the CNI plugin reports it: what the Pod sends has its address.
		compiler.SetLocal(
			cluster.Key{Namespace: namespaceName(0), Name: "server"},
			plan.Local{Addrs: []netip.Addr{server().Addr()}, Devices: []uint32{uint32(device.Index)}},
		)
		store.View(func(v *cluster.View) { compiler.Apply(v, new(cluster.Changes)) })
		if w.table, err = nft.New(nft.Config{LogGroup: 1}); err != nil {
			return err
		}
		return w.table.Sync(compiler)
	})
}

// eachSelecting is the Pod of the node, the clients, and the policies that select the Pod: each allows some
// Pods a port, the last one the clients the port of the server, too.
func (w *way) eachSelecting(do func(resource string, o fakeapi.Object) error) error {
	serving, client := map[string]string{"app": "server"}, map[string]string{"app": "client"}
	newPod := func(name, node string, labels map[string]string, addr netip.Addr) error {
		return do("pods", running(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName(0), Name: name, Labels: labels},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
		}, addr))
	}
	err := newPod("server", nodeName, serving, server().Addr())
	for i := range clientPods {
		addr := sender.Source(i * sender.PortCount).Addr()
		err = errors.Join(err, newPod(fmt.Sprint("client-", i), "node-2", client, addr))
	}
	for i := range w.policies {
		p := newPolicy(i)
		p.Namespace, p.Spec.PodSelector.MatchLabels = namespaceName(0), serving
		p.Spec.Ingress = p.Spec.Ingress[:1]
		rule := &p.Spec.Ingress[0]
		last := w.policies - 1
		rule.Ports = []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, serverPort-(last-i)%w.ports)}
		if i == last {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{
				PodSelector: &metav1.LabelSelector{MatchLabels: client},
			})
		}
		err = errors.Join(err, do("networkpolicies", p))
	}
	return err
}

func server() netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(serverIP), serverPort) }

func (w *way) close() (err error) {
	if w.conn != nil {
		err = w.conn.Close()
	}
	if w.table != nil {
		err = errors.Join(err, w.table.Close())
	}
	if w.world != nil {
		w.world.Close()
	}
	return err
}

// send sends a batch.
func (w *way) send(batch int) error {
	return w.world.Client.Do(func() error {
		first, err := sender.First(server(), batch*sender.Flows)
		if err != nil {
			return err
		}
		established, err := sender.Established(server(), later+batch)
		w.first, w.established = append(w.first, first), append(w.established, established)
		return err
	})
}

// figures compares the ways.
func (w *ways) figures() (figures []figure) {
	add := func(most float64, number float64, format string, args ...any) {
		figures = append(figures, figure{fmt.Sprintf(format, args...), number, most})
	}
	for _, one := range w.named() {
		add(0, median(one.established), "packet of an established flow past %s, µs", one.name)
	}
	noise := noise(divided(w.again, w.tracking))
	for _, one := range w.policed {
		add(noise, median(divided(one, w.tracking)), "the same past %s, divided by that past ct only", one.name)
	}
	for _, one := range w.named() {
		add(0, median(one.first), "first packet of a flow past %s, µs", one.name)
	}
	for i, one := range w.policed {
		const few, many = 1.5, 3. // µs
		goal := many
		if i == 0 {
			goal = few
		}
		add(goal, added(one, w.empty), "added to a first packet by %s, over the empty path, µs", one.name)
		add(goal, added(one, w.tracking), "the same over ct only")
	}
	return figures
}

// divided returns the ratios of two ways' packets of established flows, by batch.
func divided(w, by *way) []float64 {
	ratios := slices.Clone(w.established)
	for i := range ratios {
		ratios[i] /= by.established[i]
	}
	return ratios
}

// noise returns how far above 1 a ratio may be that is 1 but for noise, given such ratios: the third
// quartile, or the inverse of the first.
func noise(ratios []float64) float64 {
	slices.Sort(ratios)
	return max(ratios[len(ratios)*3/4], 1/ratios[len(ratios)/4])
}

// added returns the median of what a way adds to first packets over another.
func added(w, over *way) float64 {
	more := slices.Clone(w.first)
	for i := range more {
		more[i] -= over.first[i]
	}
	return median(more)
}

func median(numbers []float64) float64 { return rig.Over(numbers).Median }
