package zone

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Records groups the records of entries by zone, each zone's SOA first. It
// fails if a record cannot be written as text.
func Records(entries []Entry) (zones [][]dnswire.Record, err error) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Zone.Compare(b.Zone) })
	for _, e := range entries {
		if e.SOA != nil {
			zones = append(zones, []dnswire.Record{e.SOA.Record()})
		}
		last := &zones[len(zones)-1]
		for _, set := range e.Sets {
			records, err := set.Records(e.Name)
			if err != nil {
				return nil, err
			}
			slices.SortStableFunc(records, func(a, b dnswire.Record) int { return cmp.Compare(a.Data, b.Data) })
			*last = append(*last, records...)
		}
	}
	return zones, nil
}

// WriteMaster writes zones in master file format (RFC 1035, section 5), with an
// empty line between zones.
func WriteMaster(w io.Writer, zones [][]dnswire.Record) error {
	out := bufio.NewWriter(w) // keeps the first error until Flush
	for i, records := range zones {
		if i > 0 {
			fmt.Fprintln(out)
		}
		for _, r := range records {
			fmt.Fprintln(out, r)
		}
	}
	return out.Flush()
}

// SOAs returns the present SOA of each zone.
func (db *DB) SOAs() []dnswire.SOA {
	all := make([]dnswire.SOA, 0, len(db.zones)) // db.zones is immutable
	for _, z := range db.zones {
		all = append(all, *z.soa.Load())
	}
	return all
}
