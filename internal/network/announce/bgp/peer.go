package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/support/retry"
)

// dialTime is how long a connection may take.
const dialTime = 10 * time.Second

// errRouterID is the error of a node without an ID.
var errRouterID = errors.New("the node has no address of IPv4 to identify it; set network.announce.bgp.routerID")

// peer is a router, and the connection to it.
type peer struct {
	*Peer
	figures
	speaker *Speaker
	changed chan struct{}
	log     *slog.Logger
	// before: the process had a connection.
	before bool
}

// run keeps a connection until ctx is done.
func (p *peer) run(ctx context.Context) {
	var backoff retry.Backoff
	for ctx.Err() == nil {
		state := p.speaker.now()
		if !p.selects(state.Labels) || len(state.NextHops) == 0 { // or the Node is not known yet
			select {
			case <-ctx.Done():
			case <-p.changed:
			}
			continue
		}
		connections := p.connections.Load()
		err := p.connect(ctx, &state)
		p.established.Store(false)
		if ctx.Err() != nil {
			return
		}
		if p.connections.Load() > connections {
			backoff = retry.Backoff{}
		}
		pause := backoff.Next()
		if errors.Is(err, errDeselected) {
			p.log.Info("the node is not to tell the router of addresses any more")
			continue
		}
		p.log.Warn("the router is not told of addresses of load balancers; it is tried again", "err", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// connect connects to the router, and returns when the connection ends.
func (p *peer) connect(ctx context.Context, state *State) error {
	id := p.speaker.routerID(state)
	if !id.IsValid() {
		return errRouterID
	}
	dialer := net.Dialer{Timeout: dialTime}
	dialer.SetMultipathTCP(false) // it has no signatures
	if p.Password != nil {
		password, err := p.Password()
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		dialer.Control = func(_, _ string, c syscall.RawConn) error { return sign(c, p.Address, password) }
	}
	conn, err := dialer.DialContext(ctx, "tcp", p.addrPort().String())
	if err != nil {
		return err
	}
	s := &session{cfg: &p.speaker.cfg, peer: p.Peer, conn: conn, ours: open{
		asn: p.speaker.cfg.ASN, holdTime: p.speaker.cfg.HoldTime, routerID: id, asn4: true,
		families: []family{familyIPv4, familyIPv6}, graceful: p.GracefulRestart, restarted: !p.before,
	}}
	s.up = func() {
		p.before = true
		p.connections.Add(1)
		p.established.Store(true)
		p.log.Info("the router is told of addresses of load balancers", "asn", p.ASN, "holdTime", s.hold)
	}
	return s.run(ctx, p.changed, p.speaker.now)
}
