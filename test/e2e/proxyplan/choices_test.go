package proxyplan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// choice is a case of kube-proxy's tests of the choice of endpoints, with what kube-proxy chose;
// testdata/choices.go writes it.
type choice struct {
	Test, Node, Zone                         string
	InternalLocal, ExternalLocal, Accessible bool
	Endpoints                                []struct {
		Address                     netip.AddrPort
		Ready, Serving, Terminating bool
		Local                       bool
		Zones, Nodes                []string
	}
	Cluster, LocalOnly []string // the endpoints for the policies Cluster and Local
	Anywhere           bool     // whether any node has an endpoint
}

// choices returns what kube-proxy and ours choose in the cases of pkg/proxy/topology_test.go.
func choices(t *testing.T) (all []comparison) {
	t.Helper()
	for _, c := range record[choice](t, recording{
		pkg: "proxy", recorder: "choices.go", tests: []string{"topology_test.go"},
		edits: []edit{{"topology_test.go", ":= CategorizeEndpoints(", ":= recordCategorize(t, "}},
	}) {
		if c.Node == "" {
			c.Node = "this-node"
		}
		ours := c.ours(t)
		for _, client := range slices.Sorted(maps.Keys(ours)) {
			local := client == "inside" && c.InternalLocal || client != "inside" && c.ExternalLocal
			all = append(all, comparison{c.Test, client, c.chosen(local), ours[client]})
		}
	}
	return all
}

// chosen returns kube-proxy's choice for a traffic policy.
func (c *choice) chosen(local bool) string {
	endpoints := slices.Clone(c.Cluster)
	if local {
		endpoints = slices.Clone(c.LocalOnly)
	}
	slices.Sort(endpoints)
	switch {
	case len(endpoints) > 0:
		return strings.Join(endpoints, ", ")
	case c.Anywhere:
		return "drop"
	}
	return "reject"
}

// ours returns which endpoints clients inside and outside of the cluster get.
func (c *choice) ours(t *testing.T) map[string]string {
	t.Helper()
	store := cluster.NewStore()
	service, errs := object.Service(c.service())
	store.Update(func(tx *cluster.Tx) {
		tx.Put(service)
		for _, s := range c.slices() {
			slice, bad := object.EndpointSlice(s)
			errs = append(errs, bad...)
			tx.Put(slice)
		}
	})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	all := make(map[string]string)
	node := plan.Node{Name: c.Node, Zone: c.Zone, NodePorts: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	store.View(func(v *cluster.View) {
		for _, f := range plan.Compile(v, &node, service.Key).Frontends {
			client, endpoints := "inside", f.Endpoints
			switch f.Policy {
			case frontend.External:
				client = "outside"
			case frontend.ExternalLocal:
				client, endpoints = "outside", f.Local
			case frontend.Plain:
			}
			text := strings.Join(texts(endpoints), ", ")
			switch {
			case len(endpoints) > 0:
			case f.Empty == frontend.Drop || len(f.Endpoints) > 0:
				text = "drop"
			default:
				text = "reject"
			}
			all[client] = text
		}
	})
	return all
}

func (c *choice) service() *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if c.InternalLocal {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if c.Accessible {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if c.ExternalLocal {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	return s
}

// slices returns an EndpointSlice for each endpoint.
func (c *choice) slices() (all []*discoveryv1.EndpointSlice) {
	for i, e := range c.Endpoints {
		node := "other-node"
		if e.Local {
			node = c.Node
		}
		endpoint := discoveryv1.Endpoint{
			Addresses: []string{e.Address.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &e.Ready, Serving: &e.Serving, Terminating: &e.Terminating},
		}
		if len(e.Zones)+len(e.Nodes) > 0 {
			endpoint.Hints = new(discoveryv1.EndpointHints)
		}
		for _, zone := range e.Zones {
			endpoint.Hints.ForZones = append(endpoint.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
		for _, node := range e.Nodes {
			endpoint.Hints.ForNodes = append(endpoint.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
		all = append(all, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: fmt.Sprint("web-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{endpoint},
			Ports: []discoveryv1.EndpointPort{{
				Name: new(""), Port: new(int32(e.Address.Port())), Protocol: new(corev1.ProtocolTCP),
			}},
		})
	}
	return all
}
