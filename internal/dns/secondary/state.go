package secondary

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
	"portolan.dev/portolan/internal/support/statefile"
)

// stateFormat is the format of state files: each zone's SOA record, followed by
// the zone's other records, including metadata. A record is the uncompressed
// owner, type, TTL, length of the RDATA, RDATA.
const stateFormat = statefile.Format("portolan replica 1\n")

// saveTime is the shortest interval between two writes of the file, and
// saveRest the shortest interval as a multiple of the duration of a write: each
// write saves everything, and changes since the last one cost only one IXFR at
// the next start.
const (
	saveTime = 5 * time.Second
	saveRest = 50
)

// saving is the state of the file.
type saving struct {
	unsaved  bool
	failing  bool
	written  time.Time
	failures uint64
	file     os.FileInfo // as last read or written; nil if never
}

// keepSaved writes the file after changes, until ctx is done.
func (r *Secondary) keepSaved(ctx context.Context) {
	next := time.NewTimer(saveTime)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			began := time.Now()
			r.save()
			next.Reset(max(saveTime, saveRest*time.Since(began)))
		}
	}
}

// save writes the file if anything changed. It logs an error when it first
// occurs and when it is over, because a disk may stay full for long.
func (r *Secondary) save() {
	r.mu.Lock()
	unsaved := r.state.unsaved
	r.state.unsaved = false
	r.mu.Unlock()
	if !unsaved {
		return
	}
	versions := r.versions()
	err := stateFormat.Write(r.cfg.File, func(w io.Writer) error { return writeVersions(w, versions) })
	r.mu.Lock()
	began, ended := err != nil && !r.state.failing, err == nil && r.state.failing
	r.state.failing = err != nil
	if err != nil {
		r.state.failures++
		r.state.unsaved = true
	} else {
		r.state.written = time.Now()
		r.state.file, _ = os.Stat(r.cfg.File)
	}
	r.mu.Unlock()
	switch {
	case began:
		r.cfg.Log.Error("cannot save the state file; retrying", "err", err)
	case ended:
		r.cfg.Log.Info("state file is saved again", "file", r.cfg.File)
	}
}

// saveLast writes the file at the end, unless another agent has written it
// since: that one keeps running, and its state is newer.
func (r *Secondary) saveLast() {
	now, err := os.Stat(r.cfg.File)
	r.mu.Lock()
	last := r.state.file
	r.mu.Unlock()
	if err == nil && (last == nil || !os.SameFile(now, last) || !now.ModTime().Equal(last.ModTime())) {
		r.cfg.Log.Info("state file is not saved: another agent has written it", "file", r.cfg.File)
		return
	}
	r.save()
}

// versions returns the present versions of all loaded zones.
func (r *Secondary) versions() (all []*zone.Version) {
	r.write.Lock()
	defer r.write.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, z := range r.zones {
		if z.loaded {
			all = append(all, z.copy.Version())
		}
	}
	return all
}

func writeVersions(w io.Writer, versions []*zone.Version) error {
	var b []byte
	for _, m := range versions {
		b = appendRecord(b[:0], []byte(m.SOA.Zone.WireLabels()), dnswire.TypeSOA, m.SOA.TTL, m.SOA.AppendRData(nil))
		if _, err := w.Write(b); err != nil {
			return err
		}
		for o := range m.Records(zone.WithMetadata) {
			b = b[:0]
			for _, rdata := range o.Set.RData() {
				b = appendRecord(b, o.Owner, o.Set.Type, o.Set.TTL(), rdata)
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendRecord(b, owner []byte, t dnswire.Type, ttl uint32, rdata []byte) []byte {
	b = append(append(b, owner...), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rdata)))
	return append(b, rdata...)
}

var errState = errors.New("malformed state file")

// savedZone is a zone in a state file.
type savedZone struct {
	soa   dnswire.SOA
	items []zone.TransferRecord
}

// parseState parses the content of a state file. The result refers to b.
func parseState(b []byte) (zones []savedZone, err error) {
	const fixed = 8 // type, TTL, length
	for len(b) > 0 {
		var it zone.TransferRecord
		name, n, err := dnsname.FromWire(b)
		if err != nil || len(b) < n+fixed {
			return nil, errState
		}
		b = b[n:]
		end := fixed + int(binary.BigEndian.Uint16(b[6:]))
		if len(b) < end {
			return nil, errState
		}
		it.Name, it.Type, it.TTL = name, dnswire.Type(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
		it.RData, b = b[fixed:end:end], b[end:]
		switch {
		case it.Type == dnswire.TypeSOA:
			soa, ok := dnswire.ParseSOA(it.Name, it.TTL, it.RData)
			if !ok {
				return nil, errState
			}
			zones = append(zones, savedZone{soa: soa})
		case len(zones) == 0:
			return nil, errState
		default:
			last := &zones[len(zones)-1]
			last.items = append(last.items, it)
		}
	}
	return zones, nil
}

// Restore reads the state file, so that there are answers before Run; Run calls
// it if nobody did. The restored copy is stale until a primary replies.
func (r *Secondary) Restore() {
	if r.cfg.File != "" {
		r.restored.Do(r.restore)
	}
}

func (r *Secondary) restore() {
	err := stateFormat.Read(r.cfg.File, func(contents []byte) error {
		zones, err := parseState(contents)
		if err == nil {
			err = r.restoreZones(zones)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.cfg.Log.Error("cannot use the state file", "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.file, _ = os.Stat(r.cfg.File)
}

func (r *Secondary) restoreZones(zones []savedZone) error {
	r.write.Lock()
	defer r.write.Unlock()
	for _, s := range zones {
		for _, z := range r.zones {
			if z.name != s.soa.Zone {
				continue
			}
			z.copy.SetStale(old)
			if err := z.copy.Replace(s.soa, s.items); err != nil {
				z.copy.SetStale(nil)
				return err
			}
			r.mu.Lock()
			z.soa, z.loaded, z.stale = s.soa, true, true
			r.mu.Unlock()
			r.cfg.Log.Info("answering from the state file until a primary server replies", "zone", z.name,
				"serial", s.soa.Serial)
		}
	}
	return nil
}
