// Package simulate is a control plane for a cluster that is only declared: it
// makes of manifests what Kubernetes would have made of them. Workloads get
// their Pods, Pods addresses, Services addresses and node ports (package alloc)
// and EndpointSlices (package endpointslices).
//
// Nothing runs. Pods that it makes, and those that it gives an address, are
// marked as simulated, are ready, and run on the Nodes that are declared, or on
// one that is made up.
package simulate

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/alloc"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/endpointslices"
)

// Config is what a ControlPlane is made from.
type Config struct {
	// ServiceRanges and PodRanges are where addresses come from: one range each,
	// or two of different families.
	ServiceRanges, PodRanges []netip.Prefix
	// NodePorts are those that are given out.
	NodePorts alloc.Ports
	// MaxEndpoints is how many endpoints a slice has at most, 1 to 1000.
	MaxEndpoints int
	Log          *slog.Logger
}

// ControlPlane completes what manifests declare. It is the manifest source's
// ControlPlane.
type ControlPlane struct {
	services  *alloc.Allocator
	slices    *endpointslices.Compiler
	apiServer netip.Addr // the address of the API server's Service
	addresses *addresses
	pods      map[cluster.Key]*cluster.Pod // those that were made of templates
	refused   []cluster.Refusal            // workloads
	nodes     map[string]*cluster.Node     // those that were made up
}

// New makes a ControlPlane of which nothing was asked yet, or says what is wrong
// with the ranges.
func New(cfg Config) (*ControlPlane, error) {
	services, err := alloc.New(alloc.Config{Ranges: cfg.ServiceRanges, NodePorts: cfg.NodePorts})
	if err != nil {
		return nil, err
	}
	for i, r := range cfg.PodRanges {
		for _, other := range append(cfg.PodRanges[:i:i], cfg.ServiceRanges...) {
			if r.Overlaps(other) {
				return nil, fmt.Errorf("the range of Pods %s overlaps %s", r, other)
			}
		}
	}
	c := &ControlPlane{
		services:  services,
		slices:    endpointslices.New(endpointslices.Config{MaxEndpoints: cfg.MaxEndpoints, Log: cfg.Log}),
		apiServer: cfg.ServiceRanges[0].Masked().Addr().Next(),
		addresses: newAddresses(cfg.PodRanges),
		pods:      make(map[cluster.Key]*cluster.Pod),
		nodes:     make(map[string]*cluster.Node),
	}
	// That one has its address before others can ask for it.
	first := cluster.NewStore()
	first.Update(c.addAPIServer)
	first.View(c.services.Recall)
	return c, nil
}

// Recall takes over the addresses that a snapshot had, so that they stay what
// they were. It is called before the first Complete.
func (c *ControlPlane) Recall(v *cluster.View) {
	c.services.Recall(v)
	for p := range v.Pods() {
		if p.Simulated {
			c.addresses.take(p.Key, p.IPs)
		}
	}
}

// Complete adds to a transaction what follows from what it changed, and tells
// which Services are refused at present, see manifest.ControlPlane.
func (c *ControlPlane) Complete(tx *cluster.Tx) []cluster.Refusal {
	c.addAPIServer(tx)
	if touchesPods(tx.Changed()) {
		c.completeNodes(tx)
		c.refused = c.makePods(tx)
		c.completePods(tx)
		c.implyNodes(tx)
	}
	refused := slices.Concat(c.refused, c.services.Complete(tx))
	c.slices.Complete(tx)
	return refused
}

// Slices are the EndpointSlices that were made for a Service, by name.
func (c *ControlPlane) Slices(service cluster.Key) []*discoveryv1.EndpointSlice {
	return c.slices.Slices(service)
}

// touchesPods tells whether changes are of anything that Pods come from.
func touchesPods(changes cluster.Changes) bool {
	if changes.Everything {
		return true
	}
	for ch := range changes.Objects {
		switch ch.Kind {
		case cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindNetworkPolicy:
		default:
			return true
		}
	}
	return false
}

// apiServer is the key of the Service that every cluster has: the API server
// makes it, with the first address of the range.
var apiServer = cluster.Key{Namespace: "default", Name: "kubernetes"}

func (c *ControlPlane) addAPIServer(tx *cluster.Tx) {
	if tx.Service(apiServer) != nil {
		return
	}
	if tx.Namespace(apiServer.Namespace) == nil {
		tx.PutNamespace(&cluster.Namespace{Name: apiServer.Namespace})
	}
	family := cluster.IPv6
	if c.apiServer.Is4() {
		family = cluster.IPv4
	}
	tx.PutService(&cluster.Service{
		Key:        apiServer,
		ClusterIPs: []netip.Addr{c.apiServer},
		Ports:      []cluster.Port{{Name: "https", Protocol: cluster.TCP, Number: 443}},
		Targets:    []string{"6443"},
		Spec: &cluster.ServiceSpec{
			Type:         cluster.ClusterIP,
			Labels:       map[string]string{"component": "apiserver", "provider": "kubernetes"},
			FamilyPolicy: cluster.SingleStack,
			Families:     []cluster.AddressType{family},
		},
	})
}
