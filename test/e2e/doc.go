// Package e2e runs Portolan against a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager, built from their modules and run
// on loopback. Nothing is installed, and nothing outlives the tests.
//
// The scenario files are replayed through the API, and the real program goes
// through bad times: an API server that stops, forgets, refuses or stands
// still, connections that stall or break, storms of changes, missing rules. The
// tests of this package share a control plane, one after another. Those of packages
// admission, alloc and endpointslices have control planes of their own, and run
// beside them: Go starts as many packages at once as there are processors, in the
// order of their names.
//
// The programs are built once, in about seven minutes, and kept in the user's
// cache directory; "go run ./cmd/controlplane -prepare" does only that. The
// tests then take four to five minutes on two cores:
//
//	go test -race ./...
package e2e
