package secondaries

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// wholeZone is the cost of a transfer of the whole zone (AXFR).
type wholeZone struct {
	octets       float64
	first        time.Duration // processor time of the server for a single transfer
	quiet, churn manyAtOnce    // without changes, and while EndpointSlices change
	before       float64       // resident memory, MiB
}

// manyAtOnce is the cost of concurrent transfers of the zone.
type manyAtOnce struct {
	each    time.Duration // processor time of the server for one transfer
	took    time.Duration // all transfers
	refused float64       // number of refused transfers
	most    float64       // highest resident memory of the server so far, MiB
}

// atOnce is the number of concurrent transfers, which is the server's default limit.
const atOnce = 100

// measureWhole measures one transfer of the zone and then many at once, without changes
// and while EndpointSlices change.
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
	// NOTIFYs to followers are not part of this measurement.
	w.asks.Store(false)
	stop := w.churn.start(ctx)
	m.churn, err = w.takeMany(checked.messages)
	return m, errors.Join(err, stop())
}

// takeMany transfers many copies of the zone at once, of about this number of messages
// each.
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

// takeWhole transfers the zone. It parses messages only near the end: checking all
// would need all processors.
func (w *world) takeWhole(messages int, refused *atomic.Int64) error {
	const near = 10 // messages before the end, if there were changes meanwhile
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
