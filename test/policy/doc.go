// Package policy runs the agent of a node with the part policy, the whole program, between Pods of the
// node that start, talk and end. The node is a network namespace, Pods are others, the test is the
// container runtime, and the API server is package apitest.
package policy
