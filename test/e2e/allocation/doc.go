// Package allocation holds no code. Its tests run "portolan controller nodes" and "portolan controller loadbalancer",
// with the rights that the chart gives them, against a real API server.
package allocation
