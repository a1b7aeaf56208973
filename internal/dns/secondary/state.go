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

// kind is that of state files: each zone's SOA record, the others of the zone
// behind it, with marks. A record is the owner, without compression, type, TTL,
// length of the RDATA, RDATA.
const kind = statefile.Format("portolan replica 1\n")

// saveTime is how far apart two files are written, at least, and saveRest how many
// times as long as writing one took: all of it is written, however little changed,
// and what a file lacks is one IXFR at the next start.
const (
	saveTime = 5 * time.Second
	saveRest = 50
)

// saving is how the file stands.
type saving struct {
	unsaved  bool
	failing  bool
	written  time.Time
	failures uint64
	file     os.FileInfo // as it was read or written last; nil while there was none
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

// save writes the file if anything changed. What is wrong is logged when it
// begins and when it ends: the disk may be full for long.
func (r *Secondary) save() {
	r.mu.Lock()
	unsaved := r.state.unsaved
	r.state.unsaved = false
	r.mu.Unlock()
	if !unsaved {
		return
	}
	moments := r.moments()
	err := kind.Write(r.cfg.File, func(w io.Writer) error { return writeMoments(w, moments) })
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
		r.cfg.Log.Error("copy can't be saved; the last one stays, and it is tried again", "err", err)
	case ended:
		r.cfg.Log.Info("copy can be saved again", "file", r.cfg.File)
	}
}

// saveLast writes the file when nothing changes any more, unless another agent wrote
// it since this one did: that one goes on, and what it wrote is newer.
func (r *Secondary) saveLast() {
	now, err := os.Stat(r.cfg.File)
	r.mu.Lock()
	last := r.state.file
	r.mu.Unlock()
	if err == nil && (last == nil || !os.SameFile(now, last) || !now.ModTime().Equal(last.ModTime())) {
		r.cfg.Log.Info("copy is not saved: another agent saves its own", "file", r.cfg.File)
		return
	}
	r.save()
}

// moments are the copies of the moment, of zones that there are.
func (r *Secondary) moments() (all []*zone.Version) {
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

func writeMoments(w io.Writer, moments []*zone.Version) error {
	var b []byte
	for _, m := range moments {
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

var errState = errors.New("it holds what no copy does")

// saved is a zone in a state file.
type saved struct {
	soa   dnswire.SOA
	items []zone.TransferRecord
}

// parseState reads the contents of a state file, whose octets stay theirs.
func parseState(b []byte) (zones []saved, err error) {
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
			zones = append(zones, saved{soa: soa})
		case len(zones) == 0:
			return nil, errState
		default:
			last := &zones[len(zones)-1]
			last.items = append(last.items, it)
		}
	}
	return zones, nil
}

// Restore reads the file, so that there are answers before Run; Run does so where
// it was not done. What the file holds is old until a server was heard.
func (r *Secondary) Restore() {
	if r.cfg.File != "" {
		r.restored.Do(r.restore)
	}
}

func (r *Secondary) restore() {
	err := kind.Read(r.cfg.File, func(contents []byte) error {
		zones, err := parseState(contents)
		if err == nil {
			err = r.restoreZones(zones)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.cfg.Log.Error("saved copy can't be used", "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.file, _ = os.Stat(r.cfg.File)
}

func (r *Secondary) restoreZones(zones []saved) error {
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
			z.soa, z.loaded, z.old = s.soa, true, true
			r.mu.Unlock()
			r.cfg.Log.Info("saved copy is answered from until a server is heard", "zone", z.name, "serial", s.soa.Serial)
		}
	}
	return nil
}
