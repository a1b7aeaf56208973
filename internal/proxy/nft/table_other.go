//go:build !linux

package nft

import (
	"context"
	"errors"

	"portolan.dev/portolan/internal/proxy/frontend"
)

var errNotLinux = errors.New("service proxies need nftables, which only Linux has")

// Table stands for the tables of Linux.
type Table struct{}

// New returns a Table whose methods fail.
func New(Config) *Table { return &Table{} }

// Configure does nothing.
func (*Table) Configure(Config) {}

// Sync fails.
func (*Table) Sync(*frontend.State) (int, error) { return 0, errNotLinux }

// Apply fails.
func (*Table) Apply(*frontend.Changes) (int, error) { return 0, errNotLinux }

// Watch does nothing.
func (*Table) Watch(context.Context, chan<- Notice) error { return nil }

// Close does nothing.
func (*Table) Close() error { return nil }

// Remove fails.
func Remove(string) ([]string, error) { return nil, errNotLinux }

// Connections fails.
func Connections(Config) (map[frontend.Address]uint64, error) { return nil, errNotLinux }

// KubeProxy stands for what kube-proxy has in the kernel of Linux.
type KubeProxy struct{}

// FindKubeProxy fails.
func FindKubeProxy() (*KubeProxy, error) { return nil, errNotLinux }

// List returns nothing.
func (*KubeProxy) List() []string { return nil }

// Remove fails.
func (*KubeProxy) Remove() error { return errNotLinux }

// Lookup fails.
func Lookup(string, frontend.Address, *frontend.Frontend) (Contents, error) {
	return Contents{}, errNotLinux
}

// Trace fails.
func Trace(context.Context, TraceConfig) error { return errNotLinux }
