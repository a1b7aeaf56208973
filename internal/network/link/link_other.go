//go:build !linux

package link

import "errors"

// Create, Up, Delete, Check and List return an error that wraps errors.ErrUnsupported: there are veth devices on
// Linux only.

// Create is for Linux.
func Create(Config, Pod) (int, error) { return 0, errors.ErrUnsupported }

// Up is for Linux.
func Up(Config, Pod) error { return errors.ErrUnsupported }

// Refresh is for Linux.
func Refresh(Config, Pod) error { return errors.ErrUnsupported }

// Delete is for Linux.
func Delete(string) error { return errors.ErrUnsupported }

// Check is for Linux.
func Check(Config, Pod) error { return errors.ErrUnsupported }

// Prune is for Linux.
func Prune() error { return errors.ErrUnsupported }

// List is for Linux.
func List() ([]string, error) { return nil, errors.ErrUnsupported }
