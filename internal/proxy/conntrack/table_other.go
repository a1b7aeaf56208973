//go:build !linux

package conntrack

import "errors"

var errNotLinux = errors.New("connection tracking is Linux's")

func openTable() (table, error) { return nil, errNotLinux }
