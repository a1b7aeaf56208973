package nftables

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/knftables"
)

// observed has what each proxier was told.
var observed = make(map[*Proxier]*objects)

// made has the proxiers by where their rules are.
var made = make(map[*knftables.Fake]*Proxier)

type objects struct {
	services map[types.NamespacedName]*v1.Service
	slices   map[types.NamespacedName]*discovery.EndpointSlice
}

func (proxier *Proxier) objects() *objects {
	if observed[proxier] == nil {
		observed[proxier] = &objects{
			make(map[types.NamespacedName]*v1.Service), make(map[types.NamespacedName]*discovery.EndpointSlice),
		}
	}
	return observed[proxier]
}

// observeService is called first by OnServiceUpdate.
func (proxier *Proxier) observeService(old, service *v1.Service) {
	o := proxier.objects()
	if old != nil {
		delete(o.services, types.NamespacedName{Namespace: old.Namespace, Name: old.Name})
	}
	if service != nil {
		o.services[types.NamespacedName{Namespace: service.Namespace, Name: service.Name}] = service.DeepCopy()
	}
}

// observeSlice is called first by the handlers of EndpointSlices.
func (proxier *Proxier) observeSlice(s *discovery.EndpointSlice, removed bool) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	if removed {
		delete(proxier.objects().slices, key)
		return
	}
	proxier.objects().slices[key] = s.DeepCopy()
}

// NewFakeProxier returns what the function with this name returned that was renamed.
func NewFakeProxier(family v1.IPFamily) (*knftables.Fake, *Proxier) {
	nft, proxier := renamedNewFakeProxier(family)
	made[nft] = proxier
	return nft, proxier
}

// runPacketFlowTests writes a record of a table of packets, and tests it. Rules that no proxier
// made are of tests of the tests, which have no Services.
func runPacketFlowTests(t *testing.T, line string, nft *knftables.Fake, nodeIPs []string, tests []packetFlowTest) {
	if made[nft] != nil {
		recordFlows(t, made[nft], nft, nodeIPs, tests)
	}
	renamedRunPacketFlowTests(t, line, nft, nodeIPs, tests)
}

func recordFlows(t *testing.T, proxier *Proxier, nft *knftables.Fake, nodeIPs []string, tests []packetFlowTest) {
	t.Helper()
	type flow struct {
		Name, Source, Protocol, Destination string
		Port                                int
		Output                              string
		Masquerade                          bool
	}
	record := struct {
		Test                   string
		Services               []*v1.Service
		Slices                 []*discovery.EndpointSlice
		NodeIPs, NodePortIPs   []string
		MasqueradeAll          bool
		LocalCIDR, ServiceCIDR string
		Flows                  []flow
	}{Test: t.Name(), NodeIPs: nodeIPs, MasqueradeAll: proxier.masqueradeAll, ServiceCIDR: proxier.serviceCIDRs}
	for _, s := range proxier.objects().services {
		record.Services = append(record.Services, s)
	}
	for _, s := range proxier.objects().slices {
		record.Slices = append(record.Slices, s)
	}
	if proxier.localDetector.IsImplemented() {
		record.LocalCIDR = proxier.localDetector.IfLocalNFT()[2] // ip saddr CIDR
	}
	if record.NodePortIPs = nodeIPs; !proxier.nodePortAddresses.MatchAll() {
		record.NodePortIPs = nil
		for _, e := range nft.Table.Sets["nodeport-ips"].Elements {
			record.NodePortIPs = append(record.NodePortIPs, e.Key...)
		}
		slices.Sort(record.NodePortIPs)
	}
	for _, c := range tests {
		record.Flows = append(record.Flows, flow{c.name, c.sourceIP, string(c.protocol), c.destIP, c.destPort, c.output, c.masq})
	}
	write(t, record)
}

// write adds a record to the file.
func write(t *testing.T, record any) {
	t.Helper()
	f, err := os.OpenFile(os.Getenv("PORTOLAN_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = json.NewEncoder(f).Encode(record)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
