package secondaries

import (
	"errors"
	"fmt"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// reading finds the end of the answer to a transfer (RFC 5936, section 2.2; RFC 1995,
// section 4) in the form that Portolan's server uses, with a single difference.
type reading struct {
	has *dnswire.SOA // the SOA in the query; nil for AXFR

	soa     dnswire.SOA // the first record
	records int
	differs bool // an incremental transfer, not the whole zone
	news    int  // how often the current SOA has occurred
	ended   bool
}

var errForm = errors.New("not the form of a transfer")

// message reads the next message.
func (r *reading) message(m []byte) error {
	part, err := dnswire.ParseTransferReply(m)
	if err != nil {
		return err
	}
	if part.RCode != dnswire.NoError {
		return fmt.Errorf("the answer is %s", part.RCode)
	}
	for rec := range part.Records {
		if rec.Section != dnswire.Answer {
			break
		}
		if r.ended {
			return fmt.Errorf("%w: records behind the end", errForm)
		}
		if err := r.record(rec); err != nil {
			return err
		}
	}
	if r.records == 1 {
		r.ended = true // the zone is unchanged
	}
	return nil
}

func (r *reading) record(rec dnswire.ReplyRecord) error {
	r.records++
	if rec.Type() != dnswire.TypeSOA {
		if r.records == 1 {
			return fmt.Errorf("%w: no SOA at its beginning", errForm)
		}
		return nil
	}
	soa, ok := dnswire.ParseSOA(apex, rec.TTL(), rec.AppendRData(nil))
	if !ok {
		return fmt.Errorf("%w: an SOA", errForm)
	}
	switch {
	case r.records == 1:
		r.soa = soa
	case r.records == 2 && r.has != nil && soa.Serial == r.has.Serial:
		r.differs = true
		return nil
	case soa != r.soa:
		return fmt.Errorf("%w: serial %d in the answer that leads to %d", errForm, soa.Serial, r.soa.Serial)
	}
	const inZone, inDifference = 2, 3
	r.news++
	r.ended = r.news == inZone && !r.differs || r.news == inDifference
	return nil
}
