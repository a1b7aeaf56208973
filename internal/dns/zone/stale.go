package zone

// Aged says what goes with answers from data of an earlier time, which may not
// be true any more (RFC 8767).
type Stale struct {
	// Found goes with answers for names that exist.
	Found *EDE
	// Denied goes with denials. When it is pending there is no denial.
	Denied *EDE
	// DeniedTTL is the TTL of denials, in seconds.
	DeniedTTL uint32
}

func (g *Stale) equal(o *Stale) bool {
	return g == o || g != nil && o != nil &&
		equalNotes(g.Found, o.Found) && equalNotes(g.Denied, o.Denied) && g.DeniedTTL == o.DeniedTTL
}

// age adds to an answer what the nearest mark says of its age.
func (db *DB) age(s *Scratch, qname []byte, a *Answer) {
	g := db.agedAt(qname)
	if g == nil {
		return
	}
	switch a.Outcome {
	case Found, Alias, NoData:
		a.StaleEDE = g.Found
	case NXDomain:
		a.StaleEDE = g.Denied
		if g.Denied.Pending {
			a.Outcome, a.EDE = Unanswered, nil
			return
		}
		s.soa = *a.SOA
		s.soa.TTL, s.soa.Minimum = min(s.soa.TTL, g.DeniedTTL), min(s.soa.Minimum, g.DeniedTTL)
		a.SOA = &s.soa
	case Unanswered, OutOfZone, Authority:
	}
}

// agedAt is the nearest mark of age at the name or above it, or nil.
func (db *DB) agedAt(qname []byte) *Stale {
	for n, _, _ := db.closest(qname); n != nil; n = n.parent {
		if g := n.seen.Load().age(); g != nil {
			return g
		}
	}
	return nil
}

func (t *Subtree) age() *Stale {
	if t == nil {
		return nil
	}
	return t.marks.Stale
}

// countUnsettled keeps count of the subtrees that are not settled.
func (z *authority) countUnsettled(before, after *Subtree) {
	if !before.isSettled() {
		z.unsettled--
	}
	if !after.isSettled() {
		z.unsettled++
	}
}

func (t *Subtree) isSettled() bool { return t == nil || t.marks.isSettled() }

// countAged keeps count of the marks of age that are seen, so that lookups need
// not look for them when there are none.
func (db *DB) countAged(before, after *Subtree) {
	switch {
	case before.age() == nil && after.age() != nil:
		db.aged.Add(1)
	case before.age() != nil && after.age() == nil:
		db.aged.Add(-1)
	}
}
