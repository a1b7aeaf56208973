// Package e2e runs Portolan against a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager, built from their modules and run
// on loopback. Nothing is installed, and nothing outlives the tests.
//
// The scenario files are replayed through the API, and the real program goes
// through bad times: an API server that stops, forgets, refuses or stands
// still, connections that stall or break, storms of changes, missing rules.
// EndpointSlices that are made in memory, and those of the controller of slices,
// are compared with those of Kubernetes' own controller.
//
// The programs are built once, in about seven minutes, and kept in the user's
// cache directory; "go run ./cmd/controlplane -prepare" does only that. The
// tests then take about three minutes, those of EndpointSlices one and a half more:
//
//	go test -race ./...
package e2e
