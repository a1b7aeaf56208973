// Package nodens runs the tests of a package in a network namespace of their own, which is that of
// a node: it forwards packets to Pods, and has a route for Services.
package nodens
