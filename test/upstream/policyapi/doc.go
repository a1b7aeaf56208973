// Package policyapi runs the conformance tests of ClusterNetworkPolicy (sigs.k8s.io/network-policy-api,
// conformance) on a cluster of package cluster whose nodes have Portolan's policies. Its Pods run cmd/agnhost.
package policyapi
