//go:build !linux

package daemon

// bindsPrivileged calls bind.
func bindsPrivileged(bind func() error) error { return bind() }
