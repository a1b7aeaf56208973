// Package apiobject holds no code. Its tests compare packages apiobject and
// serviceenv with the objects that a real API server returns and with the
// variables that a real kubelet sets in containers.
package apiobject
