// Package node runs a node of a cluster in a network namespace of its own: a real kubelet with
// the container runtime of package cri, and a service proxy unless a Pod is.
//
//	bridge of the cluster ── veth ── eth0: the node's addresses
//	                                 kubelet, proxy, Pods with "hostNetwork: true"
//	                                 veth ── eth0 of each other Pod
//
// A node is a process, so that what mounts and what is in the network ends with it. It begins as
// the program that calls Start, which must call Main first.
package node
