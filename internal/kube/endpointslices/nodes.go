package endpointslices

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/klog/v2"

	"portolan.dev/portolan/internal/cluster"
)

// NodeRule decides which Pods have endpoints although their Node is unknown.
type NodeRule uint8

const (
	// NodesKnown omits all of them, as Kubernetes does.
	NodesKnown NodeRule = iota
	// NodesDeclared includes Pods without a Node, and all Pods while no Node exists,
	// because manifests rarely declare Nodes.
	NodesDeclared
)

// Nodes determine the zones of endpoints and the hints of the topology annotation.
// They are safe for concurrent use.
type Nodes struct {
	rule     NodeRule
	topology *topologycache.TopologyCache
	present  atomic.Pointer[map[string]*corev1.Node]
}

// NewNodes returns an empty set of Nodes.
func NewNodes(rule NodeRule) *Nodes {
	n := &Nodes{rule: rule, topology: topologycache.NewTopologyCache()}
	n.present.Store(&map[string]*corev1.Node{})
	return n
}

// Set replaces the Nodes by those of the view.
func (n *Nodes) Set(v *cluster.View) {
	present := make(map[string]*corev1.Node, v.Len(cluster.KindNode))
	for node := range v.Nodes() {
		present[node.Name] = apiNode(node)
	}
	n.present.Store(&present)
	n.topology.SetNodes(klog.Logger{}, slices.Collect(maps.Values(present)))
}

// known reports whether the rule allows endpoints for Pods on the Node of that name.
func (n *Nodes) known(name string) bool {
	present := *n.present.Load()
	return present[name] != nil || n.rule == NodesDeclared && (name == "" || len(present) == 0)
}

// forget drops the state about the hints of a Service.
func (n *Nodes) forget(service cluster.Key) {
	n.topology.RemoveHints(service.String(), discoveryv1.AddressTypeIPv4)
	n.topology.RemoveHints(service.String(), discoveryv1.AddressTypeIPv6)
}

// lister is the library's view of the Nodes.
type lister struct{ nodes *Nodes }

// Get returns the Node of that name; nil without an error if the rule allows it to be
// unknown.
func (l lister) Get(name string) (*corev1.Node, error) {
	switch node := (*l.nodes.present.Load())[name]; {
	case node != nil:
		return node, nil
	case l.nodes.known(name):
		return nil, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// List is never called.
func (l lister) List(labels.Selector) ([]*corev1.Node, error) {
	return nil, errors.New("list nodes: not implemented")
}
