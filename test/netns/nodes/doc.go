// Package nodes makes a small cluster of network namespaces for tests and
// measurements: a server's node, two nodes with a Pod each, and the world outside
// with an upstream server. The nodes have the rules of NAT that kube-proxy has for
// the cluster's DNS Service.
//
// All is held by this process alone: its namespaces have no names, and what runs
// in them is killed with it. It needs Linux, root and the command nft; programs
// that look names up need gcc and musl-gcc (Debian: musl-tools).
package nodes
