//go:build !linux

package daemon

// bindPrivileged calls bind.
func bindPrivileged(bind func() error) error { return bind() }
