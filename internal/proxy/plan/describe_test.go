package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// TestEndpoints checks why endpoints are not used.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	second := slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("here"))
	second.Spec.Places[1].Additional = true
	tests := map[string]struct {
		slice *cluster.EndpointSlice
		want  []string // address: why not with policy Cluster; with policy Local
	}{
		"all that are ready are used with policy Cluster, those on the node with Local": {
			slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("there")),
			[]string{"10.1.0.5: ; ", "10.1.0.6: ; not on the node"},
		},
		"one that is not ready is not used": {
			slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("here").unready()),
			[]string{"10.1.0.5: ; ", "10.1.0.6: not ready; not ready"},
		},
		"one that terminates is not used while another is ready": {
			slice("a", ep("10.1.0.5").on("here"), ep("10.1.0.6").on("here").terminating()),
			[]string{"10.1.0.5: ; ", "10.1.0.6: terminating; terminating"},
		},
		"one that terminates and serves is used if none is ready": {
			slice("a", ep("10.1.0.5").on("here").unready(), ep("10.1.0.6").on("here").terminating()),
			[]string{"10.1.0.5: not ready; not ready", "10.1.0.6: ; "},
		},
		"hints for another zone": {
			slice("a", ep("10.1.0.5").on("there").zones("east"), ep("10.1.0.6").on("here").zones("west")),
			[]string{"10.1.0.5: ; not on the node", "10.1.0.6: hinted for another zone; "},
		},
		"hints for another node": {
			slice("a", ep("10.1.0.5").on("here").nodes("here"), ep("10.1.0.6").on("there").nodes("there")),
			[]string{"10.1.0.5: ; ", "10.1.0.6: hinted for another node; not on the node"},
		},
		"the second address of an endpoint": {
			second, []string{"10.1.0.5: ; ", "10.1.0.6: additional address; additional address"},
		},
	}
	for claim, test := range tests {
		store := cluster.NewStore()
		store.Update(func(tx *cluster.Tx) { tx.Put(test.slice) })
		store.View(func(v *cluster.View) {
			key := cluster.Key{Namespace: "shop", Name: "web"}
			var got []string
			for _, e := range Endpoints(v, &theNode, key, http, cluster.IPv4) {
				got = append(got, fmt.Sprintf("%s: %s; %s", e.Addr.Addr(), e.Cluster, e.Local))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: Endpoints of %s (-want +got):\n%s", claim, key, diff)
			}
		})
	}
}

// TestDescribe checks that each frontend of a Service is described.
func TestDescribe(t *testing.T) {
	t.Parallel()
	s := &cluster.Service{
		Key: cluster.Key{Namespace: "shop", Name: "web"}, ClusterIPs: addrs("10.96.0.10"),
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}, {Name: "dns", Protocol: cluster.UDP, Number: 80}},
		Spec: &cluster.ServiceSpec{
			Type: cluster.LoadBalancer, ExternalIPs: addrs("203.0.113.1"), Ingress: ingress("203.0.113.2"), NodePorts: []uint16{30080, 30081},
		},
	}
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) { tx.Put(s) })
	var got []string
	store.View(func(v *cluster.View) {
		for _, f := range Compile(v, &theNode, s.Key).Frontends {
			port, kind, ok := Describe(s, f.Address)
			got = append(got, fmt.Sprintf("%s %s %s %v", f.Address, s.Ports[port].Name, kind, ok))
		}
	})
	slices.Sort(got)
	want := []string{
		"10.96.0.10:80/tcp http ClusterIP true", "10.96.0.10:80/udp dns ClusterIP true",
		"192.0.2.1:30080/tcp http NodePort true", "192.0.2.1:30081/udp dns NodePort true",
		"203.0.113.1:80/tcp http ExternalIP true", "203.0.113.1:80/udp dns ExternalIP true",
		"203.0.113.2:80/tcp http LoadBalancer true", "203.0.113.2:80/udp dns LoadBalancer true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Describe(%s) (-want +got):\n%s", s.Key, diff)
	}
	if port, kind, ok := Describe(s, frontend.Address{Addr: addr("10.96.0.10"), Protocol: frontend.TCP, Port: 81}); ok {
		t.Errorf("Describe(port 81) = %d, %s, want none", port, kind)
	}
}
