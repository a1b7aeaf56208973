package secondaries

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// wholeZone is what the whole zone costs (AXFR).
type wholeZone struct {
	octets       float64
	first        time.Duration // processor time of the server for one that is alone
	quiet, churn manyAtOnce    // while nothing changes, and while EndpointSlices do
	before       float64       // resident memory, MiB
}

// manyAtOnce is what many cost that ask for the zone at the same time.
type manyAtOnce struct {
	each    time.Duration // processor time of the server for one
	took    time.Duration // all of them
	refused float64       // of them
	most    float64       // resident memory of the server so far, MiB
}

// atOnce is how many ask for the zone at once: as many as are sent it at once by
// default.
const atOnce = 100

// measureWhole measures one transfer of the zone, and then many at once, while
// nothing changes and while EndpointSlices do.
func (w *world) measureWhole(ctx context.Context) (m wholeZone, err error) {
	if m.before, _, err = w.server.Memory(); err != nil {
		return m, err
	}
	start, err := w.server.ProcessorTime()
	if err != nil {
		return m, err
	}
	s, err := dial(w.server.DNS)
	if err != nil {
		return m, err
	}
	defer s.Close()
	checked, err := s.transfer(&w.key.TSIGKey, nil)
	if err != nil {
		return m, err
	}
	m.octets = float64(checked.octets)
	end, err := w.server.ProcessorTime()
	if err != nil {
		return m, err
	}
	m.first = end - start
	if m.quiet, err = w.takeMany(checked.messages); err != nil {
		return m, err
	}
	// Followers would be told, and their share is not what is measured.
	w.asks.Store(false)
	stop := w.churn.start(ctx)
	m.churn, err = w.takeMany(checked.messages)
	return m, errors.Join(err, stop())
}

// takeMany takes many copies of the zone at once, of so many messages about.
func (w *world) takeMany(messages int) (m manyAtOnce, err error) {
	start, err := w.server.ProcessorTime()
	if err != nil {
		return m, err
	}
	began := time.Now()
	var refused atomic.Int64
	var group errgroup.Group
	for range atOnce {
		group.Go(func() error { return w.takeWhole(messages, &refused) })
	}
	if err := group.Wait(); err != nil {
		return m, err
	}
	m.took, m.refused = time.Since(began), float64(refused.Load())
	end, err := w.server.ProcessorTime()
	if err != nil {
		return m, err
	}
	m.each = (end - start) / max(1, atOnce-time.Duration(refused.Load()))
	_, m.most, err = w.server.Memory()
	return m, err
}

// takeWhole takes the zone, and looks only where the end may be: whoever checked
// all would need all processors.
func (w *world) takeWhole(messages int, refused *atomic.Int64) error {
	const near = 10 // messages before the end where changes went on
	s, err := dial(w.server.DNS)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, _, err := s.ask(&w.key.TSIGKey, nil); err != nil {
		return err
	}
	for n := 0; ; n++ {
		message, err := s.next()
		if err != nil {
			return err
		}
		if dnswire.RCode(message[3]&0xf) != dnswire.NoError {
			refused.Add(1)
			return nil
		}
		if n == 0 || n < messages-near {
			continue
		}
		part, err := dnswire.ParseTransferReply(message)
		if err != nil {
			return err
		}
		for rec := range part.Records {
			if rec.Type() == dnswire.TypeSOA {
				return nil
			}
		}
	}
}
