// Package endpointslices holds no code. Its tests apply the same random events to
// three controllers and compare their EndpointSlices: package
// internal/kube/endpointslices in memory, "portolan controller slices", and the one
// of Kubernetes.
package endpointslices
