//go:build linux

package policytest

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/namespace"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

// Pod is a Pod of the node.
type Pod struct {
	*corev1.Pod
	Addrs   []netip.Addr
	Network *namespace.Network // nil before Attach
	device  string
	id      string
}

// Addr is the first of the Pod's addresses.
func (p *Pod) Addr() netip.Addr { return p.Addrs[0] }

// NewPod has the API server have a Pod that is scheduled to the node: this one, with a UID.
func (a *Agent) NewPod(o *corev1.Pod, addrs ...netip.Addr) *Pod {
	number := strconv.FormatInt(a.pods.Add(1), 10)
	p := &Pod{Pod: o, Addrs: addrs, device: "pod" + number, id: "c" + number}
	o.UID, o.Spec.NodeName, o.Status.Phase = types.UID("u-"+number), Node, corev1.PodPending
	a.API.Put(o)
	return p
}

// Attach makes the Pod's network, as a plugin before ours in the chain does.
func (a *Agent) Attach(t *testing.T, p *Pod) {
	t.Helper()
	p.Network = namespacetest.AttachPod(t, p.device, p.Addrs...)
}

// Add calls the plugin, as a container runtime does until it has no error. It returns how many calls that
// took, and the time of the last one.
func (a *Agent) Add(t *testing.T, p *Pod) (calls int, last time.Duration) {
	t.Helper()
	await.NoError(t, func() error {
		calls++
		begin := time.Now()
		err := a.call(t, "ADD", p)
		last = time.Since(begin)
		return err
	})
	return calls, last
}

// Run has the Pod's status have its addresses.
func (a *Agent) Run(p *Pod) {
	running := p.DeepCopy()
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.Addr().String()}
	for _, addr := range p.Addrs {
		running.Status.PodIPs = append(running.Status.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	p.Pod = running
	a.API.Put(running)
}

// Launch has a Pod run that need not be watched while it starts.
func (a *Agent) Launch(t *testing.T, o *corev1.Pod, addrs ...netip.Addr) *Pod {
	t.Helper()
	p := a.NewPod(o, addrs...)
	a.Attach(t, p)
	a.Add(t, p)
	a.Run(p)
	return p
}

// Remove ends a Pod.
func (a *Agent) Remove(t *testing.T, p *Pod) {
	t.Helper()
	must(t, a.call(t, "DEL", p))
	link, err := netlink.LinkByName(p.device)
	must(t, err)
	must(t, netlink.LinkDel(link))
	a.API.Delete(p.Pod)
}
