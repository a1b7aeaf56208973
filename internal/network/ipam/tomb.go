package ipam

import (
	"container/list"
	"iter"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// tomb is a record that was released, and whose file holds its addresses back after a restart.
type tomb struct {
	id        attach.ID
	addresses []netip.Addr
	released  time.Time
}

// tombs are tombstones in the order of their times.
type tombs struct {
	order *list.List // of tomb
	byID  map[attach.ID]*list.Element
}

func newTombs() tombs { return tombs{order: list.New(), byID: make(map[attach.ID]*list.Element)} }

// insert inserts a tombstone that is newer than all others.
func (t *tombs) insert(one tomb) {
	t.remove(one.id)
	t.byID[one.id] = t.order.PushBack(one)
}

func (t *tombs) remove(id attach.ID) {
	if e := t.byID[id]; e != nil {
		t.order.Remove(e)
		delete(t.byID, id)
	}
}

// of returns the addresses that were released last under an ID.
func (t *tombs) of(id attach.ID) []netip.Addr {
	if e := t.byID[id]; e != nil {
		if one, ok := e.Value.(tomb); ok {
			return one.addresses
		}
	}
	return nil
}

func (t *tombs) oldest() (one tomb, ok bool) {
	if e := t.order.Front(); e != nil {
		one, ok = e.Value.(tomb)
	}
	return one, ok
}

// all returns the tombstones, the oldest first.
func (t *tombs) all() iter.Seq[tomb] {
	return func(yield func(tomb) bool) {
		for e := t.order.Front(); e != nil; e = e.Next() {
			if one, ok := e.Value.(tomb); ok && !yield(one) {
				return
			}
		}
	}
}
