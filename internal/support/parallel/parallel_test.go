package parallel_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"portolan.dev/portolan/internal/support/parallel"
)

// TestEachBy verifies that do is called once for each number, that no worker makes two
// calls at a time, and that all calls have returned in the end.
func TestEachBy(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 7} {
		for _, n := range []int{0, 1, 2, 100} {
			t.Run(fmt.Sprintf("workers=%d/n=%d", workers, n), func(t *testing.T) {
				t.Parallel()
				done := make([]int, n)
				busy := make([]atomic.Bool, workers)
				parallel.EachBy(workers, n, func(worker, i int) {
					if busy[worker].Swap(true) {
						t.Error("a worker makes two calls at a time")
					}
					done[i]++
					busy[worker].Store(false)
				})
				if slices.ContainsFunc(done, func(times int) bool { return times != 1 }) {
					t.Errorf("EachBy(%d, %d) calls do %v times for each number, want once", workers, n, done)
				}
			})
		}
	}
}
