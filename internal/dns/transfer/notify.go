package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Times of notices. RFC 1996, section 3.6 leaves them to the server, but for the
// doubling and an end.
const (
	noticePause = 200 * time.Millisecond // between two to one secondary of one zone
	lookTime    = 50 * time.Millisecond  // between two looks for whom to tell
	retryTime   = time.Second            // until the second one, twice that until the third
	maxTries    = 6
	keyTime     = time.Second // between two looks at keys

	readPause = 50 * time.Millisecond // before a socket that failed is read again
)

// maxNotices is how many secondaries and zones there are, multiplied, at most;
// others are not told.
const maxNotices = 1 << 17

// notifier tells secondaries of changes.
type notifier struct {
	*Sender
	conn *net.UDPConn

	mu      sync.Mutex
	notices map[noticeKey]*notice
}

// noticeKey is what there is one notice of.
type noticeKey struct {
	secondary netip.AddrPort
	zone      dnsname.Name
}

// notice is what a secondary is told of a zone.
type notice struct {
	serial   uint32
	sent     time.Time // last
	due      time.Time // the next; zero when there is none
	tries    int
	message  []byte // as it was sent, without a signature
	exchange *dnswire.TSIGExchange
	listed   bool
}

// Changed says that zones may have changed. It does not wait.
func (s *Sender) Changed() {
	select {
	case s.changed <- struct{}{}:
	default: // it was said already
	}
}

// Run tells secondaries of changes, and reads keys again when they change, until
// ctx is done. It returns ctx's error, or why it can't begin.
func (s *Sender) Run(ctx context.Context, log *slog.Logger) error {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	n := &notifier{Sender: s, conn: conn, notices: make(map[noticeKey]*notice)}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var reader sync.WaitGroup
	reader.Go(func() { n.readAnswers(ctx) })
	defer reader.Wait()
	defer conn.Close()
	keys, look := time.NewTicker(keyTime), time.NewTimer(0)
	defer keys.Stop()
	defer look.Stop()
	var problem error
	looked := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-keys.C:
			problem = s.rereadKeys(log, problem)
			look.Reset(0) // for secondaries that came
			continue
		case <-s.changed:
			look.Reset(time.Until(looked.Add(lookTime)))
			continue
		case <-look.C:
		}
		looked = time.Now()
		if next := n.tell(looked); !next.IsZero() {
			look.Reset(max(lookTime, time.Until(next)))
		}
	}
}

// tell sends the notices that are due, and says when the next is; zero for none.
func (n *notifier) tell(now time.Time) (next time.Time) {
	if n.cfg.Secondaries == nil {
		return time.Time{}
	}
	zones := slices.DeleteFunc(n.cfg.Data.Transferable(), func(soa dnswire.SOA) bool {
		return soa.Zone == dnsname.ReverseIPv4 || soa.Zone == dnsname.ReverseIPv6
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, secondary := range n.cfg.Secondaries() {
		for i := range zones {
			if due := n.tellOne(secondary, &zones[i], now); !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
	}
	for key, one := range n.notices {
		if !one.listed && len(zones) > 0 {
			delete(n.notices, key) // no secondary any more, or of no zone that is loaded
		}
		one.listed = false
	}
	return next
}

// tellOne tells a secondary of a zone, if that is due, and says when it is again.
func (n *notifier) tellOne(secondary netip.AddrPort, soa *dnswire.SOA, now time.Time) (due time.Time) {
	key := noticeKey{secondary, soa.Zone}
	one := n.notices[key]
	switch {
	case one == nil && len(n.notices) >= maxNotices:
		return time.Time{}
	case one == nil:
		one = &notice{serial: soa.Serial, due: now}
		n.notices[key] = one
	case one.serial != soa.Serial:
		one.serial, one.tries, one.due = soa.Serial, 0, one.sent.Add(noticePause)
	}
	one.listed = true
	if one.due.IsZero() || now.Before(one.due) {
		return one.due
	}
	if one.tries == maxTries {
		n.figures.notices[NotifyUnanswered].Add(1)
		one.due = time.Time{}
		return one.due
	}
	n.send(secondary, one, soa)
	one.sent, one.due = now, now.Add(retryTime<<one.tries)
	one.tries++
	return one.due
}

// send sends a notice.
func (n *notifier) send(secondary netip.AddrPort, one *notice, soa *dnswire.SOA) {
	one.message = dnswire.NewNotify(uint16(rand.Uint32()), soa)
	packet := one.message
	one.exchange = nil
	if key := n.keyFor(secondary.Addr()); key != nil {
		one.exchange = key.NewExchange()
		packet = one.exchange.Sign(slices.Clone(packet), time.Now())
	}
	if _, err := n.conn.WriteToUDPAddrPort(packet, secondary); err != nil {
		n.figures.notices[NotifyUnsent].Add(1)
	}
}

// keyFor is the key that signs notices to a secondary: that of the first rule
// that has one and is for its address.
func (s *Sender) keyFor(addr netip.Addr) *dnswire.TSIGKey {
	for i := range s.cfg.Permissions {
		if r := &s.cfg.Permissions[i]; !r.Key.IsRoot() && r.covers(addr) {
			return s.Key(r.Key)
		}
	}
	return nil
}

// readAnswers takes in answers to notices until the socket is closed.
func (n *notifier) readAnswers(ctx context.Context) {
	buf := make([]byte, dnswire.MaxMessage)
	for {
		length, from, err := n.conn.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			pause(ctx, readPause)
			continue
		}
		n.answered(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buf[:length])
	}
}

// pause waits so long, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answered ends the notice that a reply answers. Any answer is one (RFC 1996,
// section 3.8), if it is signed where the notice was.
func (n *notifier) answered(from netip.AddrPort, reply []byte) {
	var q dnswire.Query
	if q.ParseHeader(reply) != nil || q.ParseBody(reply) != nil {
		return
	}
	apex, _, err := dnsname.FromWire(q.Question)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.notices[noticeKey{from, apex}]
	if one == nil || one.due.IsZero() || one.tries == 0 {
		return
	}
	if _, ok := dnswire.MatchNotifyReply(reply, one.message); !ok {
		return
	}
	if one.exchange != nil && one.exchange.Verify(reply, time.Now()) != nil {
		return
	}
	n.figures.notices[NotifyAnswered].Add(1)
	one.due = time.Time{}
}
