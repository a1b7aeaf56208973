// Package nodes makes a small cluster of network namespaces for tests and benchmarks:
// a server's node, two nodes with a Pod each, and an outside network with an upstream
// server. The nodes have the NAT rules that kube-proxy makes for the cluster's DNS
// Service.
//
// This process alone holds the namespaces: they have no names, and processes in them
// die with it. The package needs Linux, root and nft; the programs that look names up
// need gcc and musl-gcc (Debian: musl-tools).
package nodes
