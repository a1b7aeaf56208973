//go:build !linux

package netns

import (
	"errors"
	"net/netip"
	"os"
)

// errPlatform is the error on other systems.
var errPlatform = errors.New("network namespaces are Linux's")

// Namespace is a network namespace, of which other systems have none.
type Namespace struct{}

// Open returns an error.
func Open(string) (*Namespace, error) { return nil, errPlatform }

// Name is empty.
func (*Namespace) Name() string { return "" }

// File returns nil.
func (*Namespace) File() *os.File { return nil }

// Close does nothing.
func (*Namespace) Close() error { return nil }

// IsOwn returns an error.
func (*Namespace) IsOwn() (bool, error) { return false, errPlatform }

// Do runs f if the namespace is nil.
func (n *Namespace) Do(f func() error) error {
	if n == nil {
		return f()
	}
	return errPlatform
}

// With returns an error.
func With(netip.Addr) ([]*Namespace, error) { return nil, errPlatform }
