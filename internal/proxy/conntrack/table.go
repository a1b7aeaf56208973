package conntrack

import (
	"errors"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// kernelTable is the table in the kernel. It is for one goroutine.
type kernelTable struct{ *ctnetlink.Table }

func openTable() (table, error) {
	t, err := ctnetlink.Open()
	if err != nil {
		return nil, err
	}
	return kernelTable{t}, nil
}

// clean reads the entries that the filter leaves, and then deletes the stale ones.
func (t kernelTable) clean(s scope, all targets) (deleted int, err error) {
	if s.protocol == frontend.TCP && !picksUpTCP() {
		return 0, nil
	}
	var stale []ctnetlink.Identity
	err = t.Each(filter(s, all.common()), func(found *ctnetlink.Entry) {
		if e := entryOf(found); scopeOf(e.destination) == s && all.stale(&e) {
			stale = append(stale, found.Identity())
		}
	})
	if err != nil && !errors.Is(err, ctnetlink.ErrInterrupted) {
		return 0, err
	}
	deleted, failure := t.Delete(s.family, stale)
	if failure != nil {
		err = failure
	}
	return deleted, err
}

// filter is of the entries that may be stale.
func filter(s scope, c common) ctnetlink.Filter {
	return ctnetlink.Filter{
		Family: s.family, Protocol: uint8(s.protocol), Destination: c.addr, DestinationPort: c.port, Translated: c.translated,
	}
}

func entryOf(found *ctnetlink.Entry) entry {
	to := found.Original.Destination
	return entry{
		destination: frontend.Address{Addr: to.Addr(), Protocol: frontend.Protocol(found.Original.Protocol), Port: to.Port()},
		replies:     found.Reply.Source, zone: found.Zone,
	}
}
