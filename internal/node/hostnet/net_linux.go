package hostnet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Net is the installed network configuration. Its methods are safe for concurrent use.
type Net struct {
	log     *slog.Logger
	repairs atomic.Uint64

	mu     sync.Mutex // guards the fields below
	device *device
	table  *table
	closed bool
	err    error // of the last check
}

// Install installs the addresses in the network namespace of the process. It needs
// CAP_NET_ADMIN. When it returns the process can listen on them; packets for a cluster DNS
// IP arrive only after Divert.
func Install(cfg Config) (*Net, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	id := strings.ToLower(rand.Text()[:8])
	n := &Net{log: cfg.Log, device: newDevice(cfg, id), table: newTable(cfg, id)}
	if err := n.device.install(); err != nil {
		_ = n.device.remove() // the first error matters
		return nil, withHint(fmt.Errorf("addresses: %w", err))
	}
	if n.device.tun == nil {
		n.log.Warn("the device with the addresses remains if the agent is killed; the next agent takes it over",
			"device", n.device.name, "err", n.device.why)
	} else {
		n.log.Info("the kernel removes the device with the addresses when the agent ends", "device", n.device.name)
	}
	return n, nil
}

// Divert installs the table, which delivers packets for the addresses to the agent despite
// NAT rules. Call it once, after listening on the addresses.
func (n *Net) Divert() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.table.install(); err != nil {
		_ = n.table.remove() // the first error matters
		return withHint(fmt.Errorf("nftables: %w", err))
	}
	if n.table.plain {
		n.log.Warn("the nftables table remains if the agent is killed; the next agent replaces it", "table", n.table.name,
			"err", n.table.why)
	} else {
		n.log.Info("the kernel removes the nftables table when the agent ends", "table", n.table.name)
	}
	return nil
}

// Undivert returns queries for a cluster DNS IP to kube-proxy's rules. Queries that have
// arrived can still be answered until Close. Without a table it does nothing.
func (n *Net) Undivert() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.release()
}

// noEvents is logged when the kernel's events about the device are not available. It
// ends with CheckEvery.
const noEvents = "changes of the device are detected only every 5s"

// Run repairs what others remove or change, until ctx is done, and returns nil. It logs a
// failed repair once, and retries it.
func (n *Net) Run(ctx context.Context) error {
	events := make(chan struct{}, 1)
	w, err := newWatch(&n.device.index, events)
	if err != nil {
		n.log.Warn(noEvents, "err", err)
	} else {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.run(); ctx.Err() == nil {
				n.log.Warn(noEvents, "err", err)
			}
		}()
		defer func() { w.close(); <-done }()
	}
	tick := time.NewTicker(CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-events:
		}
		if n.check() && !pause(ctx) {
			return nil
		}
	}
}

// pause waits for RepairEvery, and reports whether ctx is not done.
func pause(ctx context.Context) bool {
	t := time.NewTimer(RepairEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// check repairs what is missing, and reports whether anything was.
func (n *Net) check() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	missing, err := n.device.repair()
	more, tableErr := n.table.repair()
	missing, err = append(missing, more...), withHint(joinErrors(err, tableErr))
	switch {
	case err != nil && (n.err == nil || n.err.Error() != err.Error()):
		n.log.Error("repairing the node's network failed, retrying", "missing", strings.Join(missing, ", "), "err", err)
	case err == nil && len(missing) > 0:
		n.repairs.Add(1)
		n.log.Warn("the node's network was changed, and is repaired", "missing", strings.Join(missing, ", "))
	}
	n.err = err
	return len(missing) > 0
}

// Repairs returns the number of successful repairs.
func (n *Net) Repairs() uint64 { return n.repairs.Load() }

// Healthy returns the error of the last check, or nil if nothing was missing after it.
func (n *Net) Healthy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Device returns the name of the device with the addresses.
func (n *Net) Device() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.device.name
}

// Close removes the table, then the addresses, unless another agent took them over.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	return joinErrors(n.table.remove(), n.device.remove())
}

// withHint adds a hint to an error whose cure is known.
func withHint(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (the agent needs the capability NET_ADMIN, and the node's network: hostNetwork in its Pod)",
			err)
	case errors.Is(err, errNoIPv6):
		return fmt.Errorf("%w (IPv6 is disabled on this node: leave IPv6 addresses out, or enable it: sysctl "+
			"net.ipv6.conf.default.disable_ipv6=0)",
			err)
	case errors.Is(err, errNoNftables):
		return fmt.Errorf("%w (the kernel needs the modules nf_tables, with family inet, and nft_ct)", err)
	}
	return err
}

// joinErrors joins two errors in one line; it returns nil if both are nil.
func joinErrors(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b)
}
