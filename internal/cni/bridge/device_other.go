//go:build !linux

package bridge

import "net/netip"

func deviceOf(netip.Addr) (string, error) { return "", nil }
