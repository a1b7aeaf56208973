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

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
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
	// pods and nodes are those of the model that are not as they are declared.
	pods    map[cluster.Key]ours[cluster.Pod]
	nodes   map[string]ours[cluster.Node]
	refused []cluster.Refusal // workloads and Pods
	begun   bool
}

// New makes a ControlPlane of which nothing was asked yet, or says what is wrong
// with the ranges.
func New(cfg Config) (*ControlPlane, error) {
	services, err := alloc.New(alloc.Config{Ranges: cfg.ServiceRanges, NodePorts: cfg.NodePorts})
	if err != nil {
		return nil, err
	}
	if err := checkPodRanges(cfg); err != nil {
		return nil, err
	}
	c := &ControlPlane{
		services:  services,
		slices:    endpointslices.New(endpointslices.Config{MaxEndpoints: cfg.MaxEndpoints, Log: cfg.Log}),
		apiServer: cfg.ServiceRanges[0].Masked().Addr().Next(),
		addresses: newAddresses(cfg.PodRanges),
	}
	// That one has its address before others can ask for it.
	first := cluster.NewStore()
	first.Update(c.addAPIServer)
	first.View(c.services.Recall)
	return c, nil
}

// checkPodRanges refuses ranges of which Pods can't have an address each.
func checkPodRanges(cfg Config) error {
	ranges := cfg.PodRanges
	if len(ranges) == 0 || len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return fmt.Errorf("ranges of Pods %v: there must be one, or two of different families", ranges)
	}
	for _, r := range ranges {
		for _, other := range cfg.ServiceRanges {
			if r.Overlaps(other) {
				return fmt.Errorf("the range of Pods %s overlaps %s", r, other)
			}
		}
	}
	return nil
}

// Recall takes over the addresses that a snapshot had, so that they stay what
// they were. It is called before the first Complete.
func (c *ControlPlane) Recall(v *cluster.View) {
	c.services.Recall(v)
	for p := range v.Pods() {
		if p.Simulated && (p.Spec == nil || !p.Spec.HostNetwork) {
			c.addresses.recall(p.Key, p.IPs)
		}
	}
}

// Complete adds to a transaction what follows from what it changed, and tells
// which Services are refused at present, see manifest.ControlPlane.
func (c *ControlPlane) Complete(tx *cluster.Tx) []cluster.Refusal {
	c.addAPIServer(tx)
	if !c.begun || touchesPods(tx.Changed()) {
		c.begun = true
		c.observe(tx)
		c.refused = c.putPods(tx)
		c.putNodes(tx)
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
	if tx.Namespace(apiServer.Namespace) == nil {
		tx.Put(&cluster.Namespace{Name: apiServer.Namespace})
	}
	if tx.Service(apiServer) != nil {
		return
	}
	tx.Put(&cluster.Service{
		Key:        apiServer,
		ClusterIPs: []netip.Addr{c.apiServer},
		Ports:      []cluster.Port{{Name: "https", Protocol: cluster.TCP, Number: 443}},
		Targets:    []string{"6443"},
		Spec: &cluster.ServiceSpec{
			Type:         cluster.ClusterIP,
			Labels:       map[string]string{"component": "apiserver", "provider": "kubernetes"},
			FamilyPolicy: cluster.SingleStack,
			Families:     []cluster.AddressType{cluster.FamilyOf(c.apiServer)},
		},
	})
}
