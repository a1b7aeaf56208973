// Package parallel spreads work over the processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each does something for each number below n, on all processors, and returns
// when all is done. What is done for one must not wait for another.
func Each(n int, do func(i int)) {
	EachBy(runtime.GOMAXPROCS(0), n, func(_, i int) { do(i) })
}

// EachBy is Each by so many workers, and tells which of them, from 0, does what:
// each does one thing at a time. The first runs in the goroutine of the caller. To do
// something must not panic: others would go on.
func EachBy(workers, n int, do func(worker, i int)) {
	var next atomic.Int64
	work := func(worker int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(worker, i)
		}
	}
	var others sync.WaitGroup
	for worker := 1; worker < min(workers, n); worker++ {
		others.Go(func() { work(worker) })
	}
	work(0)
	others.Wait()
}
