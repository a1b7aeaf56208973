package zone

// Stale describes answers from stale data (RFC 8767).
type Stale struct {
	// Found accompanies answers for names that exist.
	Found *EDE
	// Denied accompanies denials. If it is pending, there is no denial.
	Denied *EDE
	// DeniedTTL is the highest TTL of denials, in seconds.
	DeniedTTL uint32
}

func (g *Stale) equal(o *Stale) bool {
	return g == o || g != nil && o != nil &&
		equalEDE(g.Found, o.Found) && equalEDE(g.Denied, o.Denied) && g.DeniedTTL == o.DeniedTTL
}

// applyStale adds the nearest stale mark to an answer.
func (db *DB) applyStale(s *Scratch, qname []byte, a *Answer) {
	g := db.staleAt(qname)
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

// staleAt returns the nearest stale mark at qname or above it, or nil.
func (db *DB) staleAt(qname []byte) *Stale {
	for n, _, _ := db.closestNode(qname); n != nil; n = n.parent {
		if g := n.subtree.Load().stale(); g != nil {
			return g
		}
	}
	return nil
}

func (t *Subtree) stale() *Stale {
	if t == nil {
		return nil
	}
	return t.metadata.Stale
}

// countNotCurrent counts the zone's subtrees that are stale or not loaded.
func (z *zoneState) countNotCurrent(before, after *Subtree) {
	if !before.isCurrent() {
		z.notCurrent--
	}
	if !after.isCurrent() {
		z.notCurrent++
	}
}

func (t *Subtree) isCurrent() bool { return t == nil || t.metadata.isCurrent() }

// countStale counts the published stale marks, so that lookups search for them
// only if there are any.
func (db *DB) countStale(before, after *Subtree) {
	switch {
	case before.stale() == nil && after.stale() != nil:
		db.staleCount.Add(1)
	case before.stale() != nil && after.stale() == nil:
		db.staleCount.Add(-1)
	}
}
