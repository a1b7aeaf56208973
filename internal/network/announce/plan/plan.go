// Package plan compiles the model into the nodes that announce the address of each load balancer, the first of
// which owns it (Kubernetes, "Service: type LoadBalancer"; KEP-1860, ipMode; KEP-1669, terminating endpoints).
//
//	cluster.View ──► node.go:     which nodes may announce
//	                 service.go:  which addresses a Service has, and which nodes have its endpoints
//	                 compiler.go: the candidates for each address
//	                 rank.go:     in which order
//	             ──► Changes
//
// All nodes compile the same from the same model, without speaking to each other: the order of the candidates
// comes from a hash of the address and a node's name (rendezvous hashing; Thaler and Ravishankar, "Using
// name-based mappings to increase hit rates", 1998). When a node comes or goes, only its own addresses move.
package plan

import (
	"net/netip"

	"portolan.dev/portolan/internal/cluster"
)

// Ranks is how many candidates of an address take part in announcing it on a link.
const Ranks = 3

// Address is who announces an address.
type Address struct {
	// Ranked are the names of the best candidates, the owner first, at most Ranks. There are none if no node can
	// serve all Services of the address. If the address is on a link of the node that is compiled for, and a candidate
	// has an address there too, these are those that do: the nodes of other racks can't answer on the link.
	Ranked []string
	// Mine reports whether the node that is compiled for is a candidate, of whatever rank: where routers spread
	// packets over several nodes, all candidates announce the address.
	Mine bool
	// Unshown: the address is on a link of the node that is compiled for, and no candidate has an address there, as far
	// as the status of its Node says. The best candidates may not be on the link.
	Unshown bool
}

// Changes are addresses that have others than before.
type Changes struct {
	Put    map[netip.Addr]Address
	Delete []netip.Addr
}

// Config configures a Compiler.
type Config struct {
	// Node is the name of the node that is compiled for.
	Node string
	// NodeSelector are labels of the nodes that announce addresses; all if there are none.
	NodeSelector map[string]string
	// Ours reports whether the addresses of a Service are announced; nil is all.
	Ours func(*cluster.Service) bool
}
