//go:build !linux

package daemon

// dropImage does nothing.
func dropImage() {}
