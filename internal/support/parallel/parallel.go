// Package parallel spreads work over the processors.
//
// It is not golang.org/x/sync/errgroup: that starts a goroutine for each item, which
// costs as much as one of the 10,000 or more small items that callers have, and does not
// number its workers, which callers need to give each its own scratch memory.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do for each i from 0 to n-1 on GOMAXPROCS goroutines, and returns when all
// calls have returned. A call must not wait for another one.
func Each(n int, do func(i int)) {
	EachBy(runtime.GOMAXPROCS(0), n, func(_, i int) { do(i) })
}

// EachBy is like Each with the given number of workers, and passes do the number of the
// worker, from 0. A worker makes one call at a time. Worker 0 runs in the goroutine of
// the caller. A call must not panic, because the other workers would go on.
func EachBy(workers, n int, do func(worker, i int)) {
	var next atomic.Int64
	work := func(worker int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(worker, i)
		}
	}
	var wg sync.WaitGroup
	for worker := 1; worker < min(workers, n); worker++ {
		wg.Go(func() { work(worker) })
	}
	work(0)
	wg.Wait()
}
