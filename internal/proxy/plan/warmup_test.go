package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
)

// warmer is a cluster with a Service, as a Warmup follows it.
type warmer struct {
	t        *testing.T
	store    *cluster.Store
	key      cluster.Key
	compiler *Compiler
	node     Node
	now      time.Time
}

// newWarmer returns one whose Service has slow start as its annotation and the usual duration say.
func newWarmer(t *testing.T, annotation string, usual time.Duration, endpoints ...endpointOf) *warmer {
	t.Helper()
	store, key := storeOf(func(s *cluster.Service) { s.Spec.SlowStart = annotation }, list(slice("a", endpoints...)))
	w := &warmer{t: t, store: store, key: key, compiler: NewCompiler(Node{}), node: theNode, now: time.Unix(1000, 0)}
	w.node.Warmup = NewWarmup(usual)
	store.View(func(v *cluster.View) {
		w.node.Warmup.LookAtAll(v, w.now)
		w.compiler.All(v, w.node)
	})
	return w
}

// put replaces the endpoints.
func (w *warmer) put(endpoints ...endpointOf) {
	w.store.Update(func(tx *cluster.Tx) { tx.Put(slice("a", endpoints...)) })
	w.store.View(func(v *cluster.View) {
		keys := slices.Values([]cluster.Key{w.key})
		w.node.Warmup.Look(v, keys, w.now)
		w.compiler.Apply(v, keys)
	})
}

// pass lets time pass, step by step.
func (w *warmer) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		wait := end.Sub(w.now)
		if next := w.node.Warmup.Next(w.now); next > 0 {
			wait = min(wait, next)
		}
		w.now = w.now.Add(wait)
		stepped := w.node.Warmup.Advance(w.now)
		w.store.View(func(v *cluster.View) { w.compiler.Apply(v, slices.Values(stepped)) })
	}
}

// want checks the shares, and that compiling everything anew yields the same.
func (w *warmer) want(when, shares string) {
	w.t.Helper()
	line := textOf(w.compiler.Service(w.key))[0]
	_, got, _ := strings.Cut(line, " shares ")
	if got = strings.TrimSuffix(got, " []"); got != shares {
		w.t.Errorf("%s: shares %q, want %q", when, got, shares)
	}
	w.store.View(func(v *cluster.View) {
		if anew := textOf(Compile(v, &w.node, w.key))[0]; anew != line {
			w.t.Errorf("%s: %s, and anew %s", when, line, anew)
		}
	})
}

// TestSlowStart checks how many slots endpoints have while they warm up.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	one, two, three := ep("10.1.0.1"), ep("10.1.0.2"), ep("10.1.0.3")
	w := newWarmer(t, "10s", 0, one, two)
	w.want("at the start all are old", "")
	w.put(one, two, three)
	w.want("a new one", "[10 10 1]")
	w.pass(999 * time.Millisecond)
	w.want("before its first step", "[10 10 1]")
	w.pass(time.Millisecond)
	w.want("after a tenth", "[5 5 1]")
	w.put(one, two.unready(), three)
	w.want("another one goes", "[5 1]")
	w.pass(4 * time.Second)
	w.want("after half", "[5 3]")
	w.put(one, two, three)
	w.want("the other is back, and new", "[10 1 6]")
	w.pass(5 * time.Second)
	w.want("the third has its whole weight", "[5 3 5]")
	w.pass(5 * time.Second)
	w.want("all have", "")
	if next := w.node.Warmup.Next(w.now); next != 0 {
		t.Errorf("the next step is due in %s, and nothing warms up", next)
	}
}

// TestNoSlowStart checks which endpoints have their whole weight at once.
func TestNoSlowStart(t *testing.T) {
	t.Parallel()
	one, two := ep("10.1.0.1"), ep("10.1.0.2")
	w := newWarmer(t, "10s", 0, one.unready())
	w.put(one)
	w.want("the first one", "")
	w.put(two)
	w.want("the only one", "")
	w = newWarmer(t, "0s", time.Minute, one)
	w.put(one, two)
	w.want("a Service that has none", "")
	w = newWarmer(t, "soon", 0, one)
	w.put(one, two)
	w.want("an annotation that is no duration, and none usual", "")
	w = newWarmer(t, "", time.Minute, one)
	w.put(one, two)
	w.want("the usual one", "[10 1]")
	w.store.Update(func(tx *cluster.Tx) { tx.Delete(cluster.KindService, w.key) })
	w.store.View(func(v *cluster.View) { w.node.Warmup.LookAtAll(v, w.now) })
	if next := w.node.Warmup.Next(w.now); next != 0 {
		t.Errorf("the next step of a deleted Service is due in %s", next)
	}
}
