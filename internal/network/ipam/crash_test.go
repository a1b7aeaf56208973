package ipam_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
)

// errCrash is returned by a store from the moment on at which its process ended.
var errCrash = errors.New("crash")

// world is a Pool, and what a test knows of it.
type world struct {
	t    *testing.T
	pool *ipam.Pool
	dir  string
	// crash is how many steps the process has: each write and removal is one before and one after it.
	crash   int
	crashed bool

	now      time.Time
	ranges   []netip.Prefix
	live     map[attach.ID][]netip.Addr // by Assign
	released map[netip.Addr]time.Time   // the last time
	last     map[attach.ID][]netip.Addr // what an attachment released last
	// forgotten are addresses of which the Pool need not know when they were released.
	forgotten map[netip.Addr]bool
}

const reuse = time.Minute

// sets are ranges that a node may have: small, so that they are soon exhausted.
var sets = [][]netip.Prefix{
	ranges("10.0.0.0/29", "2001:db8::/64"), ranges("10.0.0.0/29", "2001:db8::/125"),
	ranges("10.0.0.0/28"), ranges("2001:db8::/125"), ranges("10.0.0.8/30", "2001:db8::/126"), nil,
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, dir: t.TempDir(), crash: -1, now: time.Unix(1<<30, 0), ranges: sets[0],
		live: make(map[attach.ID][]netip.Addr), released: make(map[netip.Addr]time.Time), last: make(map[attach.ID][]netip.Addr),
		forgotten: make(map[netip.Addr]bool),
	}
	w.open()
	return w
}

// step reports whether the process has ended.
func (w *world) step() bool {
	if w.crash == 0 {
		w.crashed = true
	}
	w.crash--
	return w.crashed
}

// open starts the process again.
func (w *world) open() {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	disk := ipam.Methods(w.dir, "", log)
	w.crash, w.crashed = -1, false
	guard := func(do func() error) error {
		if w.step() {
			return errCrash
		}
		if err := do(); err != nil {
			return err
		}
		if w.step() {
			return errCrash
		}
		return nil
	}
	pool, err := ipam.OpenStore(
		ipam.Config{Ranges: w.ranges, Reuse: reuse, Now: func() time.Time { return w.now }, Log: log},
		ipam.StoreMethods{
			Load:   disk.Load,
			Write:  func(e ipam.Entry) error { return guard(func() error { return disk.Write(e) }) },
			Remove: func(id attach.ID) error { return guard(func() error { return disk.Remove(id) }) },
			Settle: func(id attach.ID) error { return guard(func() error { return disk.Settle(id) }) },
		},
	)
	must(w.t, err)
	w.pool = pool
}

// run takes steps that octets say.
func (w *world) run(steps []byte) {
	w.t.Helper()
	for len(steps) >= 2 {
		verb, arg := steps[0], int(steps[1])
		w.now = w.now.Add(time.Millisecond)
		steps = steps[2:]
		switch verb % 8 {
		case 0, 1, 2:
			w.assign(id(arg % 12))
		case 3, 4:
			w.release(id(arg % 12))
		case 5:
			w.now = w.now.Add(time.Duration(arg) * time.Second)
		case 6:
			w.ranges = sets[arg%len(sets)]
			must(w.t, w.pool.SetRanges(w.ranges))
		case 7:
			if w.crash = arg % 6; arg%6 == 5 {
				w.open()
			}
		}
		if w.crashed {
			w.open()
		}
		w.check()
	}
}

func (w *world) assign(id attach.ID) {
	w.t.Helper()
	before, had := w.live[id]
	r, err := w.pool.Assign(ipam.Record{ID: id})
	if w.crashed {
		w.open()
		var ok bool
		if r, ok = w.pool.Get(id); !ok {
			if had {
				w.t.Fatalf("a crash of Assign(%s) lost its addresses %v", id, before)
			}
			return
		}
		err = nil
	}
	if err != nil {
		w.refused(id, before, err)
		return
	}
	for _, addr := range before {
		if !slices.Contains(r.Addresses, addr) {
			w.t.Fatalf("Assign(%s) = %v, which had %v", id, r.Addresses, before)
		}
	}
	for _, addr := range r.Addresses {
		if slices.Contains(before, addr) {
			continue
		}
		if !slices.ContainsFunc(w.ranges, func(r netip.Prefix) bool { return r.Contains(addr) }) {
			w.t.Fatalf("Assign(%s) = %s, which is not in %v", id, addr, w.ranges)
		}
		w.held(id, addr)
		for other := range w.last {
			if other != id {
				w.last[other] = slices.DeleteFunc(w.last[other], func(a netip.Addr) bool { return a == addr })
			}
		}
	}
	for _, addr := range w.last[id] { // another range's, which the file of the attachment no longer holds back
		if !had && !slices.Contains(r.Addresses, addr) {
			w.forgotten[addr] = true
		}
	}
	w.live[id] = r.Addresses
}

// held checks an address that an attachment got: if it was released just now there is no other, and it was
// released first.
func (w *world) held(id attach.ID, addr netip.Addr) {
	w.t.Helper()
	at, ok := w.released[addr]
	if !ok || w.forgotten[addr] || w.now.Sub(at) >= reuse || slices.Contains(w.last[id], addr) {
		return
	}
	for _, other := range w.free(addr.Is4()) {
		if released, ok := w.released[other]; (!ok || released.Before(at)) && !w.forgotten[other] {
			w.t.Fatalf("Assign(%s) = %s, released %s ago, while %s is free", id, addr, w.now.Sub(at), other)
		}
	}
}

// refused checks an error of Assign.
func (w *world) refused(id attach.ID, before []netip.Addr, err error) {
	w.t.Helper()
	if errors.Is(err, ipam.ErrNoRanges) && len(w.ranges) == 0 && len(before) == 0 {
		return
	}
	full, ok := errors.AsType[*ipam.ExhaustedError](err)
	if !ok {
		w.t.Fatalf("Assign(%s): %v", id, err)
	}
	if free := w.free(full.Range.Addr().Is4()); len(free) > 0 {
		w.t.Fatalf("Assign(%s): %v, while %v are free", id, err, free)
	}
}

// free returns addresses that no Pod has, of a range; of a large one the first few.
func (w *world) free(v4 bool) (free []netip.Addr) {
	for _, r := range w.ranges {
		if r.Addr().Is4() != v4 {
			continue
		}
		for addr := r.Addr().Next(); r.Contains(addr) && len(free) < 100; addr = addr.Next() {
			if v4 && !r.Contains(addr.Next()) {
				break
			}
			if !w.used(addr) {
				free = append(free, addr)
			}
		}
	}
	return free
}

func (w *world) used(addr netip.Addr) bool {
	for _, addrs := range w.live {
		if slices.Contains(addrs, addr) {
			return true
		}
	}
	return false
}

func (w *world) release(id attach.ID) {
	w.t.Helper()
	err := w.pool.Release(id)
	if w.crashed {
		w.open()
		if _, ok := w.pool.Get(id); ok {
			return
		}
	} else if err != nil {
		w.t.Fatalf("Release(%s): %v", id, err)
	}
	addrs, ok := w.live[id]
	if !ok {
		return
	}
	for _, addr := range addrs {
		w.released[addr], w.forgotten[addr] = w.now, false
	}
	w.last[id] = slices.Clone(addrs)
	delete(w.live, id)
}

// check compares the Pool with what the test knows.
func (w *world) check() {
	w.t.Helper()
	owners := make(map[netip.Addr]attach.ID)
	all := w.pool.All()
	for _, r := range all {
		if !slices.Equal(r.Addresses, w.live[r.ID]) {
			w.t.Fatalf("%s has %v, want %v", r.ID, r.Addresses, w.live[r.ID])
		}
		for _, addr := range r.Addresses {
			if other, ok := owners[addr]; ok {
				w.t.Fatalf("%s and %s have %s", r.ID, other, addr)
			}
			owners[addr] = r.ID
		}
	}
	if len(all) != len(w.live) {
		w.t.Fatalf("%d records, want %d", len(all), len(w.live))
	}
	for _, s := range w.pool.Stats() {
		used := 0
		for addr := range owners {
			if s.Range.Contains(addr) && addr != s.Range.Addr() {
				used++
			}
		}
		if free := w.free(s.Range.Addr().Is4()); s.Size < 20 && (s.Used > used || int(s.Size) != s.Used+len(free)) {
			w.t.Fatalf("Stats = %+v, want %d used, %d free", s, used, len(free))
		}
	}
}

// FuzzPool: whatever happens, an address is one Pod's, and none is lost.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 3, 1, 0, 3, 7, 0, 0, 4, 7, 1, 3, 2, 5, 61, 0, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		newWorld(t).run(steps[:min(len(steps), 400)])
	})
}

// TestRandom is FuzzPool with steps by chance.
func TestRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 24))
		steps := make([]byte, 600)
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			newWorld(t).run(steps)
		})
	}
}
