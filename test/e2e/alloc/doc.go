// Package alloc holds no code; its tests compare what internal/kube/simulate/alloc fills in, and
// refuses, with what a real API server does.
package alloc
