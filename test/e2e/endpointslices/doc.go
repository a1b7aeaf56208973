// Package endpointslices holds no code; its tests compare the EndpointSlices that
// are made in memory, and those of "portolan controller slices", with those of
// Kubernetes' own controller, through the same random events.
package endpointslices
