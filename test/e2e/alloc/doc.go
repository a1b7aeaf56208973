// Package alloc holds no code. Its tests compare the Services that package
// internal/kube/simulate/alloc completes or refuses with those of a real API server.
package alloc
