//go:build !linux

package hostnet

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("the node's network can be set up on Linux only")

// Net is what is installed, which is nothing here.
type Net struct{}

// Install says that this is not Linux.
func Install(Config) (*Net, error) { return nil, errNotLinux }

// Divert says that this is not Linux.
func (n *Net) Divert() error { return errNotLinux }

// Undivert does nothing.
func (n *Net) Undivert() error { return nil }

// Run says that this is not Linux.
func (n *Net) Run(context.Context) error { return errNotLinux }

// Repairs gives 0.
func (n *Net) Repairs() uint64 { return 0 }

// Healthy says that this is not Linux.
func (n *Net) Healthy() error { return errNotLinux }

// Device gives none.
func (n *Net) Device() string { return "" }

// Close does nothing.
func (n *Net) Close() error { return nil }
