package transfer

import (
	"errors"
	"sync"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

// image is the messages of a zone, or of what changed in it. All who transfer the
// same at a time share one.
type image struct {
	key      imageKey
	build    func() [][]byte
	once     sync.Once
	messages [][]byte

	// of the images, under their lock
	octets int64 // of the messages; about as many as there will be, until they are made
	users  int
}

// imageKey is what there is one image of.
type imageKey struct {
	zone   dnsname.Name
	whole  bool
	from   uint32 // where it is not whole
	to     uint32
	detail zone.Detail
}

// images are those that are in use, and those of zones as they are now.
type images struct {
	limit int64 // in octets

	making sync.Mutex // held by who makes messages: that takes memory of its own

	mu     sync.Mutex
	all    map[imageKey]*image
	latest map[dnsname.Name]uint32 // the serials that were asked for last
	octets int64
}

// maxImages is how many there may be: whoever holds another serial needs another
// one.
const maxImages = 1024

// errBusy says that there is no room for another image.
var errBusy = errors.New("too many images of zones are in use")

// imageFor is the image that answers q, nil where that is the SOA alone. What it
// is of, it says by kind.
func (s *Sender) imageFor(q *respond.TransferQuery, kind *Kind) (*image, error) {
	now := s.soa(q.Zone)
	if q.Held != nil && q.Held.MName == now.MName {
		if q.Held.Serial == now.Serial {
			// Only what is loaded is up to date.
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

// difference is what changed since the serial that q says.
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

// whole is the zone.
func (s *Sender) whole(q *respond.TransferQuery, now *dnswire.SOA) (*image, error) {
	key := imageKey{zone: q.Zone, whole: true, to: now.Serial, detail: q.Detail}
	return s.images.acquire(key, func(key *imageKey) (func() [][]byte, int64, error) {
		m, err := s.cfg.Data.Version(key.zone)
		if err != nil {
			return nil, 0, err
		}
		key.to = m.SOA.Serial
		return func() [][]byte { return encodeMoment(m, key.detail) }, m.Octets(), nil
	})
}

// encodeMoment: RFC 5936, section 2.2.
func encodeMoment(m *zone.Version, d zone.Detail) [][]byte {
	x := dnswire.NewTransfer(m.SOA.Zone, dnswire.TypeAXFR)
	x.AddSOA(&m.SOA)
	for o := range m.Records(d) {
		x.Add(o.Owner, o.Set)
	}
	x.AddSOA(&m.SOA)
	return x.Messages()
}

// encodeDifference: RFC 1995, section 4, as one sequence (section 5).
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

// acquire gives the image of key, which collect begins to make where there is
// none; the zone may have changed until then, and collect says so, and about how
// many octets there will be. It must be released.
func (x *images) acquire(key imageKey, collect func(*imageKey) (build func() [][]byte, octets int64, err error)) (*image, error) {
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

// makeRoom tells whether there is room for an image of so many octets; one alone may
// have any number. It forgets images that nobody uses: those of the zone's past, and
// all where there is no room.
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

// messagesOf are those of i, made by whoever comes first.
func (x *images) messagesOf(i *image) [][]byte {
	i.once.Do(func() {
		x.making.Lock()
		defer x.making.Unlock()
		i.messages = i.build()
		i.build = nil // and what it was made of
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

// release ends a use of i, which is forgotten when nobody is left and nobody will
// ask for it again.
func (x *images) release(i *image) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i.users--
	if i.users == 0 && x.latest[i.key.zone] != i.key.to {
		x.forget(i)
	}
}
