package proxyplan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/plan"
)

// table is a table of packets of kube-proxy's tests, with the cluster and the settings that it
// is for; testdata/flows.go writes it.
type table struct {
	Test                   string
	Services               []*corev1.Service
	Slices                 []*discoveryv1.EndpointSlice
	NodeIPs, NodePortIPs   []netip.Addr
	MasqueradeAll          bool
	LocalCIDR, ServiceCIDR string
	Flows                  []struct {
		Name, Source, Protocol, Destination string
		Port                                uint16
		Output                              string
		Masquerade                          bool
	}
}

// packetTables returns the tables of pkg/proxy/nftables/proxier_test.go.
func packetTables(t *testing.T) []table {
	t.Helper()
	return record[table](t, recording{
		pkg: "proxy/nftables", recorder: "flows.go", tests: []string{"proxier_test.go", "helpers_test.go"},
		edits: []edit{
			{"proxier_test.go", "func NewFakeProxier(", "func renamedNewFakeProxier("},
			{"helpers_test.go", "func runPacketFlowTests(", "func renamedRunPacketFlowTests("},
			{
				"proxier.go", "OnServiceUpdate(oldService, service *v1.Service) {\n",
				"OnServiceUpdate(oldService, service *v1.Service) {\n\tproxier.observeService(oldService, service)\n",
			},
			{
				"proxier.go", "if proxier.endpointsChanges.EndpointSliceUpdate(endpointSlice, false)",
				"proxier.observeSlice(endpointSlice, false)\n\tif proxier.endpointsChanges.EndpointSliceUpdate(endpointSlice, false)",
			},
			{
				"proxier.go", "if proxier.endpointsChanges.EndpointSliceUpdate(endpointSlice, true)",
				"proxier.observeSlice(endpointSlice, true)\n\tif proxier.endpointsChanges.EndpointSliceUpdate(endpointSlice, true)",
			},
		},
	})
}

// flows returns what kube-proxy and ours do with the packets of kube-proxy's tests.
func flows(t *testing.T) (all []comparison) {
	t.Helper()
	for _, of := range packetTables(t) {
		evaluator := of.evaluator(t)
		for _, f := range of.Flows {
			protocol := map[string]frontend.Protocol{
				"": frontend.TCP, "TCP": frontend.TCP, "UDP": frontend.UDP, "SCTP": frontend.SCTP,
			}[f.Protocol]
			to := frontend.Address{Addr: netip.MustParseAddr(f.Destination), Protocol: protocol, Port: f.Port}
			v := evaluator.Forward(frontend.Connection{Source: netip.MustParseAddr(f.Source), To: to})
			all = append(all, comparison{of.Test, f.Name, outcome(f.Output, f.Masquerade), outcomeOf(&v)})
		}
	}
	return all
}

// evaluator returns what evaluates packets as the kernel does with our rules for the cluster.
func (of *table) evaluator(t *testing.T) *frontend.Evaluator {
	t.Helper()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, s := range of.Services {
			complete(s)
			service, errs := object.Service(s)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			tx.Put(service)
		}
		for _, s := range of.Slices {
			slice, errs := object.EndpointSlice(s)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			tx.Put(slice)
		}
		tx.Put(&cluster.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix(of.ServiceCIDR)}})
	})
	node := plan.Node{Name: "test-node", NodePorts: of.NodePortIPs, Addresses: of.NodeIPs}
	var state *frontend.State
	store.View(func(v *cluster.View) { state = plan.NewCompiler(node).All(v, node) })
	settings := frontend.Node{Addresses: of.NodeIPs, MasqueradeAll: of.MasqueradeAll}
	if of.LocalCIDR != "" {
		settings.Pods.CIDRs = []netip.Prefix{netip.MustParsePrefix(of.LocalCIDR)}
	}
	return frontend.NewEvaluator(settings, state)
}

// complete sets what the API server sets in each Service.
func complete(s *corev1.Service) {
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if s.Spec.Type == "" {
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
}

// outcome returns what the expectation of a packet says, with sorted endpoints.
func outcome(output string, masquerade bool) string {
	switch output {
	case "":
		return "pass"
	case "REJECT", "DROP":
		return strings.ToLower(output)
	}
	endpoints := strings.Split(output, ", ")
	slices.Sort(endpoints)
	return forwarded(endpoints, masquerade)
}

func forwarded(endpoints []string, masquerade bool) string {
	text := strings.Join(endpoints, ", ")
	if masquerade {
		text += ", masqueraded"
	}
	return text
}

// outcomeOf returns a verdict as outcome does.
func outcomeOf(v *frontend.Verdict) string {
	if v.Action != frontend.DNAT {
		return fmt.Sprint(v.Action)
	}
	return forwarded(texts(v.Endpoints), v.Masquerade != frontend.NotMasqueraded || len(v.Hairpins) > 0)
}
