package secondary

import (
	"cmp"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Counts are of what happened since the start.
type Counters struct {
	AXFR, IXFR, Unchanged uint64 // transfers: whole zones, differences, no news
	Octets                uint64 // of their messages
	Failures              uint64 // transfers that failed, and servers that were not reached
	Notified, Refused     uint64 // NOTIFYs taken, and those of others
	// Lag is, added up over Lags changes that a NOTIFY told of, the time from when
	// it came to when the change was served. What a change takes to the NOTIFY is
	// the server's to tell; a change whose NOTIFY was lost is not in it, and is
	// served a check later at most.
	Lag  time.Duration
	Lags uint64
}

func (c *Counters) add(got *answer) {
	c.Octets += uint64(got.octets)
	switch got.outcome {
	case whole:
		c.AXFR++
	case changed:
		c.IXFR++
	case unchanged, passed:
		c.Unchanged++
	}
}

func (c *Counters) observe(lag time.Duration) {
	c.Lag += lag
	c.Lags++
}

// ZoneStatus tells how the copy of one zone stands.
type ZoneStatus struct {
	Zone   dnsname.Name
	Loaded bool // there is a copy
	Serial uint32
	MName  dnsname.Name // whose history the serial is of
	// Sure is when the copy was last known to be what the server has: an answer
	// may be out of date by the time since, and by no more.
	VerifiedAt time.Time
	// Since is since when that is so, without having been old meanwhile.
	CurrentSince time.Time
	Stale        bool
	Failure      error // why it is not what a server has, as far as is known
}

// Status tells how a Replica stands.
type Status struct {
	Server   string // that is followed; empty while there is none
	Zones    []ZoneStatus
	Counters Counters
	// Saved is when the file was last written; zero is never. SaveFailures counts
	// when it could not be.
	Saved        time.Time
	SaveFailures uint64
}

// Status is that of the moment.
func (r *Secondary) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Counters: r.counts, Saved: r.state.written, SaveFailures: r.state.failures}
	if r.server != nil {
		s.Server = r.server.String()
	}
	for _, z := range r.zones {
		s.Zones = append(s.Zones, ZoneStatus{
			Zone: z.name, Loaded: z.loaded, Serial: z.soa.Serial, MName: z.soa.MName,
			VerifiedAt: z.confirmed, CurrentSince: z.since, Stale: z.old, Failure: cmp.Or(z.failure, r.unfound),
		})
	}
	return s
}
