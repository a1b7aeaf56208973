package app

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/cni"
)

// lostTime is for how long the model has no Pod of an attachment before its end is taken for lost. It is longer
// than a Pod that starts may wait for its object.
const lostTime = time.Minute

// endLost ends attachments whose DEL did not come and whose address another Pod has by now, which a Pod network
// can give to one of another node: this agent would go on to take it for that of the Pod before. An attachment
// whose address no other Pod has stays, since its sandbox may be there still, as after a forced deletion of its
// Pod: without it, the packets of an address outside the Pod ranges would be nobody's, and pass.
func (w *worker) endLost(ctx context.Context) {
	lost := w.lost(time.Now())
	if w.registry == nil || len(lost) == 0 {
		return
	}
	w.ending.Go(func() { // this goroutine answers the Registry
		for _, a := range lost {
			w.cfg.Log.Info("a Pod has ended without being released: another one has its address", "pod", a.Pod(),
				"addresses", a.Addresses)
			if err := w.registry.Release(ctx, a.ID); err != nil && ctx.Err() == nil {
				w.cfg.Log.Warn("an attachment that has ended is not released", "pod", a.Pod(), "err", err)
			}
		}
	})
}

// lost returns the attachments that have no Pod in the model for lostTime, and an address of one that it has.
func (w *worker) lost(now time.Time) (lost []cni.Attachment) {
	w.cfg.Store.View(func(v *cluster.View) {
		if v.Freshness(cluster.KindPod) != cluster.Live {
			clear(w.absent)
			return
		}
		lost = w.absentFor(v, now)
		if len(lost) == 0 {
			return
		}
		taken := make(map[netip.Addr]bool)
		for _, a := range lost {
			for _, addr := range a.Addresses {
				taken[addr] = false
			}
		}
		for p := range v.Pods() {
			if p.Finished || p.Deleting || p.Spec != nil && p.Spec.HostNetwork {
				continue
			}
			for _, addr := range p.IPs {
				if _, ok := taken[addr]; ok {
					taken[addr] = true
				}
			}
		}
		lost = slices.DeleteFunc(lost, func(a cni.Attachment) bool {
			return !slices.ContainsFunc(a.Addresses, func(addr netip.Addr) bool { return taken[addr] })
		})
	})
	return lost
}

// absentFor returns the attachments that have no Pod in the model for lostTime, and notes since when others
// have none.
func (w *worker) absentFor(v *cluster.View, now time.Time) (all []cni.Attachment) {
	for key, attachments := range w.attached {
		p := v.Pod(key)
		for id, a := range attachments {
			if p != nil && p.Node == w.cfg.Node && (a.UID == "" || a.UID == p.UID || a.UID == p.StaticUID) {
				delete(w.absent, id)
				continue
			}
			since, known := w.absent[id]
			if !known {
				w.absent[id] = now
			} else if now.Sub(since) >= lostTime {
				all = append(all, a.Attachment)
			}
		}
	}
	return all
}
