package app

import (
	"errors"
	"fmt"
	"log/slog"

	"portolan.dev/portolan/internal/network/nft"
	"portolan.dev/portolan/internal/support/ctnetlink"
)

// trackedFlows are the entries of connection tracking of UDP flows to ports of the node. The kernel translates only the
// first packet of a flow by the rules, and a client that goes on sending keeps its entry: it would never reach a Pod
// that has the port from now on, or go on to send to the address of one that has ended. Flows of TCP end with their
// Pod.
type trackedFlows struct{ log *slog.Logger }

func (f trackedFlows) begin(all []nft.Port) {
	f.warn(deleteFlows(all, func(nft.Port, *ctnetlink.Entry) bool { return true }))
}

func (f trackedFlows) end(all []nft.Port) {
	f.warn(deleteFlows(all, func(p nft.Port, e *ctnetlink.Entry) bool { return e.Reply.Source == p.To }))
}

func (f trackedFlows) warn(err error) {
	if err != nil {
		f.log.Warn("clients of UDP ports of the node may go on to send to a Pod that has ended", "err", err)
	}
}

// deleteFlows deletes the flows to ports that are to go.
func deleteFlows(all []nft.Port, goes func(nft.Port, *ctnetlink.Entry) bool) error {
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
		errs = append(errs, deleteFlowsTo(table, p, goes))
	}
	return errors.Join(errs...)
}

// deleteFlowsTo deletes the flows to a port. Old kernels ignore parts of a filter.
func deleteFlowsTo(table *ctnetlink.Table, p nft.Port, goes func(nft.Port, *ctnetlink.Entry) bool) error {
	f := ctnetlink.Filter{
		Family: ctnetlink.IPv4, Protocol: uint8(p.Protocol), Destination: p.HostIP, DestinationPort: p.HostPort,
	}
	if p.To.Addr().Is6() {
		f.Family = ctnetlink.IPv6
	}
	var found []ctnetlink.Identity
	err := table.Each(f, func(e *ctnetlink.Entry) {
		to := e.Original.Destination
		if e.Original.Protocol == f.Protocol && to.Port() == p.HostPort && (!p.HostIP.IsValid() || to.Addr() == p.HostIP) &&
			goes(p, e) {
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
