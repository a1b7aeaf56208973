// Package conformance runs the conformance suite of the Gateway API (sigs.k8s.io/gateway-api/conformance) against
// `portolan gateway`.
package conformance
