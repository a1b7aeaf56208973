// Package apiobject holds no code; its tests compare packages filled and serviceenv
// with what Kubernetes prints of objects, sets in them, and gives containers.
package filled
