//go:build !linux

package hostnet

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("the node's network can be set up on Linux only")

// Net is not supported on this system.
type Net struct{}

// Install returns an error.
func Install(Config) (*Net, error) { return nil, errNotLinux }

// Divert returns an error.
func (n *Net) Divert() error { return errNotLinux }

// Undivert does nothing.
func (n *Net) Undivert() error { return nil }

// Run returns an error.
func (n *Net) Run(context.Context) error { return errNotLinux }

// Repairs returns 0.
func (n *Net) Repairs() uint64 { return 0 }

// Healthy returns an error.
func (n *Net) Healthy() error { return errNotLinux }

// Device returns "".
func (n *Net) Device() string { return "" }

// Close does nothing.
func (n *Net) Close() error { return nil }

// Remove returns an error.
func Remove(string) ([]string, error) { return nil, errNotLinux }
