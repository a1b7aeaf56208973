package nft_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"portolan.dev/portolan/internal/policy/ruleset/rulesettest"
)

// events returns how many random events a test has: some, or as many as the environment variable
// PORTOLAN_TEST_EVENTS says.
func events(t *testing.T, some int) int {
	t.Helper()
	text := os.Getenv("PORTOLAN_TEST_EVENTS")
	if text == "" {
		return some
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// TestDeltas changes a ruleset at random. After Apply, the table is the one that Sync would make, a restart
// changes nothing, and packets pass as Judge says.
func TestDeltas(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	w.translate()
	table := w.table()
	m := newModel(w, rand.New(rand.NewPCG(1, 2)))
	must(t, table.Sync(m))
	sent, allowed := 0, 0
	for i := range events(t, 300) {
		d := m.change()
		must(t, table.Apply(m, d))
		m.resolve(t, table)
		if i%10 == 0 {
			packets := m.packets(40)
			sent, allowed = sent+len(packets), allowed+l.compare(m, m.isIn, packets)
		}
		if i%50 == 49 {
			w.expect("event "+strconv.Itoa(i), m)
		}
		if t.Failed() {
			t.Fatalf("after event %d: %+v", i, d)
		}
	}
	t.Logf("%d packets, %d allowed", sent, allowed)
	if allowed < sent/5 || allowed > sent*4/5 {
		t.Errorf("%d of %d packets were allowed: the test is too simple", allowed, sent)
	}
}

// TestDivided divides all transactions as much as possible. Between its parts, no packet passes that
// neither the old nor the new ruleset allows, and all pass that both allow.
func TestDivided(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	l := newLab(w)
	w.translate()
	table := w.table()
	m := newModel(w, rand.New(rand.NewPCG(3, 4)))
	must(t, table.Sync(m))
	before := rulesettest.Copy(m)
	parts := 0
	table.Divide(1, func() {
		parts++
		packets := m.packets(10)
		was, is := make([]bool, len(packets)), make([]bool, len(packets))
		both := make([]bool, len(packets))
		for i, p := range packets {
			was[i], is[i] = l.judge(before, m.isIn, p).Allowed, l.judge(m, m.isIn, p).Allowed
			both[i] = was[i] && is[i]
		}
		for i, passed := range l.pass(packets, both) {
			if passed && !was[i] && !is[i] || !passed && both[i] {
				t.Errorf("%s: passed %v between rulesets that allow it: %v, %v", packets[i], passed, was[i], is[i])
			}
		}
	})
	for i := range events(t, 100) {
		d := m.change()
		must(t, table.Apply(m, d))
		before = rulesettest.Copy(m)
		m.resolve(t, table)
		if t.Failed() {
			t.Fatalf("in event %d: %+v", i, d)
		}
	}
	table.Divide(0, nil)
	w.expect("at the end", m)
	t.Logf("%d parts", parts)
}

// TestKilled has a process be killed between the parts of changes: a restart finishes them.
func TestKilled(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	random := rand.New(rand.NewPCG(9, 10))
	m := newModel(w, random)
	must(t, w.table().Sync(m))
	killed := 0
	for i := range events(t, 60) {
		table := w.table()
		must(t, table.Sync(m))
		parts := random.IntN(8)
		table.Divide(1, func() {
			if parts--; parts == 0 {
				table.Disconnect()
			}
		})
		d := m.change()
		failed := table.Apply(m, d) != nil
		must(t, table.Close())
		if !failed {
			continue
		}
		killed++
		restarted := w.table()
		must(t, restarted.Sync(m))
		must(t, restarted.Close())
		w.expect("killed in event "+strconv.Itoa(i), m)
	}
	t.Logf("killed in %d changes", killed)
	if killed == 0 {
		t.Error("no process was killed")
	}
}
