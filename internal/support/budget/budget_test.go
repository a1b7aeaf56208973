package budget_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/support/budget"
)

// TestEviction checks which entries make place for others.
func TestEviction(t *testing.T) {
	a := budget.NewAccount("test", budget.Limits{Total: 4, PerSource: 3})
	var evicted []string
	entries := make(map[string]*budget.Entry)
	enter := func(name, addr string) {
		entries[name] = a.Enter(netip.MustParseAddr(addr), func(reason error) { evicted = append(evicted, name+": "+reason.Error()) })
	}
	for _, name := range []string{"heavy-1", "heavy-2", "heavy-3"} {
		enter(name, "192.0.2.1")
	}
	for _, tt := range []struct{ name, addr, evicts string }{
		{"heavy-4", "192.0.2.1", "heavy-1: no capacity is left for this client"}, // it has its share
		{"light-1", "192.0.2.2", ""},
		{"light-2", "192.0.2.3", "heavy-2: no capacity is left"},
		{"light-3", "192.0.2.4", "heavy-3: no capacity is left"},
		{"light-4", "192.0.2.5", "heavy-4: no capacity is left"}, // all sources have one: the oldest
		{"heavy-5", "192.0.2.1", "light-1: no capacity is left"},
	} {
		evicted = nil
		enter(tt.name, tt.addr)
		var want []string
		if tt.evicts != "" {
			want = []string{tt.evicts}
		}
		if !slices.Equal(evicted, want) {
			t.Errorf("%s evicts %q, want %q", tt.name, evicted, want)
		}
	}
	if _, err := a.TryEnter(netip.MustParseAddr("192.0.2.6"), nil); !errors.Is(err, budget.ErrFull) {
		t.Errorf("TryEnter of a full account: %v, want %v", err, budget.ErrFull)
	}
	for range 2 { // once is enough
		for _, e := range entries {
			e.Leave()
		}
	}
	if got, want := a.Stats(), (budget.Stats{Account: "test", Limit: 4, Full: 5, SourceFull: 1}); got != want {
		t.Errorf("figures %+v, want %+v", got, want)
	}
}

// TestTryEnter checks that it evicts no entry.
func TestTryEnter(t *testing.T) {
	a := budget.NewAccount("test", budget.Limits{Total: 1, PerSource: 1})
	e, err := a.TryEnter(netip.MustParseAddr("192.0.2.1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.TryEnter(netip.MustParseAddr("192.0.2.2"), nil); !errors.Is(err, budget.ErrFull) {
		t.Errorf("a full account: %v, want %v", err, budget.ErrFull)
	}
	e.Leave()
	if _, err := a.TryEnter(netip.MustParseAddr("192.0.2.2"), nil); err != nil {
		t.Errorf("after the entry has left: %v", err)
	}
}

// TestEnterFairly checks that entries end for a source only that has less.
func TestEnterFairly(t *testing.T) {
	t.Parallel()
	a := budget.NewAccount("test", budget.Limits{Total: 4, PerSource: 4})
	ended := make(chan string, 1)
	for i, tt := range []struct {
		addr, evicts string
		refused      bool
	}{
		{addr: "192.0.2.1"}, {addr: "192.0.2.1"}, {addr: "192.0.2.1"}, {addr: "192.0.2.1"},
		{addr: "192.0.2.1", refused: true}, // it has all, and is the one that would have to give way
		{addr: "192.0.2.2", evicts: "0"},
		{addr: "192.0.2.2", evicts: "1"},
		{addr: "192.0.2.2", refused: true}, // both have two
		{addr: "192.0.2.3", evicts: "2"},   // the oldest of those with two
		{addr: "192.0.2.4", evicts: "5"},
		{addr: "192.0.2.5", refused: true}, // all have one
	} {
		_, err := a.EnterFairly(netip.MustParseAddr(tt.addr), func(error) { ended <- strconv.Itoa(i) })
		if (err != nil) != tt.refused || err != nil && !errors.Is(err, budget.ErrFull) && !errors.Is(err, budget.ErrSourceFull) {
			t.Errorf("entry %d of %s: %v, want it refused: %t", i, tt.addr, err, tt.refused)
		}
		if tt.evicts == "" {
			continue
		}
		if got := <-ended; got != tt.evicts {
			t.Errorf("entry %d of %s ended %s, want %s", i, tt.addr, got, tt.evicts)
		}
	}
	if used := a.Stats().Used; used != 4 {
		t.Errorf("%d entries, want 4", used)
	}
}

// TestComplete checks that half of the entries stay until they end by themselves.
func TestComplete(t *testing.T) {
	t.Parallel()
	a := budget.NewAccount("test", budget.Limits{Total: 8, PerSource: 4, Complete: true})
	var ended []string
	enter := func(name, addr string) *budget.Entry {
		return a.Enter(netip.MustParseAddr(addr), func(error) { ended = append(ended, name) })
	}
	first := enter("a1", "192.0.2.1")
	for _, name := range []string{"a2", "a3", "a4", "a5", "a6"} {
		enter(name, "192.0.2.1")
	}
	if want := []string{"a3", "a4"}; !slices.Equal(ended, want) { // a1 and a2 stay
		t.Errorf("ended %q, want %q", ended, want)
	}
	first.Leave() // a5 stays now
	ended = nil
	for i := range 4 {
		enter(strconv.Itoa(i), fmt.Sprintf("192.0.2.%d", 10+i)) // the first two stay
	}
	enter("b", "192.0.2.20")
	enter("c", "192.0.2.21")
	enter("d", "192.0.2.22")
	if want := []string{"a6", "2"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
}

// TestWithin checks that limits follow the memory limit of the process.
func TestWithin(t *testing.T) {
	before := debug.SetMemoryLimit(100 << 20)
	defer debug.SetMemoryLimit(before)
	const cost = 1 << 20
	for share, want := range map[float64]int{0.5: 50, 0.001: 1, 1: 80} {
		if got := budget.Within(share, cost, 80); got != want {
			t.Errorf("Within(%v) = %d, want %d", share, got, want)
		}
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got := budget.Within(0.5, cost, 80); got != 80 {
		t.Errorf("Within without a limit = %d, want 80", got)
	}
}

// TestUse checks that entries in use end last, and an aged one first.
func TestUse(t *testing.T) {
	a := budget.NewAccount("test", budget.Limits{Total: 4, PerSource: 4})
	var ended []string
	enter := func(name string) *budget.Entry {
		return a.Enter(netip.MustParseAddr("192.0.2.1"), func(error) { ended = append(ended, name) })
	}
	first, second := enter("first"), enter("second")
	third, fourth := enter("third"), enter("fourth")
	first.Use()
	second.Use()
	second.Use()
	first.Done()
	second.Done()
	third.Touch()
	fourth.Age()
	for i := range 5 {
		enter(strconv.Itoa(i))
	}
	if want := []string{"fourth", "first", "third", "0", "1"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q, and not second, which is in use", ended, want)
	}
}
