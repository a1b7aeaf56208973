//go:build !linux

package announce

import (
	"context"
	"errors"
	"net/netip"
)

// host is the host's interfaces.
type host struct{}

func (host) interfaces() ([]iface, error) { return nil, nil }

func (host) watch(ctx context.Context, _ chan<- struct{}) error {
	<-ctx.Done()
	return nil
}

func (host) open(iface, *counters, chan<- received) (port, error) {
	return nil, errors.New("addresses are announced on Linux only")
}

func (host) formerNodes() formerNodes { return noFormerNodes{} }

// noFormerNodes is for hosts that announce nothing.
type noFormerNodes struct{}

// Set does nothing.
func (noFormerNodes) Set(map[netip.Addr]netip.Addr) error { return nil }

// Close does nothing.
func (noFormerNodes) Close() {}
