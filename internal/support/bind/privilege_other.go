//go:build !linux

package bind

// Privileged calls bind.
func Privileged(bind func() error) error { return bind() }
