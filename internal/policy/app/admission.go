package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/cni/bridge"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/internal/policy/cni/device"
	"portolan.dev/portolan/internal/policy/plan"
)

// admissions are the attachments of the node's Pods, and what the plugin waits for.
type admissions struct {
	queueMu sync.Mutex
	queue   []*request    // guarded by queueMu
	wake    chan struct{} // has an element if queue has

	attached map[cluster.Key]map[attach.ID]placed
	// absent are attachments that have no Pod in the model, and since when.
	absent map[attach.ID]time.Time
	// ending are goroutines that end attachments.
	ending sync.WaitGroup
	// bridges are those with their settings that were warned of.
	bridges map[string]struct{}
	// waiting are Pods that are not judged by their policies yet.
	waiting []*request
}

// placed is an attachment, and what the rules of its Pod need of it.
type placed struct {
	cni.Attachment
	local plan.Local
}

// request is about an attachment that begins, or some that ended.
type request struct {
	attachment cni.Attachment
	ended      []cni.Attachment // if there are any, attachment is none
	ctx        context.Context
	done       chan error // has room for the answer
}

func (r *request) isRelease() bool { return len(r.ended) > 0 }

func newAdmissions() admissions {
	return admissions{
		wake: make(chan struct{}, 1), attached: make(map[cluster.Key]map[attach.ID]placed),
		absent: make(map[attach.ID]time.Time), bridges: make(map[string]struct{}),
	}
}

// Admit returns when the kernel judges the packets of a Pod by its policies.
func (w *worker) Admit(ctx context.Context, a cni.Attachment) error {
	return w.ask(ctx, &request{attachment: a})
}

// Release says that the addresses are not the Pods' any more. When it returns they are nobody's, and what
// others still send to the Pods is not taken for what they may send to the next ones.
func (w *worker) Release(ctx context.Context, ended []cni.Attachment) error {
	err := w.ask(ctx, &request{ended: ended})
	if w.flows == nil {
		return err
	}
	var addrs []netip.Addr
	for i := range ended {
		addrs = append(addrs, ended[i].Addresses...)
	}
	return errors.Join(err, forgetError(w.flows.Forget(addrs))) // the next Pod is to get none of them in any case
}

// forgetError describes an error of deleting flows.
func forgetError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("delete the flows of Pods that ended: %w", err)
}

// forgetEnded deletes the flows of Pods that ended while no agent was there.
func (w *worker) forgetEnded() error {
	if w.flows == nil {
		return nil
	}
	w.mu.RLock()
	ranges := w.compiler.Ranges()
	w.mu.RUnlock()
	return forgetError(w.flows.ForgetFunc(func(addr netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) }) &&
			!w.isPod(addr) && !w.isHost(addr)
	}))
}

// Check returns nil if the kernel judges the packets of a Pod by its policies.
func (w *worker) Check(_ context.Context, a cni.Attachment) error {
	if err := w.programmer.Err(); err != nil {
		return err
	}
	if !w.knows(&a) {
		return fmt.Errorf("the kernel has no rules of pod %s for its addresses", podOf(&a))
	}
	return nil
}

// ask has the worker's goroutine do what a request says, and returns the result.
func (w *worker) ask(ctx context.Context, r *request) error {
	r.ctx, r.done = ctx, make(chan error, 1)
	w.queueMu.Lock()
	w.queue = append(w.queue, r)
	w.queueMu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	if err := w.programmer.Err(); err != nil {
		return err
	}
	if r.isRelease() {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errNotSeen, context.Cause(ctx))
}

// takeAll takes all requests: one transaction is for all. Those for which nobody waits any more are
// forgotten.
func (w *worker) takeAll() {
	w.waiting = slices.DeleteFunc(w.waiting, func(r *request) bool { return r.ctx.Err() != nil })
	w.queueMu.Lock()
	all := w.queue
	w.queue = nil
	w.queueMu.Unlock()
	for _, r := range all {
		for i := range r.ended {
			w.detach(&r.ended[i])
		}
		if !r.isRelease() {
			w.attach(r.attachment)
		}
	}
	w.waiting = append(w.waiting, all...)
}

// attach gives a Pod the addresses of an attachment.
func (w *worker) attach(a cni.Attachment) {
	key := podOf(&a)
	if w.attached[key] == nil {
		w.attached[key] = make(map[attach.ID]placed)
	}
	w.attached[key][a.ID] = placed{a, w.local(&a)}
	w.setLocal(key)
	w.warnOfBridges(a.Addresses)
}

// local returns what a Pod is attached to. If its device is not known, that its packets have its addresses
// as their source is not checked.
func (w *worker) local(a *cni.Attachment) plan.Local {
	l := plan.Local{Addrs: a.Addresses}
	if a.Device != 0 {
		l.Devices = []uint32{a.Device}
		return l
	}
	index, err := device.Of(a.Devices, a.Addresses)
	if err != nil {
		w.cfg.Log.Warn("the device of a Pod is not known: it can send packets with addresses of others",
			"pod", a.Pod(), "err", err)
	}
	if index != 0 {
		l.Devices = []uint32{index}
	}
	return l
}

// warnOfBridges logs, once for each, which bridges connect a Pod with others without their policies.
func (w *worker) warnOfBridges(addrs []netip.Addr) {
	for _, addr := range addrs {
		device, setting, err := bridge.Past(addr)
		if err != nil {
			w.cfg.Log.Debug("it is not known whether a Pod is behind a bridge", "err", err)
		}
		if _, known := w.bridges[device+setting]; known || device == "" {
			continue
		}
		w.bridges[device+setting] = struct{}{}
		w.cfg.Log.Warn("a bridge connects Pods of this node past netfilter: policies do not apply to packets between them",
			"bridge", device, "cure", bridge.Cure([]string{setting}))
	}
}

// attachRecorded attaches what was attached before this process began.
func (w *worker) attachRecorded() {
	if w.registry == nil {
		return
	}
	for _, a := range w.registry.All() {
		w.attach(a)
	}
}

// detach takes them away.
func (w *worker) detach(a *cni.Attachment) {
	key := podOf(a)
	delete(w.attached[key], a.ID)
	delete(w.absent, a.ID)
	w.setLocal(key)
}

// setLocal tells the compiler of a Pod's attachments.
func (w *worker) setLocal(key cluster.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.attached[key]) == 0 {
		delete(w.attached, key)
		w.compiler.ForgetLocal(key)
		return
	}
	var all plan.Local
	for _, a := range w.attached[key] {
		all.Addrs, all.Devices = append(all.Addrs, a.local.Addrs...), append(all.Devices, a.local.Devices...)
	}
	w.compiler.SetLocal(key, all)
}

// answer answers the requests that the kernel has the rules for.
func (w *worker) answer() {
	left := w.waiting[:0]
	for _, r := range w.waiting {
		switch {
		case r.ctx.Err() != nil: // nobody waits any more
		case r.isRelease() || w.knows(&r.attachment):
			r.done <- nil
		default:
			left = append(left, r)
		}
	}
	clear(w.waiting[len(left):])
	w.waiting = left
}

// refuse answers all requests that wait with an error.
func (w *worker) refuse(err error) {
	for _, r := range w.waiting {
		r.done <- err
	}
	w.waiting = nil
}

// knows reports whether the kernel's rules for the addresses are those of the Pod's own policies, of the
// model that was compiled last.
func (w *worker) knows(a *cni.Attachment) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.compiler.Admits(podOf(a), a.UID, a.Addresses)
}

func podOf(a *cni.Attachment) cluster.Key { return cluster.Key{Namespace: a.Namespace, Name: a.Name} }
