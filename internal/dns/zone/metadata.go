package zone

import "portolan.dev/portolan/internal/dns/dnswire"

// Note says why a name is denied, as an Extended DNS Error (RFC 8914).
type EDE struct {
	Code dnswire.EDECode
	Text string
	// Pending means that the data is not loaded: there is no denial yet, the
	// outcome is Unanswered.
	Pending bool
}

// Children says how the hosts of a name are found: the names directly below it
// that spell their address with dashes.
type Children uint8

// The ways to find a host.
const (
	Exact       Children = iota // as any name
	AnySpelling                 // the label may spell the host's address in any form
	Synthesized                 // there is one for each address
)

// Marks are what is said of a name beside its records.
type Metadata struct {
	// Exists makes the name exist without records.
	Exists   bool
	Children Children
	// ChildTTL is the TTL of synthesized children, in seconds.
	ChildTTL uint32
	// Note goes with a denial at the name itself. Below goes with a denial of
	// a name below it that has no nearer note, Underscored instead where the
	// label directly below begins with an underscore (RFC 8552).
	EDE, Below, Underscored *EDE
	// Aged says that the name and those below it are from an earlier time; nil
	// when they are not. A nearer mark counts.
	Stale *Stale
}

func (m *Metadata) equal(o *Metadata) bool {
	return m.sameAnswers(o) && m.Stale.equal(o.Stale)
}

// sameAnswers tells whether m and o differ in nothing but age.
func (m *Metadata) sameAnswers(o *Metadata) bool {
	return m.Exists == o.Exists && m.Children == o.Children && m.ChildTTL == o.ChildTTL &&
		equalNotes(m.EDE, o.EDE) && equalNotes(m.Below, o.Below) && equalNotes(m.Underscored, o.Underscored)
}

// isSettled tells whether what is said is what the source has now: nothing is
// pending, nor from an earlier time.
func (m *Metadata) isSettled() bool {
	return m.Stale == nil && !m.EDE.pending() && !m.Below.pending() && !m.Underscored.pending()
}

func (n *EDE) pending() bool { return n != nil && n.Pending }

func equalNotes(a, b *EDE) bool { return a == b || a != nil && b != nil && *a == *b }

// noteFor is the note for a denial of qname, said by the name that begins at
// the given place; child is where the name below it begins.
func (m *Metadata) noteFor(qname []byte, at, child int) *EDE {
	if at == 0 {
		return m.EDE
	}
	if qname[child] > 0 && qname[child+1] == '_' && m.Underscored != nil {
		return m.Underscored
	}
	return m.Below
}
