package transfer

import (
	"errors"
	"sync"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// image is the encoded messages of a zone or of a difference. Concurrent equal
// transfers share one image.
type image struct {
	key      imageKey
	build    func() [][]byte
	once     sync.Once
	messages [][]byte

	// Protected by images.mu:
	octets int64 // of the messages; an estimate until they are built
	users  int
}

// imageKey identifies an image.
type imageKey struct {
	zone   dnsname.Name
	whole  bool
	from   uint32 // the older serial of a difference
	to     uint32
	detail zone.Detail
}

// images are the images in use and those of the present versions of zones.
type images struct {
	limit int64 // in octets

	making sync.Mutex // held while messages are built, because that takes additional memory

	mu     sync.Mutex
	all    map[imageKey]*image
	latest map[dnsname.Name]uint32 // the serials last requested
	octets int64
}

// maxImages bounds the number of images, because each older serial needs its
// own.
const maxImages = 1024

// errBusy reports that there is no room for another image.
var errBusy = errors.New("too many versions of zones are being transferred")

// imageFor returns the image that answers q and sets kind; nil if the SOA alone
// answers q.
func (s *Sender) imageFor(q *respond.TransferQuery, kind *Kind) (*image, error) {
	now := s.soa(q.Zone)
	if q.Held != nil && q.Held.MName == now.MName {
		if q.Held.Serial == now.Serial {
			// Only a loaded zone can be reported as up to date.
			_, err := s.cfg.Data.Since(q.Zone, now.Serial)
			if !errors.Is(err, zone.ErrHistory) {
				return nil, err
			}
		}
		i, err := s.difference(q, now)
		if !errors.Is(err, zone.ErrHistory) {
			return i, err
		}
	}
	if q.Held != nil {
		*kind = KindFullIXFR
	}
	return s.whole(q, now)
}

// difference returns the image of the changes since the serial in q.
func (s *Sender) difference(q *respond.TransferQuery, now *dnswire.SOA) (*image, error) {
	key := imageKey{zone: q.Zone, from: q.Held.Serial, to: now.Serial, detail: q.Detail}
	return s.images.acquire(key, func(key *imageKey) (func() [][]byte, int64, error) {
		d, err := s.cfg.Data.Since(key.zone, key.from)
		if err != nil {
			return nil, 0, err
		}
		key.to = d.To.Serial
		return func() [][]byte { return encodeDifference(d, key.detail) }, d.Octets(), nil
	})
}

// whole returns the image of the whole zone.
func (s *Sender) whole(q *respond.TransferQuery, now *dnswire.SOA) (*image, error) {
	key := imageKey{zone: q.Zone, whole: true, to: now.Serial, detail: q.Detail}
	return s.images.acquire(key, func(key *imageKey) (func() [][]byte, int64, error) {
		m, err := s.cfg.Data.Version(key.zone)
		if err != nil {
			return nil, 0, err
		}
		key.to = m.SOA.Serial
		return func() [][]byte { return encodeVersion(m, key.detail) }, m.Octets(), nil
	})
}

// encodeVersion encodes a whole zone (RFC 5936, section 2.2).
func encodeVersion(m *zone.Version, d zone.Detail) [][]byte {
	x := dnswire.NewTransfer(m.SOA.Zone, dnswire.TypeAXFR)
	x.AddSOA(&m.SOA)
	for o := range m.Records(d) {
		x.Add(o.Owner, o.Set)
	}
	x.AddSOA(&m.SOA)
	return x.Messages()
}

// encodeDifference encodes a difference (RFC 1995, section 4) as one sequence
// (section 5).
func encodeDifference(d *zone.Difference, detail zone.Detail) [][]byte {
	gone, come := d.Records(detail)
	x := dnswire.NewTransfer(d.To.Zone, dnswire.TypeIXFR)
	x.AddSOA(&d.To)
	x.AddSOA(&d.From)
	for _, o := range gone {
		x.Add(o.Owner, o.Set)
	}
	x.AddSOA(&d.To)
	for _, o := range come {
		x.Add(o.Owner, o.Set)
	}
	x.AddSOA(&d.To)
	return x.Messages()
}

// acquire returns the image of key and counts a use, which release ends. If
// there is no image, collect prepares one; because the zone may have changed,
// it updates the key, and it estimates the number of octets.
func (x *images) acquire(
	key imageKey,
	collect func(*imageKey) (build func() [][]byte, octets int64, err error),
) (*image, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.all[key]; i != nil {
		i.users++
		return i, nil
	}
	if !x.makeRoom(key, 1) {
		return nil, errBusy
	}
	build, octets, err := collect(&key)
	if err != nil {
		return nil, err
	}
	i := x.all[key]
	if i == nil {
		if !x.makeRoom(key, octets) {
			return nil, errBusy
		}
		i = &image{key: key, build: build, octets: octets}
		x.all[key] = i
		x.octets += octets
	}
	x.latest[key.zone] = key.to
	i.users++
	return i, nil
}

// makeRoom reports whether there is room for an image of that many octets; a
// single image may have any size. It drops unused images: those of older
// versions, and all if room is lacking.
func (x *images) makeRoom(now imageKey, octets int64) (room bool) {
	full := !x.hasRoom(octets)
	for key, i := range x.all {
		if i.users == 0 && (full || key.zone == now.zone && key.to != now.to) {
			x.forget(i)
		}
	}
	return x.hasRoom(octets)
}

func (x *images) hasRoom(octets int64) bool {
	return len(x.all) < maxImages && (len(x.all) == 0 || x.octets+octets <= x.limit)
}

func (x *images) forget(i *image) {
	delete(x.all, i.key)
	x.octets -= i.octets
}

// messagesOf returns the messages of i, which the first caller builds.
func (x *images) messagesOf(i *image) [][]byte {
	i.once.Do(func() {
		x.making.Lock()
		defer x.making.Unlock()
		i.messages = i.build()
		i.build = nil // frees what it was built from
		octets := int64(0)
		for _, m := range i.messages {
			octets += int64(len(m))
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.octets += octets - i.octets
		i.octets = octets
	})
	return i.messages
}

// release ends a use of i. It drops the image if it is unused and not of the
// present version.
func (x *images) release(i *image) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i.users--
	if i.users == 0 && x.latest[i.key.zone] != i.key.to {
		x.forget(i)
	}
}
