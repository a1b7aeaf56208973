// Package dnsconfig holds no code. Its tests compare internal/pod/dnsconfig with
// Kubernetes' own code: the kubelet's, which writes a Pod's resolv.conf, and the API
// server's, which validates Pods. They need no cluster. Building them takes about two
// minutes.
package dnsconfig
