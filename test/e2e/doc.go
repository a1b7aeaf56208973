// Package e2e runs Portolan against a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager, built from their modules and run
// on loopback. Nothing is installed, and nothing outlives the tests.
//
// The tests replay the scenario files through the API, and run the real program
// through failures: an API server that stops, loses its watches' history, refuses or
// hangs, connections that stall or break, storms of changes, missing RBAC rules. The
// tests of this package share one control plane and run one after another. Packages
// admission, alloc and endpointslices have control planes of their own; go test runs
// as many packages at once as there are processors.
//
// The control plane is built once, in about seven minutes, and stays in the user's
// cache directory; "go run ./cmd/controlplane -prepare" does only that. The
// tests then take four to five minutes on two cores:
//
//	go test ./...
package e2e
