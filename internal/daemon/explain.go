package daemon

import (
	"context"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dnswire"
	"portolan.dev/portolan/internal/explain"
	"portolan.dev/portolan/internal/podresolv"
	"portolan.dev/portolan/internal/respond"
	"portolan.dev/portolan/internal/stub"
)

// Question is what Explain is asked.
type Question struct {
	Name    string
	Type    dnswire.Type // 0 is A and AAAA
	Subject podresolv.Subject
	Libc    podresolv.Libc
	Node    NodeSettings
	// Live has the servers asked that the Pod's resolv.conf names or, if it is
	// valid, the one at Server in place of them; else the model answers for the
	// cluster's DNS, and nobody for others.
	Live   bool
	Server netip.AddrPort
}

// Explain says what becomes of a name in a Pod.
func (d *Daemon) Explain(ctx context.Context, q Question) (e *explain.Explanation) {
	d.store.View(func(v *cluster.View) {
		node := d.node(v, &q.Subject, q.Node)
		ask := d.askModel(ctx, node.ClusterDNS)
		if q.Live {
			ask = askLive(ctx, q.Server)
		}
		e = explain.Explain(explain.Request{
			Name: q.Name, Type: q.Type, Subject: q.Subject, Libc: q.Libc, Node: node,
			Cluster: d.rules(v, q.Node), Ask: ask,
		})
	})
	return e
}

// askModel answers for the cluster's DNS as the server would, but for names that
// are not the cluster's.
func (d *Daemon) askModel(ctx context.Context, clusterDNS []netip.Addr) explain.Ask {
	worker := d.Responder().NewWorker(0)
	return func(server netip.Addr, q stub.Question) explain.Answer {
		if !slices.Contains(clusterDNS, server.Unmap()) {
			return explain.Answer{Unasked: server.String() + " is not the cluster's DNS, and was not asked; --live asks it"}
		}
		packet, err := packetOf(q)
		if err != nil {
			return explain.Answer{Loss: stub.Timeout}
		}
		client := respond.Client{}
		if q.TCP {
			client.Transport = respond.TCP
		}
		wire, later := worker.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
		if later != nil {
			return explain.Answer{Unasked: "the name is not the cluster's, and nobody was asked; --live asks"}
		}
		m, err := dnswire.ParseMessage(wire)
		switch {
		case err != nil:
			return explain.Answer{Loss: stub.Timeout}
		case m.Code == dnswire.Refused:
			return explain.Answer{Unasked: "the name is not the cluster's, and nobody was asked; --live asks"}
		}
		return explain.Answer{Message: m}
	}
}

// packetOf is a question as a query of a resolver.
func packetOf(q stub.Question) ([]byte, error) {
	return dnswire.NewQuery(dnswire.Question{Name: q.Name, Type: q.Type, UDPSize: uint16(min(q.Size, dnswire.MaxMessage)), Flags: dnswire.FlagRD})
}
