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

// Times of NOTIFYs. RFC 1996, section 3.6, leaves them to the server, but
// requires that the interval doubles and that retries end.
const (
	noticePause = 200 * time.Millisecond // between two NOTIFYs for a zone to one secondary
	lookTime    = 50 * time.Millisecond  // between two checks for new secondaries
	retryTime   = time.Second            // before the first retry; it doubles
	maxTries    = 6
	keyTime     = time.Second // the shortest interval between reads of a key file

	readPause = 50 * time.Millisecond // after an error of the socket
)

// maxNotices bounds the number of pairs of secondary and zone; further ones are
// not notified.
const maxNotices = 1 << 17

// notifier sends NOTIFYs to secondaries.
type notifier struct {
	*Sender
	conn *net.UDPConn

	mu      sync.Mutex
	notices map[noticeKey]*notice
}

// noticeKey identifies a notice.
type noticeKey struct {
	secondary netip.AddrPort
	zone      dnsname.Name
}

// notice is the state of notifying one secondary of one zone.
type notice struct {
	serial   uint32
	sent     time.Time // last
	due      time.Time // when to send next; zero if not
	tries    int
	message  []byte // the last one sent, unsigned
	exchange *dnswire.TSIGExchange
	listed   bool
}

// Changed tells the Sender that zones may have changed. It does not block.
func (s *Sender) Changed() {
	select {
	case s.changed <- struct{}{}:
	default: // already pending
	}
}

// Run sends NOTIFYs and rereads keys when their files change, until ctx is
// done. It returns ctx's error, or an error if it cannot open its sockets.
func (s *Sender) Run(ctx context.Context, log *slog.Logger) error {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	n := &notifier{Sender: s, conn: conn, notices: make(map[noticeKey]*notice)}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var reader sync.WaitGroup
	reader.Go(func() { n.readReplies(ctx) })
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
			problem = s.keyring.reread(ctx, log, problem)
			look.Reset(0) // for new secondaries
			continue
		case <-s.changed:
			look.Reset(time.Until(looked.Add(lookTime)))
			continue
		case <-look.C:
		}
		looked = time.Now()
		if next := n.notifyDue(looked); !next.IsZero() {
			look.Reset(max(lookTime, time.Until(next)))
		}
	}
}

// notifyDue sends the notices that are due and returns when the next one is
// due; zero if none is.
func (n *notifier) notifyDue(now time.Time) (next time.Time) {
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
			if due := n.notifyOne(secondary, &zones[i], now); !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
	}
	for key, one := range n.notices {
		if !one.listed && len(zones) > 0 {
			delete(n.notices, key) // of a secondary that is gone, or a zone that is not loaded
		}
		one.listed = false
	}
	return next
}

// notifyOne notifies a secondary of a zone if that is due, and returns when it
// is due again.
func (n *notifier) notifyOne(secondary netip.AddrPort, soa *dnswire.SOA, now time.Time) (due time.Time) {
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
		n.counters.notices[NotifyUnanswered].Add(1)
		one.due = time.Time{}
		return one.due
	}
	n.send(secondary, one, soa)
	one.sent, one.due = now, now.Add(retryTime<<one.tries)
	one.tries++
	return one.due
}

// send sends a NOTIFY.
func (n *notifier) send(secondary netip.AddrPort, one *notice, soa *dnswire.SOA) {
	one.message = dnswire.NewNotify(uint16(rand.Uint32()), soa)
	packet := one.message
	one.exchange = nil
	if key := n.keyFor(secondary.Addr()); key != nil {
		one.exchange = key.NewExchange()
		packet = one.exchange.Sign(slices.Clone(packet), time.Now())
	}
	if _, err := n.conn.WriteToUDPAddrPort(packet, secondary); err != nil {
		n.counters.notices[NotifyUnsent].Add(1)
	}
}

// keyFor returns the key that signs NOTIFYs to a secondary: that of the first
// permission with a key that covers its address.
func (s *Sender) keyFor(addr netip.Addr) *dnswire.TSIGKey {
	for i := range s.cfg.Permissions {
		if r := &s.cfg.Permissions[i]; !r.Key.IsRoot() && r.covers(addr) {
			return s.Key(r.Key)
		}
	}
	return nil
}

// readReplies handles replies to NOTIFYs until the socket is closed.
func (n *notifier) readReplies(ctx context.Context) {
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
		n.handleReply(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buf[:length])
	}
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// handleReply ends the notice that a reply confirms. Any reply counts (RFC
// 1996, section 3.8), if it is signed when the NOTIFY was.
func (n *notifier) handleReply(from netip.AddrPort, reply []byte) {
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
	n.counters.notices[NotifyAnswered].Add(1)
	one.due = time.Time{}
}
