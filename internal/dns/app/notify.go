package app

import (
	"context"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/bind"
)

// notifyOnly answers NOTIFY (RFC 1996) and drops all other messages: primaries notify
// an agent at an address of its node that other clients can reach, too.
type notifyOnly struct{ dnsserver.Answerer }

// Respond answers a NOTIFY message and drops any other. See respond.Worker.
func (n notifyOnly) Respond(packet []byte, client respond.Client, buf []byte) ([]byte, dnsserver.Deferred) {
	if dnswire.OpcodeOf(packet) != dnswire.OpcodeNotify {
		return nil, nil
	}
	return n.Answerer.Respond(packet, client, buf)
}

// notifyServer receives the NOTIFY messages of primaries.
type notifyServer struct {
	listen netip.AddrPort    // invalid if there is no such server
	server *dnsserver.Server // nil until bound
}

// listenNotify binds the server for NOTIFY, if one is configured.
func (d *DNS) listenNotify(ctx context.Context) (err error) {
	if !d.notify.listen.IsValid() {
		return nil
	}
	tcp := d.cfg.Settings.DNS.TCP
	behind := dnsserver.Seats(len(d.current.Load().settings.DNS.Listen))
	d.notify.server, err = dnsserver.Listen(ctx, dnsserver.Config{
		Listen:         []netip.AddrPort{d.notify.listen},
		NewAnswerer:    func(seat int) dnsserver.Answerer { return notifyOnly{d.newWorker(behind + seat)} },
		MaxConnections: tcp.MaxConnections,
		MaxInFlight:    tcp.MaxInFlight,
		MaxQueries:     tcp.MaxQueries,
		Idle:           time.Duration(tcp.Idle),
		Steering:       dnsserver.SteerByHash,
		SharePorts:     true,
		Log:            d.cfg.Log,
	})
	return bind.WithCure(err, "node.notify")
}

// seats returns the number of Answerers that work at the same time, including those of
// listenNotify.
func (d *DNS) seats(listen []netip.AddrPort) int {
	n := dnsserver.Seats(len(listen))
	if d.notify.listen.IsValid() {
		n += dnsserver.Seats(1)
	}
	return n
}
