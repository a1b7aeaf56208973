package daemon

import (
	"context"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// notified answers NOTIFY (RFC 1996) and nothing else: servers reach an agent by an
// address of its node's, which others reach, too.
type notified struct{ dnsserver.Answerer }

// Respond answers one message, see respond.Worker; other messages it drops.
func (n notified) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if dnswire.OpcodeOf(packet) != dnswire.OpcodeNotify {
		return nil, nil
	}
	return n.Answerer.Respond(packet, client, buf)
}

// listenNotified binds where an agent is told of changes, if that is anywhere.
func (d *Daemon) listenNotified(ctx context.Context) (err error) {
	settings := d.current.Load().settings
	if !settings.Node.Notify.IsValid() {
		return nil
	}
	behind := dnsserver.Seats(len(settings.DNS.Listen))
	d.agent.notified, err = dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         []netip.AddrPort{settings.Node.Notify},
		NewAnswerer:    func(seat int) dnsserver.Answerer { return notified{d.newWorker(behind + seat)} },
		MaxConnections: d.cfg.DNS.TCP.MaxConnections,
		MaxInFlight:    d.cfg.DNS.TCP.MaxInFlight,
		MaxQueries:     d.cfg.DNS.TCP.MaxQueries,
		Idle:           time.Duration(d.cfg.DNS.TCP.Idle),
		Steering:       dnsserver.SteerByHash,
		SharePorts:     true,
		Log:            d.log,
	})
	return withCure(err, "node.notify")
}

// seats is how many Answerers there are at once.
func (d *Daemon) seats(listen []netip.AddrPort) int {
	n := dnsserver.Seats(len(listen))
	if d.agent != nil {
		n += dnsserver.Seats(1) // of listenNotified
	}
	return n
}
