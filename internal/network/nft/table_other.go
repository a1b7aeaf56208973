//go:build !linux

package nft

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("nftables needs Linux")

// Table needs Linux.
type Table struct{}

// New returns a Table whose methods fail.
func New(Config) *Table { return new(Table) }

// Close does nothing.
func (*Table) Close() {}

// Watch fails.
func (*Table) Watch(context.Context, chan<- Notice) error { return errNotLinux }

// Restore fails.
func (*Table) Restore([]Owner) error { return errNotLinux }

// AddPorts fails.
func (*Table) AddPorts(string, []Port) error { return errNotLinux }

// CheckPorts fails.
func (*Table) CheckPorts(string, []Port) error { return errNotLinux }

// DeletePorts fails.
func (*Table) DeletePorts(string) error { return errNotLinux }

// Apply fails.
func (*Table) Apply(*RangeChanges) error { return errNotLinux }

// Sync fails.
func (*Table) Sync(Ranges) error { return errNotLinux }

// Cleanup removes nothing.
func Cleanup(string) ([]string, error) { return nil, errNotLinux }
