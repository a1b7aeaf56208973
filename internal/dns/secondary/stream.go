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
	// ErrNoMetadata reports that a transfer lacks the metadata that was
	// requested.
	ErrNoMetadata = errors.New("the server is not Portolan or is of an incompatible version")

	errReach    = errors.New("not reached")
	errStream   = errors.New("the transfer is malformed")
	errTooLarge = errors.New("the zone is larger than allowed")
	errHistory  = errors.New("the server does not have the changes since the copy's serial")
)

// outcome is the result of a transfer.
type outcome uint8

const (
	unchanged outcome = iota // the copy equals the primary's zone
	passed                   // it did, but the zone has changed since
	changed                  // the changes since the copy's serial
	whole                    // the whole zone
)

// answer is the content of a complete transfer.
type answer struct {
	outcome outcome
	soa     dnswire.SOA           // of the primary's zone
	records []zone.TransferRecord // of a whole zone
	changes []zone.RecordChange   // in order
	octets  int                   // of all messages
}

// position is the position in the records of a transfer (RFC 5936, section 2.2;
// RFC 1995, section 4).
type position uint8

const (
	atStart position = iota
	atSecond
	inZone
	inDeleted
	inAdded
	atEnd
)

// reader parses the messages of a transfer, one after another.
type reader struct {
	answer
	zone        dnsname.Name
	has         *dnswire.SOA // the copy's SOA; nil for AXFR
	limits      Limits
	position    position
	serial      uint32 // of the present difference sequence: from (inDeleted) or to (inAdded)
	hasMetadata bool   // the apex has metadata

	count int
	chunk []byte // memory for RDATA
	last  dnsname.Name
	owner [dnsname.MaxWire]byte
}

// read parses a message and reports whether it was the last.
func (r *reader) read(part *dnswire.Reply, octets int) (last bool, err error) {
	first := r.position == atStart
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
		if r.count++; r.count > r.limits.Records {
			return false, fmt.Errorf("%w: more than %d records", errTooLarge, r.limits.Records)
		}
		if err := r.record(rec); err != nil {
			return false, err
		}
	}
	switch {
	case r.position == atStart:
		return false, fmt.Errorf("%w: no SOA record", errStream)
	case r.position == atSecond && r.has != nil && first:
		return r.single()
	case r.position == atEnd && r.outcome == whole && !r.hasMetadata:
		return false, ErrNoMetadata
	}
	return r.position == atEnd, nil
}

// single handles a reply to IXFR of one SOA record (RFC 1995, section 4). An
// equal serial means an equal zone only if it comes from the same primary.
// Portolan's longer replies never begin with a message of one record.
func (r *reader) single() (last bool, err error) {
	switch {
	case r.soa.MName != r.has.MName, int32(r.soa.Serial-r.has.Serial) < 0:
		return false, errHistory
	case r.soa.Serial != r.has.Serial:
		r.outcome = passed
	}
	return true, nil
}

// record handles one record of the answer section.
func (r *reader) record(rec dnswire.ReplyRecord) error {
	it, err := r.transferRecord(rec)
	if err != nil {
		return err
	}
	var soa *dnswire.SOA // nil for a record of another type
	if it.Type == dnswire.TypeSOA {
		parsed, ok := dnswire.ParseSOA(it.Name, it.TTL, it.RData)
		if !ok || it.Name != r.zone {
			return fmt.Errorf("%w: SOA record of %s", errStream, it.Name)
		}
		soa = &parsed
	}
	switch r.position {
	case atStart:
		if soa == nil {
			return fmt.Errorf("%w: it does not begin with an SOA record", errStream)
		}
		r.soa, r.position = *soa, atSecond
		return nil
	case atSecond:
		if soa != nil && r.has != nil && soa.Serial == r.has.Serial && soa.Serial != r.soa.Serial {
			if soa.MName != r.soa.MName || soa.MName != r.has.MName {
				return errHistory
			}
			r.outcome, r.position, r.serial = changed, inDeleted, soa.Serial
			return nil
		}
		r.outcome, r.position = whole, inZone
		return r.readZone(it, soa)
	case inZone:
		return r.readZone(it, soa)
	case inDeleted, inAdded:
		return r.readDifference(it, soa)
	}
	return fmt.Errorf("%w: records after its end", errStream)
}

// readZone handles a record of a whole zone. soa is nil unless it is an SOA record.
func (r *reader) readZone(it zone.TransferRecord, soa *dnswire.SOA) error {
	switch {
	case soa == nil:
		r.hasMetadata = r.hasMetadata || it.Type == zone.TypeMetadata && it.Name == r.zone
		r.records = append(r.records, it)
	case *soa != r.soa:
		return fmt.Errorf("%w: it ends with serial %d and began with %d", errStream, soa.Serial, r.soa.Serial)
	default:
		r.position = atEnd
	}
	return nil
}

// readDifference handles a record of difference sequences. soa is nil unless it is an SOA
// record.
func (r *reader) readDifference(it zone.TransferRecord, soa *dnswire.SOA) error {
	switch {
	case soa == nil:
		r.changes = append(r.changes, zone.RecordChange{TransferRecord: it, Deleted: r.position == inDeleted})
	case r.position == inDeleted: // the additions follow
		r.position, r.serial = inAdded, soa.Serial
	case soa.Serial != r.serial:
		return fmt.Errorf("%w: from serial %d it goes on with %d", errStream, r.serial, soa.Serial)
	case soa.Serial != r.soa.Serial:
		r.position = inDeleted // the next difference sequence
	case *soa != r.soa:
		return fmt.Errorf("%w: it ends with another SOA record", errStream)
	default:
		r.position = atEnd
	}
	return nil
}

// firstMetaType begins the range of types up to ANY that exist only in queries
// and messages, not in zones (RFC 6895, section 3.1).
const firstMetaType = 128

// transferRecord copies a record into the reader's memory.
func (r *reader) transferRecord(rec dnswire.ReplyRecord) (it zone.TransferRecord, err error) {
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
	const most = 3 * dnswire.MaxMessage // names grow when decompressed
	if cap(r.chunk)-len(r.chunk) < len(rec.RData())+2*dnsname.MaxWire {
		r.chunk = make([]byte, 0, min(most, max(4096, 2*cap(r.chunk), 2*len(rec.RData())+2*dnsname.MaxWire)))
	}
	start := len(r.chunk)
	r.chunk = rec.AppendRData(r.chunk)
	it.RData = r.chunk[start:len(r.chunk):len(r.chunk)]
	return it, nil
}
