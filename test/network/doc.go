// Package network runs the Pod network of several nodes with real packets. Each node is a network namespace with an
// agent, a process of its own; so is each Pod. Two nodes share a link, and the third is behind a router that knows
// no Pods:
//
//	node-1 192.0.2.1 ──┐
//	                   ├── router ── node-3 198.51.100.3
//	node-2 192.0.2.2 ──┘
//
// For the addresses of load balancers, three nodes and a client are on one link, and the agents announce only.
package network
