package secondary

import (
	"cmp"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Counters count events since the start.
type Counters struct {
	AXFR, IXFR, Unchanged uint64 // transfers: whole zones, differences, no change
	Octets                uint64 // of transfer messages
	Failures              uint64 // failed transfers and connections
	Notified, Refused     uint64 // NOTIFYs accepted and rejected
	// Lag is the sum, over Lags changes announced by NOTIFY, of the time
	// between the NOTIFY and serving the change. It does not include the time
	// until the primary sent the NOTIFY, nor changes whose NOTIFY was lost;
	// those are served after at most one check interval.
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

// ZoneStatus is the status of the copy of one zone.
type ZoneStatus struct {
	Zone   dnsname.Name
	Loaded bool // there is a copy
	Serial uint32
	MName  dnsname.Name // the primary that the serial belongs to
	// VerifiedAt is when the copy last equaled the primary's zone. An answer
	// may be out of date by the time since then, but not by more.
	VerifiedAt time.Time
	// CurrentSince is since when the copy has not been stale.
	CurrentSince time.Time
	Stale        bool
	Failure      error // why the copy may be out of date; nil if unknown or not
}

// Status is the status of a Secondary.
type Status struct {
	Server   string // the primary followed; empty if none
	Zones    []ZoneStatus
	Counters Counters
	// Saved is when the state file was last written, zero if never.
	// SaveFailures counts failed writes.
	Saved        time.Time
	SaveFailures uint64
}

// Status returns the present status.
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
			VerifiedAt: z.confirmed, CurrentSince: z.since, Stale: z.stale, Failure: cmp.Or(z.failure, r.unfound),
		})
	}
	return s
}
