package app

import (
	"context"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/cni"
)

// Admission has the policies of Pods in the kernel for a network in this process, see Config.Linked. Its methods are
// safe for concurrent use.
type Admission struct{ policy *Policy }

// Admission returns what a network in this process asks before it sets a Pod's link up.
func (p *Policy) Admission() *Admission { return &Admission{p} }

// Admit returns nil when the kernel judges all packets of a sandbox with these addresses, behind this device, by the
// policies of its Pod. If ctx is done it returns its cause. The end of a sandbox that was not admitted is not to be
// told.
func (a *Admission) Admit(ctx context.Context, s attach.Sandbox, addrs []netip.Addr, device attach.Device) error {
	began := time.Now()
	registry, err := a.registry(ctx)
	if err == nil {
		err = registry.Admit(ctx, cni.Attachment{
			Sandbox: s, Addresses: addrs, Devices: []string{device.Name}, Device: device.Index,
		})
	}
	a.policy.metrics.asked(attach.Admit, time.Since(began), err)
	return err
}

// Release says that a sandbox has ended; one that is unknown has ended before.
func (a *Admission) Release(ctx context.Context, id attach.ID) error {
	registry, err := a.registry(ctx)
	if err != nil {
		return err
	}
	return registry.Release(ctx, id)
}

// Check returns nil if the kernel judges packets as Admit says.
func (a *Admission) Check(ctx context.Context, s attach.Sandbox, addrs []netip.Addr) error {
	registry, err := a.registry(ctx)
	if err != nil {
		return err
	}
	return registry.Check(ctx, cni.Attachment{Sandbox: s, Addresses: addrs})
}

// Begin says that this process makes the network of the node. Until then the Policy does not program the table: of two
// processes that begin, one has all that the other waits for. It is called once.
func (a *Admission) Begin() { close(a.policy.begun) }

// End says that nothing more is asked. Until then the Policy that is to end works on, so that sandboxes in progress are
// admitted. It is called once.
func (a *Admission) End() { close(a.policy.asked) }

// Ready returns why sandboxes cannot be admitted now, or nil.
func (a *Admission) Ready() error { return a.policy.worker.programmer.Err() }

// registry returns the attachments when this process programs the table.
func (a *Admission) registry(ctx context.Context) (*cni.Registry, error) {
	select {
	case <-a.policy.owned:
		return a.policy.registry, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
