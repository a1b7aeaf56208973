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

// NodeRule says what becomes of Pods whose Node is not known.
type NodeRule uint8

const (
	// NodesKnown leaves them out, as Kubernetes does.
	NodesKnown NodeRule = iota
	// NodesDeclared lets those pass that are on no Node, and all while there is
	// no Node at all: Pods of manifests run on none that is declared.
	NodesDeclared
)

// Nodes are what endpoints' zones and the hints of the topology annotation are
// made from. They may be used by several goroutines at once.
type Nodes struct {
	rule     NodeRule
	topology *topologycache.TopologyCache
	present  atomic.Pointer[map[string]*corev1.Node]
}

// NewNodes makes a set of Nodes, empty so far.
func NewNodes(rule NodeRule) *Nodes {
	n := &Nodes{rule: rule, topology: topologycache.NewTopologyCache()}
	n.present.Store(&map[string]*corev1.Node{})
	return n
}

// Set makes the Nodes those of the view.
func (n *Nodes) Set(v *cluster.View) {
	present := make(map[string]*corev1.Node, v.Len(cluster.KindNode))
	for node := range v.Nodes() {
		present[node.Name] = apiNode(node)
	}
	n.present.Store(&present)
	n.topology.SetNodes(klog.Logger{}, slices.Collect(maps.Values(present)))
}

// known tells whether Pods on the Node of that name are not left out for it.
func (n *Nodes) known(name string) bool {
	present := *n.present.Load()
	return present[name] != nil || n.rule == NodesDeclared && (name == "" || len(present) == 0)
}

// zone is that of the Node of that name, nil when it has none.
func (n *Nodes) zone(name string) *string {
	node := (*n.present.Load())[name]
	if node == nil || node.Labels[corev1.LabelTopologyZone] == "" {
		return nil
	}
	zone := node.Labels[corev1.LabelTopologyZone]
	return &zone
}

// forget drops what is remembered of the hints of a Service.
func (n *Nodes) forget(service cluster.Key) {
	n.topology.RemoveHints(service.String(), discoveryv1.AddressTypeIPv4)
	n.topology.RemoveHints(service.String(), discoveryv1.AddressTypeIPv6)
}

// lister shows Nodes to the library.
type lister struct{ nodes *Nodes }

// Get is the Node of that name.
func (l lister) Get(name string) (*corev1.Node, error) {
	switch node := (*l.nodes.present.Load())[name]; {
	case node != nil:
		return node, nil
	case l.nodes.known(name):
		return nil, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// List is not asked for.
func (l lister) List(labels.Selector) ([]*corev1.Node, error) {
	return nil, errors.New("nodes are not listed here")
}
