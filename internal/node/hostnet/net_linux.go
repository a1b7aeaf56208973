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

// Net is what is installed. Its methods may be called by any goroutine.
type Net struct {
	log     *slog.Logger
	repairs atomic.Uint64

	mu     sync.Mutex // guards what follows
	device *device
	table  *table
	closed bool
	err    error // of the last look
}

// Install installs the addresses, in the network namespace of the process. It
// needs CAP_NET_ADMIN. The addresses can be listened on when it returns; packets
// for a cluster DNS IP come only after Divert.
func Install(cfg Config) (*Net, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	id := strings.ToLower(rand.Text()[:8])
	n := &Net{log: cfg.Log, device: newDevice(cfg, id), table: newTable(cfg, id)}
	if err := n.device.install(); err != nil {
		n.device.remove()
		return nil, withCure(fmt.Errorf("addresses: %w", err))
	}
	if n.device.tun == nil {
		n.log.Warn("the addresses are on a device that stays if the agent is killed; the next agent takes it over", "device", n.device.name, "err", n.device.why)
	} else {
		n.log.Info("the addresses are on a device that goes with the agent", "device", n.device.name)
	}
	return n, nil
}

// Divert installs the table: from now on, packets for the addresses come here,
// even if rules of NAT lead elsewhere. Call it when the addresses are listened
// on, and not twice.
func (n *Net) Divert() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.table.install(); err != nil {
		n.table.remove()
		return withCure(fmt.Errorf("nftables: %w", err))
	}
	if n.table.plain {
		n.log.Warn("the table of nftables stays if the agent is killed; the next agent replaces it", "table", n.table.name, "err", n.table.why)
	} else {
		n.log.Info("the table of nftables goes with the agent", "table", n.table.name)
	}
	return nil
}

// Undivert lets queries for a cluster DNS IP go where kube-proxy's rules lead from
// now on. Those that came may still be answered, until Close. Without a table it
// does nothing.
func (n *Net) Undivert() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.release()
}

// blind is what is logged when nothing tells of changes.
var blind = "changes of the device are seen only every " + CheckEvery.String()

// Run repairs what somebody removes or changes, until ctx is done, and returns
// nil. What can't be repaired it tries again, and says so once.
func (n *Net) Run(ctx context.Context) error {
	events := make(chan struct{}, 1)
	w, err := newWatch(&n.device.index, events)
	if err != nil {
		n.log.Warn(blind, "err", err)
	} else {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.run(); ctx.Err() == nil {
				n.log.Warn(blind, "err", err)
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
		if n.look() && !rest(ctx) {
			return nil
		}
	}
}

// rest waits for RepairEvery, or gives false when ctx is done.
func rest(ctx context.Context) bool {
	t := time.NewTimer(RepairEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// look repairs what is missing, and tells whether anything was.
func (n *Net) look() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	missing, err := n.device.mend()
	more, tableErr := n.table.mend()
	missing, err = append(missing, more...), withCure(both(err, tableErr))
	switch {
	case err != nil && (n.err == nil || n.err.Error() != err.Error()):
		n.log.Error("the node's network can't be repaired, trying again", "missing", strings.Join(missing, ", "), "err", err)
	case err == nil && len(missing) > 0:
		n.repairs.Add(1)
		n.log.Warn("somebody changed the node's network, repaired", "missing", strings.Join(missing, ", "))
	}
	n.err = err
	return len(missing) > 0
}

// Repairs is how often something was missing and is there again.
func (n *Net) Repairs() uint64 { return n.repairs.Load() }

// Healthy gives nil if all was there, or there again, at the last look.
func (n *Net) Healthy() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Device is the name of the device with the addresses.
func (n *Net) Device() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.device.name
}

// Close removes the table, then the addresses; what another agent took over
// stays.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	return both(n.table.remove(), n.device.remove())
}

// withCure says what to do about an error that has a known cure.
func withCure(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (the agent needs the capability NET_ADMIN, and the node's network: hostNetwork in its Pod)", err)
	case errors.Is(err, errNoIPv6):
		return fmt.Errorf("%w (IPv6 is disabled on this node: leave IPv6 addresses out, or enable it: sysctl net.ipv6.conf.default.disable_ipv6=0)", err)
	case errors.Is(err, errNoNftables):
		return fmt.Errorf("%w (the kernel needs the modules nf_tables, with family inet, and nft_ct)", err)
	}
	return err
}

// both gives one error of two, in one line; nil where both are.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b)
}
