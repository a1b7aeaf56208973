// Package e2e runs Portolan against a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager, built from their modules.
package e2e
