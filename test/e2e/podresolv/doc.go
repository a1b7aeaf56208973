// Package dnsconfig holds no code; its tests compare internal/pod/dnsconfig with
// Kubernetes' own code: the kubelet's that forms a Pod's resolv.conf, and the
// API server's that validates Pods. They need no cluster; to build them takes
// about two minutes.
package podresolv
