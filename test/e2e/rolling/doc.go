// Package rolling replaces the Pods of a server behind kube-proxy, as a rolling restart
// does, and counts the lookups that are lost.
//
// Real are the API server, the controller that writes EndpointSlices, kube-proxy with
// nftables, conntrack, and the server. The test is the kubelet: it runs Pods in network
// namespaces, probes them at the intervals that their manifest has, and reports and ends
// them in the order of Pod termination. Its own network namespace is the node's.
package rolling
