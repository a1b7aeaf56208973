// Package cyclonus runs the test cases that cyclonus (github.com/mattfenwick/cyclonus) generates for
// NetworkPolicies against the whole agent, with real packets between 9 Pods of a node: each Pod connects to
// all, with TCP and UDP, IPv4 and IPv6. What passes must be what policy/semantics allows, and what the
// matcher of cyclonus allows.
//
// SCTP is declared by the Pods, for the policies that name it, and not probed. The Pods are probed by their
// addresses; Services are no part of this.
//
//	EVERY=1 go test ./cyclonus -v -timeout 30m
package cyclonus
