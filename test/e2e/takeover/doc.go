// Package takeover replaces kube-proxy on a node by Portolan's service proxy, and back, while
// clients use a Service, and counts what they lose.
//
// Real are the API server, kube-proxy, the service proxy, nftables and connection tracking. The
// test's own network namespace is the node's; one Pod serves, and another is a client.
package takeover
