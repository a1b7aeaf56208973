//go:build !linux

package nft

import (
	"context"
	"errors"
	"net/netip"

	"portolan.dev/portolan/internal/policy/ruleset"
)

var errNotLinux = errors.New("nftables needs Linux")

// Table needs Linux.
type Table struct{}

// New fails.
func New(Config) (*Table, error) { return nil, errNotLinux }

// Close does nothing.
func (*Table) Close() error { return nil }

// Sync fails.
func (*Table) Sync(ruleset.Ruleset) error { return errNotLinux }

// Apply fails.
func (*Table) Apply(ruleset.Ruleset, *ruleset.Delta) error { return errNotLinux }

// ChangeResolved fails.
func (*Table) ChangeResolved([]ruleset.Resolution) error { return errNotLinux }

// Resolved fails.
func (*Table) Resolved(ruleset.Ruleset) (map[string][]netip.Addr, error) { return nil, errNotLinux }

// Assume does nothing.
func (*Table) Assume(ruleset.Ruleset) {}

// Cut fails.
func (*Table) Cut([]ruleset.Flow) error { return errNotLinux }

// Uncut fails.
func (*Table) Uncut([]ruleset.Flow) error { return errNotLinux }

// Watch fails.
func (*Table) Watch(context.Context, chan<- Notice) error { return errNotLinux }

// Counters fails.
func (*Table) Counters(...string) ([]Counter, error) { return nil, errNotLinux }

// Cleanup removes nothing.
func Cleanup(string) (bool, error) { return false, errNotLinux }

// Exists fails.
func Exists(string) (bool, error) { return false, errNotLinux }

// Judge fails.
func Judge(string, ruleset.Direction, ruleset.Packet) (ruleset.Verdict, error) {
	return ruleset.Verdict{}, errNotLinux
}
