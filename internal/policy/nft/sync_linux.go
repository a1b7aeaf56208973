package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Sync has the kernel hold rs, whatever it holds, and changes what differs only; a table that is right
// stays as it is. What is in sets of kind Resolved stays. If the table is not there, or is damaged so
// that it is replaced, that has an effect at once. ChangeResolved waits for it only if the table is replaced.
func (t *Table) Sync(rs ruleset.Ruleset) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.sync(rs); err != nil {
		t.disconnect()
		return tableError(t.cfg.Name, err)
	}
	return nil
}

// sync is Sync with t.mu locked.
func (t *Table) sync(rs ruleset.Ruleset) error {
	t.have = nil
	if err := t.open(); err != nil {
		return err
	}
	if err := t.listener.Listen(); err != nil {
		return err
	}
	s := &syncer{
		Ruleset:     rs,
		reader:      reader{socket: t.socket, table: t.cfg.Name, beside: &t.resolved},
		renderer:    t.renderer(rs, familiesOf(rs)),
		transaction: t.begin(),
	}
	have, err := s.sync()
	if s.reader.beside != nil { // replace has not locked it
		t.resolved.mu.Lock()
	}
	defer t.resolved.mu.Unlock()
	if err != nil {
		return err
	}
	if c := s.changed; c != (counts{}) {
		t.cfg.Log.Info("synchronized the table of policies", "table", t.cfg.Name,
			"elements", c.elements, "chains", c.chains, "sets", c.sets)
	}
	t.have = have
	clear(t.resolved.sets)
	t.resolved.families = have.families
	for name, k := range have.sets {
		if k == ruleset.Resolved {
			t.resolved.sets[name] = struct{}{}
		}
	}
	return nil
}

// Resolved returns the sets of kind Resolved of rs that the kernel has, with their addresses that have not
// expired. ChangeResolved waits for it.
func (t *Table) Resolved(rs ruleset.Ruleset) (map[string][]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resolved.mu.Lock() // else each added element would interrupt lists
	defer t.resolved.mu.Unlock()
	all, err := t.readResolved(rs)
	if err != nil {
		t.disconnect()
		return nil, tableError(t.cfg.Name, err)
	}
	return all, nil
}

func (t *Table) readResolved(rs ruleset.Ruleset) (map[string][]netip.Addr, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	r := &reader{socket: t.socket, table: t.cfg.Name}
	k := kernel{sets: make(map[string]shape)}
	var err error
	if k.exists, _, err = r.tableFlags(); err != nil || !k.exists {
		return nil, err
	}
	if err := r.readSets(&k); err != nil {
		return nil, fmt.Errorf("sets: %w", err)
	}
	all := make(map[string][]netip.Addr)
	for name, s := range rs.Sets() {
		if s.Kind != ruleset.Resolved {
			continue
		}
		for _, f := range familiesOf(rs) {
			if k.sets[name+f.suffix] != f.shapeOf(s.Kind) {
				continue
			}
			elements, err := r.elements(name + f.suffix)
			if err != nil {
				return nil, fmt.Errorf("set %s: %w", name, err)
			}
			all[name] = slices.Grow(all[name], len(elements))
			for _, e := range elements {
				if addr, ok := netip.AddrFromSlice([]byte(e.key)); ok {
					all[name] = append(all[name], addr)
				}
			}
			if all[name] == nil {
				all[name] = []netip.Addr{}
			}
		}
	}
	return all, nil
}

// syncer brings a table from what it is to what it should be.
type syncer struct {
	ruleset.Ruleset
	reader   reader
	renderer *renderer
	*transaction
	is kernel
	// What it should be.
	sets   map[string]wantedSet
	chains []chain
	bases  []chain
}

// wantedSet is a set of the table.
type wantedSet struct {
	shape
	comment string
	// of is the set of the Ruleset, empty for the table's own.
	of     string
	kind   ruleset.Kind
	family *family
}

func (s *syncer) sync() (*record, error) {
	have, err := s.want()
	if err != nil {
		return nil, err
	}
	if s.is, err = s.reader.read(); err != nil {
		return nil, err
	}
	var kept map[string][]element
	if s.is.exists && s.damaged() {
		if kept, err = s.replace(); err != nil {
			return nil, err
		}
	} else if !s.is.exists {
		s.newTable()
	}
	if err := s.prepare(kept); err != nil {
		return nil, err
	}
	if err := s.change(); err != nil {
		return nil, err
	}
	if err := s.divide(); err != nil {
		return nil, err
	}
	sets := slices.DeleteFunc(slices.Collect(maps.Keys(s.is.sets)), func(name string) bool {
		_, ok := s.sets[name]
		return ok
	})
	wanted := make(map[string]struct{})
	for _, c := range slices.Concat(s.chains, s.bases) {
		wanted[c.name] = struct{}{}
	}
	chains := slices.DeleteFunc(slices.Collect(maps.Keys(s.is.chains)), func(name string) bool {
		_, ok := wanted[name]
		return ok
	})
	if err := s.remove(sets, chains); err != nil {
		return nil, err
	}
	return have, s.commit()
}

// want finds out what the table should have.
func (s *syncer) want() (*record, error) {
	have := &record{
		families: s.renderer.families,
		sets:     make(map[string]ruleset.Kind), chains: make(map[string][]string),
		pods: maps.Collect(s.Pods()), devices: maps.Collect(s.Devices()), ranges: slices.Clone(s.Ranges()),
	}
	s.sets = make(map[string]wantedSet)
	for name, own := range deviceShapes() {
		s.sets[name] = wantedSet{shape: own}
	}
	for _, f := range have.families {
		for name, own := range f.ownShapes() {
			s.sets[name] = wantedSet{shape: own, family: f}
		}
		for name, set := range s.Sets() {
			have.sets[name] = set.Kind
			s.sets[name+f.suffix] = wantedSet{f.shapeOf(set.Kind), set.Comment, name, set.Kind, f}
		}
	}
	chains := maps.Collect(s.Chains())
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		all, err := s.renderer.chain(name, chains[name])
		if err != nil {
			return nil, err
		}
		have.chains[name] = namesOf(all)
		s.chains = append(s.chains, all...)
	}
	for _, c := range s.renderer.baseChains() {
		if c.base == (baseChain{}) {
			s.chains = append(s.chains, c)
		} else {
			s.bases = append(s.bases, c)
		}
	}
	return have, nil
}

// damaged reports whether the table must be replaced: it is dormant, or a set is declared otherwise.
func (s *syncer) damaged() bool {
	if s.is.flags != 0 {
		return true
	}
	for name, is := range s.is.sets {
		if w, ok := s.sets[name]; ok && w.shape != is {
			return true
		}
	}
	return false
}

// replace has the table be deleted and created again in one transaction, and returns the elements that
// are kept. None is added between: resolved is locked from then on.
func (s *syncer) replace() (kept map[string][]element, err error) {
	s.reader.beside.mu.Lock()
	s.reader.beside = nil
	kept = make(map[string][]element)
	for name, is := range s.is.sets {
		w, ok := s.sets[name]
		if !ok || w.flags != flagTimeout || w.shape != is {
			continue
		}
		all, err := s.reader.elements(name)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			kept[name] = append(kept[name], e)
		}
	}
	s.divideAt = 0
	s.deleteTable()
	s.newTable()
	s.is = kernel{exists: true}
	return kept, nil
}

// prepare adds what is missing and has no effect yet.
func (s *syncer) prepare(kept map[string][]element) error {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(s.sets)) { // nft lists them in this order
		if _, ok := s.is.sets[name]; ok {
			continue
		}
		w := s.sets[name]
		if err := s.declare(name, w.shape, w.comment); err != nil {
			return err
		}
		missing = append(missing, name)
	}
	var chains []chain
	for _, c := range s.chains {
		if _, ok := s.is.chains[c.name]; !ok {
			chains = append(chains, c)
		}
	}
	if err := s.create(chains); err != nil {
		return err
	}
	own := s.ownElements()
	for _, name := range missing {
		if err := s.fill(name, append(s.contents(name, own), kept[name]...)); err != nil {
			return err
		}
	}
	return nil
}

// contents returns the elements that a set should have, given those of the table's own sets.
func (s *syncer) contents(name string, own map[string][]element) []element {
	w := s.sets[name]
	if w.of == "" {
		return own[name]
	}
	return contents(s.Ruleset, w.of, w.kind)[w.family]
}

// ownElements returns the elements of the table's own sets.
func (s *syncer) ownElements() map[string][]element {
	all := make(map[string][]element)
	for e := range ownEntries(s) {
		all[e.set] = append(all[e.set], e.element)
	}
	for _, r := range s.Ranges() {
		name := setRanges + familyOf(r.Addr()).suffix
		all[name] = append(all[name], encodeBlock(nil, r)...)
	}
	return all
}

// change adds the differences of sets and chains that are there, and the base chains that are not.
func (s *syncer) change() error {
	own := s.ownElements()
	for name := range s.is.sets {
		w, ok := s.sets[name]
		if !ok || w.flags == flagTimeout {
			continue
		}
		is, err := s.reader.elements(name)
		if err != nil {
			return err
		}
		gone, missing := difference(is, s.contents(name, own))
		s.edit(deletion, name, gone)
		s.edit(addition, name, missing)
	}
	for _, c := range slices.Concat(s.chains, s.bases) {
		if err := s.changeChain(&c); err != nil {
			return err
		}
	}
	return nil
}

// difference returns the elements that a set has but should not, in order, and those that it lacks. The
// kernel does not find all ends of intervals if they are deleted in any order.
func difference(is map[string]element, wanted []element) (gone, missing []element) {
	for _, w := range wanted {
		id := w.id()
		if was, ok := is[id]; !ok || was != w {
			missing = append(missing, w)
			continue
		}
		delete(is, id)
	}
	gone = slices.SortedFunc(maps.Values(is), func(a, b element) int {
		if c := strings.Compare(a.key, b.key); c != 0 || a.isEnd == b.isEnd {
			return c
		}
		if a.isEnd {
			return -1
		}
		return 1
	})
	return gone, missing
}

// changeChain adds what makes a chain right, unless prepare added it.
func (s *syncer) changeChain(c *chain) error {
	base, there := s.is.chains[c.name]
	same, err := hasRules(s.is.rules[c.name], c.rules)
	switch {
	case err != nil || !there && c.base == (baseChain{}) || there && same && base == c.base:
		return err
	case there:
		s.flushChain(c.name)
		s.changed.chains++
	}
	if there && base != c.base {
		s.deleteChain(c.name)
	}
	if base != c.base {
		s.newChain(c)
		s.changed.chains++
	}
	return s.newRules(c)
}

// hasRules reports whether the kernel's rules of a chain are as they should be.
func hasRules(is [][]byte, wanted []rule) (bool, error) {
	if len(is) != len(wanted) {
		return false, nil
	}
	for i := range wanted {
		expressions, err := wanted[i].marshal()
		if err != nil {
			return false, err
		}
		if same, err := nfnetlink.IsRule(is[i], expressions); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}
