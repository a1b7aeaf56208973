//go:build !linux

package route

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("routes need Linux")

// Router needs Linux.
type Router struct{}

// New fails.
func New(Config) (*Router, error) { return nil, errNotLinux }

// Close does nothing.
func (*Router) Close() {}

// Host fails.
func (*Router) Host() (Host, error) { return Host{}, errNotLinux }

// HostChanged receives nothing.
func (*Router) HostChanged() <-chan struct{} { return nil }

// Sync fails.
func (*Router) Sync(*Plan) error { return errNotLinux }

// Apply fails.
func (*Router) Apply(*Changes) error { return errNotLinux }

// Run fails.
func (*Router) Run(context.Context) error { return errNotLinux }

// Remove fails.
func Remove() ([]string, error) { return nil, errNotLinux }
