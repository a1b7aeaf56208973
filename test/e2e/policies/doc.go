// Package policies compares what policy/semantics decides with two other evaluators: the matcher of
// cyclonus for NetworkPolicies, and the engine of kube-network-policies for these and for
// ClusterNetworkPolicies. Both get the objects of the API; policy/semantics gets what kube/object makes of
// them.
//
//	go test ./policies -questions 1000000 -timeout 60m
package policies
