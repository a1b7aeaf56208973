package app

import (
	"errors"
	"fmt"
	"log/slog"

	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// forgetFlows deletes the entries of connection tracking of UDP flows to ports of the node. The kernel translates only
// the first packet of a flow by the rules, and a client that goes on sending keeps its entry: it would never reach a
// Pod that has the port from now on, or go on to send to the address of one that has ended. Flows of TCP end with
// their Pod.
func forgetFlows(all []nft.Port, log *slog.Logger) {
	if err := deleteFlows(all); err != nil {
		log.Warn("clients of UDP ports of the node may go on to send to a Pod that has ended", "err", err)
	}
}

func deleteFlows(all []nft.Port) error {
	var table *ctnetlink.Table
	var errs []error
	for _, p := range all {
		if p.Protocol != nft.UDP {
			continue
		}
		if table == nil {
			var err error
			if table, err = ctnetlink.Open(); err != nil {
				return fmt.Errorf("connection tracking: %w", err)
			}
			defer table.Close()
		}
		f := ctnetlink.Filter{
			Family: ctnetlink.IPv4, Protocol: uint8(p.Protocol), Destination: p.HostIP, DestinationPort: p.HostPort,
		}
		if p.To.Addr().Is6() {
			f.Family = ctnetlink.IPv6
		}
		errs = append(errs, deleteAll(table, f))
	}
	return errors.Join(errs...)
}

// deleteAll deletes the entries of a filter, of which old kernels ignore parts.
func deleteAll(table *ctnetlink.Table, f ctnetlink.Filter) error {
	var found []ctnetlink.Identity
	err := table.Each(f, func(e *ctnetlink.Entry) {
		to := e.Original.Destination
		if e.Original.Protocol == f.Protocol && to.Port() == f.DestinationPort &&
			(!f.Destination.IsValid() || to.Addr() == f.Destination) {
			found = append(found, e.Identity())
		}
	})
	if err == nil && len(found) > 0 {
		_, err = table.Delete(f.Family, found)
	}
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	return nil
}
