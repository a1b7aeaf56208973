package respond

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// octets are a place in memory that a Worker writes.
type octets struct {
	of       string
	from, to uintptr
}

// TestWorkersShareNoCacheLine checks that the memory that different workers write is on
// different pairs of cache lines, so that processors never wait for each other.
func TestWorkersShareNoCacheLine(t *testing.T) {
	const seats, pair = 9, uintptr(128)
	r, err := New(Config{Stats: NewStats([]dnsname.Name{dnsname.MustParse("cluster.local")}, seats)})
	if err != nil {
		t.Fatal(err)
	}
	var workers []*Worker
	var all []octets
	for seat := range seats {
		w := r.NewWorker(seat)
		workers = append(workers, w)
		worker, shard := uintptr(unsafe.Pointer(w)), uintptr(unsafe.Pointer(w.counts))
		requests := uintptr(unsafe.Pointer(unsafe.SliceData(w.counts.requests)))
		all = append(all,
			octets{fmt.Sprintf("worker %d", seat), worker, worker + unsafe.Sizeof(*w)},
			octets{fmt.Sprintf("shard %d", seat), shard, shard + unsafe.Sizeof(*w.counts)},
			octets{fmt.Sprintf("requests %d", seat), requests, requests + 8*uintptr(len(w.counts.requests))},
		)
	}
	slices.SortFunc(all, func(a, b octets) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
	for i, o := range all[1:] {
		if before := all[i]; (before.to-1)/pair >= o.from/pair && before.of[len(before.of)-1] != o.of[len(o.of)-1] {
			t.Errorf("%s and %s share a pair of cache lines", before.of, o.of)
		}
	}
	runtime.KeepAlive(workers)
}
