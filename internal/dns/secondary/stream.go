package secondary

import (
	"errors"
	"fmt"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Errors of transfers.
var (
	// ErrNoMarks: a zone came without the marks that were asked for.
	ErrNoMetadata = errors.New("not a Portolan server, or transfers of another version")

	errReach    = errors.New("not reached")
	errStream   = errors.New("the transfer is malformed")
	errTooLarge = errors.New("the zone is larger than allowed")
	errHistory  = errors.New("the server does not know how the copy became what it is")
)

// outcome is what a transfer brought.
type outcome uint8

const (
	unchanged outcome = iota // what was asked with is what the server has
	passed                   // it was, when the server looked, and is no more
	changed                  // the difference to it
	whole                    // all of the zone
)

// answer is the content of a whole transfer.
type answer struct {
	outcome outcome
	soa     dnswire.SOA           // the server's
	items   []zone.TransferRecord // all of a zone
	steps   []zone.RecordChange   // of a difference, in order
	octets  int                   // of its messages
}

// place is where in an answer a reading is (RFC 5936, section 2.2; RFC 1995,
// section 4).
type place uint8

const (
	atStart place = iota
	atSecond
	inZone
	inGone
	inCome
	atEnd
)

// reading reads the messages of an answer, one after another.
type reading struct {
	answer
	zone   dnsname.Name
	has    *dnswire.SOA // asked with; nil for AXFR
	limits Limits
	place  place
	serial uint32 // that the records in hand lead from (inGone) or to (inCome)
	marked bool   // marks of the apex came

	records int
	chunk   []byte // where RDATA is kept
	last    dnsname.Name
	owner   [dnsname.MaxWire]byte
}

// take takes in a message and tells whether it was the last.
func (r *reading) take(part *dnswire.Reply, octets int) (last bool, err error) {
	first := r.place == atStart
	if r.octets += octets; r.octets > r.limits.Octets {
		return false, fmt.Errorf("%w: more than %d octets", errTooLarge, r.limits.Octets)
	}
	if !first && part.Count(dnswire.Answer) == 0 {
		return false, fmt.Errorf("%w: a message without records", errStream)
	}
	for rec := range part.Records {
		if rec.Section != dnswire.Answer {
			break
		}
		if r.records++; r.records > r.limits.Records {
			return false, fmt.Errorf("%w: more than %d records", errTooLarge, r.limits.Records)
		}
		if err := r.record(rec); err != nil {
			return false, err
		}
	}
	switch {
	case r.place == atStart:
		return false, fmt.Errorf("%w: no start of authority", errStream)
	case r.place == atSecond && r.has != nil && first:
		return r.single()
	case r.place == atEnd && r.outcome == whole && !r.marked:
		return false, ErrNoMetadata
	}
	return r.place == atEnd, nil
}

// single reads an answer to IXFR of one record (RFC 1995, section 4). The same
// serial is the same zone only where the server is the one it came from. Servers
// of ours send no longer answer in messages of one record.
func (r *reading) single() (last bool, err error) {
	switch {
	case r.soa.MName != r.has.MName, int32(r.soa.Serial-r.has.Serial) < 0:
		return false, errHistory
	case r.soa.Serial != r.has.Serial:
		r.outcome = passed
	}
	return true, nil
}

// record takes in one record of the answer section.
func (r *reading) record(rec dnswire.ReplyRecord) error {
	it, err := r.item(rec)
	if err != nil {
		return err
	}
	isSOA := it.Type == dnswire.TypeSOA
	var soa dnswire.SOA
	if isSOA {
		ok := false
		if soa, ok = dnswire.ParseSOA(it.Name, it.TTL, it.RData); !ok || it.Name != r.zone {
			return fmt.Errorf("%w: start of authority of %s", errStream, it.Name)
		}
	}
	switch r.place {
	case atStart:
		if !isSOA {
			return fmt.Errorf("%w: it begins with no start of authority", errStream)
		}
		r.soa, r.place = soa, atSecond
		return nil
	case atSecond:
		if isSOA && r.has != nil && soa.Serial == r.has.Serial && soa.Serial != r.soa.Serial {
			if soa.MName != r.soa.MName || soa.MName != r.has.MName {
				return errHistory
			}
			r.outcome, r.place, r.serial = changed, inGone, soa.Serial
			return nil
		}
		r.outcome, r.place = whole, inZone
		return r.inZone(it, isSOA, soa)
	case inZone:
		return r.inZone(it, isSOA, soa)
	case inGone, inCome:
		return r.inDifference(it, isSOA, soa)
	}
	return fmt.Errorf("%w: records behind its end", errStream)
}

func (r *reading) inZone(it zone.TransferRecord, isSOA bool, soa dnswire.SOA) error {
	switch {
	case !isSOA:
		r.marked = r.marked || it.Type == zone.TypeMetadata && it.Name == r.zone
		r.items = append(r.items, it)
	case soa != r.soa:
		return fmt.Errorf("%w: it ends with serial %d and began with %d", errStream, soa.Serial, r.soa.Serial)
	default:
		r.place = atEnd
	}
	return nil
}

func (r *reading) inDifference(it zone.TransferRecord, isSOA bool, soa dnswire.SOA) error {
	switch {
	case !isSOA:
		r.steps = append(r.steps, zone.RecordChange{TransferRecord: it, Deleted: r.place == inGone})
	case r.place == inGone: // what comes follows
		r.place, r.serial = inCome, soa.Serial
	case soa.Serial != r.serial:
		return fmt.Errorf("%w: from serial %d it goes on with %d", errStream, r.serial, soa.Serial)
	case soa.Serial != r.soa.Serial:
		r.place = inGone // the next part
	case soa != r.soa:
		return fmt.Errorf("%w: it ends with another start of authority", errStream)
	default:
		r.place = atEnd
	}
	return nil
}

// Types from here on up to ANY are of questions and of messages alone (RFC 6895,
// section 3.1).
const firstMetaType = 128

// item is what a record says, in memory of the reading's own.
func (r *reading) item(rec dnswire.ReplyRecord) (it zone.TransferRecord, err error) {
	it.Type, it.TTL = rec.Type(), rec.TTL()
	owner := rec.AppendOwner(r.owner[:0])
	if r.last.WireLabels() != string(owner) {
		if r.last, _, err = dnsname.FromWire(append(owner, 0)); err != nil {
			return it, fmt.Errorf("%w: %w", errStream, err)
		}
	}
	it.Name = r.last
	meta := it.Type == 0 || it.Type >= firstMetaType && it.Type <= dnswire.TypeANY
	if !it.Name.IsSubdomainOf(r.zone) || rec.Class() != dnswire.ClassIN || meta {
		return it, fmt.Errorf("%w: a record of type %s at %s", errStream, it.Type, it.Name)
	}
	const most = 3 * dnswire.MaxMessage // names that were compressed
	if cap(r.chunk)-len(r.chunk) < len(rec.RData())+2*dnsname.MaxWire {
		r.chunk = make([]byte, 0, min(most, max(4096, 2*cap(r.chunk), 2*len(rec.RData())+2*dnsname.MaxWire)))
	}
	start := len(r.chunk)
	r.chunk = rec.AppendRData(r.chunk)
	it.RData = r.chunk[start:len(r.chunk):len(r.chunk)]
	return it, nil
}
