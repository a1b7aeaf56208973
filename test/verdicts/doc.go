// Package verdicts compares what portolan test says of assertions, without a packet, with what packets and requests do
// in random clusters that run in network namespaces (package world).
package verdicts
