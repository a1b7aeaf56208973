package view

import (
	"cmp"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Overview is the first view.
type Overview struct {
	Process Process  `json:"process"`
	Sources []Source `json:"sources"`
	// Agents are the nodes.
	Agents    []Agent        `json:"agents"`
	Upstreams []Upstream     `json:"upstreams"`
	Counts    map[string]int `json:"counts"`
	// Reads is what the process reads: process or cluster.
	Reads   string    `json:"reads"`
	NotRead []NotRead `json:"notRead,omitempty"`
	More    More      `json:"more,omitempty"`
}

// Process is the process that serves the page.
type Process struct {
	Version string `json:"version"`
	Command string `json:"command"`
	Parts   []Part `json:"parts"`
}

// Part is a part of the process.
type Part struct {
	Name    string   `json:"name"`
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing"`
	Remarks []string `json:"remarks"`
}

// Source is how current the objects of a kind are.
type Source struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
	// State is one of the values below.
	State            string  `json:"state"`
	StalenessSeconds float64 `json:"stalenessSeconds"`
	// Why is why it is not current; empty if that is not known.
	Why string `json:"why,omitempty"`
}

// The states of a Source.
const (
	Current = "current"
	Stale   = "stale"   // the API has been lost, or the objects are from a snapshot
	Loading = "loading" // not all objects are read yet
	Absent  = "absent"  // it cannot be read
)

// Agent is what is known of a node.
type Agent struct {
	Node      string       `json:"node"`
	Addresses []netip.Addr `json:"addresses"`
	Zone      string       `json:"zone,omitempty"`
	Ready     bool         `json:"ready"`
	// Unknown: whether it is ready is not read, or manifests do not say it.
	Unknown  bool           `json:"unknown,omitempty"`
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// Encrypted: its end of tunnels has a key.
	Encrypted bool `json:"encrypted"`
	// Pods is how many run there; nil if that is not read.
	Pods *int `json:"pods,omitempty"`
}

// Upstream is a server that names outside the cluster are asked of.
type Upstream struct {
	Route          string  `json:"route"`
	Address        string  `json:"address"`
	Up             bool    `json:"up"`
	LatencySeconds float64 `json:"latencySeconds"`
	Failures       uint64  `json:"failures"`
}

// counted are the kinds that the overview counts, and their keys.
var counted = []struct {
	kind cluster.Kind
	key  string
}{
	{cluster.KindNamespace, "namespaces"},
	{cluster.KindService, "services"},
	{cluster.KindEndpointSlice, "endpointSlices"},
	{cluster.KindPod, "pods"},
	{cluster.KindNode, "nodes"},
	{cluster.KindNetworkPolicy, "networkPolicies"},
	{cluster.KindClusterNetworkPolicy, "clusterNetworkPolicies"},
	{cluster.KindIngress, "ingresses"},
	{cluster.KindGateway, "gateways"},
	{cluster.KindHTTPRoute, "httpRoutes"},
	{cluster.KindGRPCRoute, "grpcRoutes"},
}

// has reports whether a kind is among the sources. Manifests are loaded with all kinds, of which a server decodes those
// it needs.
func (o *Overview) has(k cluster.Kind) bool {
	return len(o.Sources) == 0 || slices.ContainsFunc(o.Sources, func(s Source) bool { return s.Kind == k.String() })
}

// Overview adds to an Overview what the model has.
func (m *Model) Overview(o *Overview) {
	o.Counts = make(map[string]int)
	for _, c := range counted {
		if m.View.Loaded(c.kind) && o.has(c.kind) {
			o.Counts[c.key] = m.View.Len(c.kind)
			continue
		}
		o.NotRead = append(o.NotRead, m.notRead(c.kind))
	}
	pods := make(map[string]int)
	for p := range m.View.Pods() {
		if !p.Finished {
			pods[p.Node]++
		}
	}
	podsOf := func(node string) *int {
		if !m.reads(cluster.KindPod) {
			return nil
		}
		return new(pods[node])
	}
	agents := []Agent{}
	for n := range m.View.Nodes() {
		agents = append(agents, Agent{
			Node: n.Name, Addresses: append([]netip.Addr{}, n.Addresses...), Zone: n.Zone, Ready: n.Ready,
			Unknown: m.unknown(n.Ready), PodCIDRs: n.PodCIDRs, Encrypted: n.WireGuardKey != [32]byte{}, Pods: podsOf(n.Name),
		})
	}
	slices.SortFunc(agents, func(a, b Agent) int { return cmp.Compare(a.Node, b.Node) })
	o.Agents = cut(&o.More, "agents", agents, mostNodes)
	o.NotRead = append(o.NotRead, m.partly("some fields", cluster.KindService, cluster.KindPod, cluster.KindNode)...)
}
