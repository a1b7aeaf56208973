package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/cni"
	"portolan.dev/portolan/internal/policy/cni/attach"
)

// admissions are the attachments of the node's Pods, and what the plugin waits for.
type admissions struct {
	requests chan *request
	attached map[cluster.Key]map[attach.ID][]netip.Addr
	// waiting are Pods that are not judged by their policies yet.
	waiting []*request
}

// request is about an attachment.
type request struct {
	attachment cni.Attachment
	release    bool
	ctx        context.Context
	done       chan error // has room for the answer
}

func newAdmissions() admissions {
	return admissions{requests: make(chan *request), attached: make(map[cluster.Key]map[attach.ID][]netip.Addr)}
}

// Admit returns when the kernel judges the packets of a Pod by its policies.
func (w *worker) Admit(ctx context.Context, a cni.Attachment) error {
	return w.ask(ctx, &request{attachment: a})
}

// Release says that the addresses are not the Pod's any more.
func (w *worker) Release(ctx context.Context, a cni.Attachment) error {
	return w.ask(ctx, &request{attachment: a, release: true})
}

// Check returns nil if the kernel judges the packets of a Pod by its policies.
func (w *worker) Check(_ context.Context, a cni.Attachment) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, addr := range a.Addresses {
		if key, _ := w.compiler.Owner(addr); key != podOf(&a) {
			return fmt.Errorf("the kernel has no rules of the Pod for %s", addr)
		}
	}
	return nil
}

// ask has the worker's goroutine do what a request says, and returns the result.
func (w *worker) ask(ctx context.Context, r *request) error {
	r.ctx, r.done = ctx, make(chan error, 1)
	select {
	case w.requests <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if err := w.admits(); err != nil {
			return err
		}
		return errors.Join(errNotSeen, context.Cause(ctx))
	}
}

// takeAll takes a request, and those that wait behind it: one transaction is for all.
func (w *worker) takeAll(r *request) {
	for {
		w.take(r)
		select {
		case r = <-w.requests:
		default:
			return
		}
	}
}

func (w *worker) take(r *request) {
	w.waiting = append(w.waiting, r)
	if r.release {
		w.detach(r.attachment)
	} else {
		w.attach(r.attachment)
	}
}

// attach gives a Pod the addresses of an attachment.
func (w *worker) attach(a cni.Attachment) {
	key := podOf(&a)
	if w.attached[key] == nil {
		w.attached[key] = make(map[attach.ID][]netip.Addr)
	}
	w.attached[key][a.ID] = a.Addresses
	w.setLocal(key)
}

// attachRecorded attaches what was attached before this process began.
func (w *worker) attachRecorded() {
	if w.plugin == nil {
		return
	}
	for _, a := range w.plugin.Registry().All() {
		w.attach(a)
	}
}

// detach takes them away.
func (w *worker) detach(a cni.Attachment) {
	key := podOf(&a)
	delete(w.attached[key], a.ID)
	w.setLocal(key)
}

// setLocal tells the compiler of the addresses of a Pod's attachments.
func (w *worker) setLocal(key cluster.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.attached[key]) == 0 {
		delete(w.attached, key)
		w.compiler.ForgetLocal(key)
		return
	}
	w.compiler.SetLocal(key, slices.Concat(slices.Collect(maps.Values(w.attached[key]))...))
}

// answer answers the requests that the kernel has the rules for.
func (w *worker) answer() {
	left := w.waiting[:0]
	for _, r := range w.waiting {
		switch {
		case r.ctx.Err() != nil: // nobody waits any more
		case r.release || w.knows(&r.attachment):
			r.done <- nil
		default:
			left = append(left, r)
		}
	}
	clear(w.waiting[len(left):])
	w.waiting = left
}

// knows reports whether the model has a Pod, by whose labels it is judged. Its UID differs if it is the
// mirror of a static Pod, or another Pod of the name, which is being deleted then.
func (w *worker) knows(a *cni.Attachment) (known bool) {
	w.cfg.Store.View(func(v *cluster.View) {
		p := v.Pod(podOf(a))
		known = p != nil && (a.UID == "" || a.UID == p.UID || !p.Deleting && !p.Finished)
	})
	return known
}

func podOf(a *cni.Attachment) cluster.Key { return cluster.Key{Namespace: a.Namespace, Name: a.Name} }
