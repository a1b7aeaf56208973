package zone

import "portolan.dev/portolan/internal/dns/dnswire"

// EDE is an Extended DNS Error (RFC 8914) that explains a denial.
type EDE struct {
	Code dnswire.EDECode
	Text string
	// Reason is a stable code beside the text; see Why.
	Reason Reason
	// Pending means that the data is not loaded yet: instead of a denial the
	// outcome is Unanswered.
	Pending bool
}

// Children says how the hosts of a name are found: the names directly below it
// that spell an address with dashes.
type Children uint8

// Ways to find hosts.
const (
	Exact       Children = iota // by their canonical spelling, as any other name
	AnySpelling                 // by any spelling of the host's address
	Synthesized                 // every address has a host
)

// Metadata describes a name beside its records.
type Metadata struct {
	// Exists makes the name exist without records.
	Exists   bool
	Children Children
	// ChildTTL is the TTL of synthesized hosts, in seconds.
	ChildTTL uint32
	// EDE explains a denial at the name itself. Below explains a denial of a
	// name below it that has no nearer explanation; Underscored replaces Below
	// if the label directly below begins with an underscore (RFC 8552).
	EDE, Below, Underscored *EDE
	// Stale marks the name and the names below it as stale; nil if they are
	// not. The nearest mark applies.
	Stale *Stale
}

func (m *Metadata) equal(o *Metadata) bool {
	return m.sameAnswers(o) && m.Stale.equal(o.Stale)
}

// sameAnswers reports whether m and o are equal except for Stale.
func (m *Metadata) sameAnswers(o *Metadata) bool {
	return m.Exists == o.Exists && m.Children == o.Children && m.ChildTTL == o.ChildTTL &&
		equalEDE(m.EDE, o.EDE) && equalEDE(m.Below, o.Below) && equalEDE(m.Underscored, o.Underscored)
}

// isCurrent reports whether the data is loaded and not stale.
func (m *Metadata) isCurrent() bool {
	return m.Stale == nil && !m.EDE.pending() && !m.Below.pending() && !m.Underscored.pending()
}

func (n *EDE) pending() bool { return n != nil && n.Pending }

func equalEDE(a, b *EDE) bool { return a == b || a != nil && b != nil && *a == *b }

// edeFor returns the EDE for a denial of qname. m belongs to the name at offset
// at of qname; child is the offset of the name below it.
func (m *Metadata) edeFor(qname []byte, at, child int) *EDE {
	if at == 0 {
		return m.EDE
	}
	if qname[child] > 0 && qname[child+1] == '_' && m.Underscored != nil {
		return m.Underscored
	}
	return m.Below
}
