package forwarding

import (
	"math/rand/v2"
	"slices"
)

// The trace has traceQueries queries for traceNames names with a Zipf distribution. In
// the middle, each of scanNames other names is queried once.
const (
	traceNames   = 200_000
	traceQueries = 1_000_000
	scanNames    = 100_000
)

// trace is a sequence of client queries.
type trace struct {
	queries, scan int
	law           *zipf
	random        *rand.Rand
}

// newTrace returns the trace, which is always the same.
func newTrace() *trace {
	const seed = 1949
	return &trace{traceQueries, scanNames, newZipf(traceNames), rand.New(rand.NewPCG(seed, seed))}
}

// zipf selects names by Zipf's law with exponent 1: the n-th name n times less often
// than the first.
type zipf struct{ sums []float64 }

func newZipf(names int) *zipf {
	z := &zipf{make([]float64, names)}
	sum := 0.
	for i := range z.sums {
		sum += 1 / float64(i+1)
		z.sums[i] = sum
	}
	return z
}

func (z *zipf) choose(random *rand.Rand) uint32 {
	n, _ := slices.BinarySearch(z.sums, random.Float64()*z.sums[len(z.sums)-1])
	return uint32(min(n, len(z.sums)-1))
}

// tally counts uses and hits of a store.
type tally struct{ queries, hits int }

func (t *tally) count(hit bool) {
	t.queries++
	if hit {
		t.hits++
	}
}

func (t tally) rate() float64 { return float64(t.hits) / float64(max(1, t.queries)) }

// ledger has separate counts for the parts of a trace.
type ledger struct{ before, during, after tally }

// all returns the counts of the whole trace.
func (l *ledger) all() tally {
	var sum tally
	for _, t := range []tally{l.before, l.during, l.after} {
		sum.queries += t.queries
		sum.hits += t.hits
	}
	return sum
}

// replay runs a trace against a store.
func replay(t *trace, to store) (l ledger, err error) {
	half := t.queries / 2
	byLaw := func() uint32 { return t.law.choose(t.random) }
	next := uint32(len(t.law.sums))
	scanned := func() uint32 { next++; return next }
	for _, leg := range []struct {
		queries int
		name    func() uint32
		count   *tally
	}{{half, byLaw, &l.before}, {t.scan, scanned, &l.during}, {t.queries - half, byLaw, &l.after}} {
		for range leg.queries {
			hit, err := to.use(leg.name())
			if err != nil {
				return l, err
			}
			leg.count.count(hit)
		}
	}
	return l, nil
}
