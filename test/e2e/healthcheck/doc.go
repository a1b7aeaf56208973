// Package healthcheck holds no code. Its tests compare internal/proxy/healthcheck with kube-proxy's
// own code, octet for octet: both serve the same Services through the same history. They need no
// cluster.
package healthcheck
