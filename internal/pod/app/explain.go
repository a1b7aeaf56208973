package app

import (
	"context"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Question is the input of Explain.
type Question struct {
	Name    string
	Type    dnswire.Type // 0 is A and AAAA
	Subject dnsconfig.Subject
	Libc    dnsconfig.Libc
	Node    NodeSettings
	// Routed is that of explain.Request.
	Routed bool
	// Live sends the queries to the nameservers of the Pod's resolv.conf. If it is nil, the model
	// answers for the cluster DNS, and other servers are not queried.
	Live *Sending
}

// Explain explains how a name resolves in a Pod, or why it does not.
func (i *Inspector) Explain(ctx context.Context, q Question) (e *explain.Explanation) {
	i.store.View(func(v *cluster.View) { e = i.explain(ctx, i.rules(v, q.Node), q) })
	return e
}

// explain is Explain, by a Linter of the model.
func (i *Inspector) explain(ctx context.Context, l *lint.Linter, q Question) *explain.Explanation {
	node := i.node(l.View, &q.Subject, q.Node)
	ask, model := i.askModel(node.ClusterDNS, q.Subject.Pod), explain.QueryFunc(nil)
	if q.Live != nil {
		ask, model = askLive(ctx, q.Live, i.isClusterDNS(node.ClusterDNS)), ask
	}
	return explain.Explain(explain.Request{
		Name: q.Name, Type: q.Type, Subject: q.Subject, Libc: q.Libc, Node: node,
		Linter: l, Query: ask, Model: model, ServerSearch: i.searched(), Unread: i.unread,
		ZoneProblem: i.zoneProblem, Routed: q.Routed,
		NoPodNames: i.settings.DNS.Pods == string(kubezone.PodsDisabled),
	})
}

// askModel returns a QueryFunc that answers for the cluster DNS from the model. It
// sends no queries for names outside the cluster.
func (i *Inspector) askModel(clusterDNS []netip.Addr, pod *cluster.Pod) explain.QueryFunc {
	worker, rules := i.dns.NewWorker(0), i.suppression()
	var client respond.Client
	if pod != nil && len(pod.IPs) > 0 {
		client.Addr = pod.IPs[0]
	}
	searched := i.searched()
	isClusterDNS := i.isClusterDNS(clusterDNS)
	return func(server netip.Addr, q stubresolver.Query) explain.Answer {
		if server == explain.UnknownServer() {
			return explain.Answer{NotAsked: serverUnknown}
		}
		if !isClusterDNS(server) {
			return explain.Answer{NotAsked: server.String() + " is not the cluster's DNS, and was not asked; --live asks it"}
		}
		packet, err := packetOf(q)
		if err != nil {
			return explain.Answer{Loss: stubresolver.Timeout}
		}
		client.Transport = respond.UDP
		if q.TCP {
			client.Transport = respond.TCP
		}
		wire, later := worker.Respond(packet, client, make([]byte, 0, dnswire.MaxMessage))
		switch {
		case later != nil:
			return explain.Answer{NotAsked: notOurs}
		case len(wire) == 0: // dropped by a rule
			return explain.Answer{Loss: stubresolver.Timeout}
		}
		m, err := dnswire.ParseMessage(wire)
		switch {
		case err != nil:
			return explain.Answer{Loss: stubresolver.Timeout}
		case m.Code == dnswire.Refused && slices.ContainsFunc(m.Errors, isNotAuthoritative):
			if !rules.suppresses(client.Addr, q.Name, q.Type) {
				return explain.Answer{NotAsked: notOurs}
			}
			m.Code, m.Status, m.Errors = dnswire.NoError, dnswire.NoError.String(), []dnswire.ExtendedError{suppressed}
		case rules.suppresses(client.Addr, explain.Unfollowed(m, q.Type), q.Type):
			m.Errors = append(m.Errors, suppressed)
		}
		if m.Code == dnswire.NXDomain && searched(q.Name) != nil {
			return explain.Answer{NotAsked: notSearched}
		}
		return explain.Answer{Message: m, FromModel: true}
	}
}

// suppressed is the Extended DNS Error of an answer that dns.suppress determines.
var suppressed = dnswire.ExtendedError{
	Code: uint16(dnswire.EDEFiltered), Text: "dns.suppress lists this type for names outside the cluster",
}

// suppression is dns.suppress where names outside the cluster are forwarded, and no rule
// where they are not.
type suppression struct{ rules *filter.Filter }

func (i *Inspector) suppression() suppression {
	if len(i.compiled.DNS.Routes) == 0 {
		return suppression{}
	}
	rules, err := filter.New(filter.Config{Suppress: i.compiled.DNS.Rules.Suppress})
	if err != nil {
		return suppression{} // only files cause errors
	}
	return suppression{rules}
}

// suppresses reports whether a name, which is outside the cluster, is answered without
// records of a type.
func (s suppression) suppresses(client netip.Addr, name string, t dnswire.Type) bool {
	parsed, err := dnsname.Parse(name)
	return s.rules != nil && name != "" && err == nil && s.rules.Suppresses(client, []byte(parsed.WireLabels()), t)
}

// isClusterDNS returns a function that reports whether an address is that of the cluster
// DNS, of an agent or of a node's cache.
func (i *Inspector) isClusterDNS(clusterDNS []netip.Addr) func(netip.Addr) bool {
	servers := slices.Concat(clusterDNS, i.compiled.Webhook.NodeDNS)
	return func(server netip.Addr) bool {
		return slices.Contains(servers, server.Unmap()) || server.IsLinkLocalUnicast()
	}
}

// searched returns a function that returns the names the server tries for a name that
// carries search paths; nil for any other name.
func (i *Inspector) searched() func(text string) []string {
	r := autopath.New(i.compiled.DNS.Autopath)
	return func(text string) (names []string) {
		var s autopath.Search
		name, err := dnsname.Parse(text)
		if err != nil || r.Name([]byte(name.WireLabels()), &s) != autopath.Named {
			return nil
		}
		for n := range s.Len() {
			wire := s.Append(nil, n)
			if wire == nil {
				continue // the name would be too long
			}
			if name, _, err := dnsname.FromWire(append(wire, 0)); err == nil {
				names = append(names, name.String())
			}
		}
		return names
	}
}

// serverUnknown is the note on queries to the nameservers of a node whose resolv.conf is
// not known.
const serverUnknown = "the node's nameservers are not known; --node-resolv-conf names its resolv.conf"

// notOurs is the note on names outside the cluster without --live.
const notOurs = "outside the cluster, no server was queried; use --live"

// notSearched is the note on a search without --live that found no name of the cluster.
const notSearched = "its search paths have no name of the cluster, and no server was queried for others; use --live"

// packetOf returns the packet of a resolver's query.
func packetOf(q stubresolver.Query) ([]byte, error) {
	return dnswire.NewQuery(
		dnswire.QuerySpec{
			Name: q.Name, Type: q.Type, UDPSize: uint16(min(q.Size, dnswire.MaxMessage)), Flags: dnswire.FlagRD,
		},
	)
}

func isNotAuthoritative(e dnswire.ExtendedError) bool {
	return e.Code == uint16(dnswire.EDENotAuthoritative)
}
