//go:build !linux

package ctnetlink

import "errors"

// Table is the table in the kernel.
type Table struct{}

var errNotLinux = errors.New("connection tracking is Linux's")

// Open fails: there is no such table.
func Open() (*Table, error) { return nil, errNotLinux }

// Close does nothing.
func (*Table) Close() error { return nil }

// Each fails.
func (*Table) Each(Filter, func(*Entry)) error { return errNotLinux }

// Delete fails.
func (*Table) Delete(Family, []Identity) (int, error) { return 0, errNotLinux }

// Identity returns nil.
func (*Entry) Identity() Identity { return nil }
