// Package alloc holds no code; its tests compare what internal/alloc fills in, and
// refuses, with what a real API server does.
package alloc
