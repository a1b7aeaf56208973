package node

import (
	"context"
	"fmt"
	"time"

	"portolan.dev/portolan/test/netns/nodes"
)

// octetsRow is the cost of an agent's queries to the server, per query: the octets of
// IP packets with their content, and the packets.
type octetsRow struct {
	what string
	pod  float64 // octets of the Pod's query
	// These are the agent's, over UDP and over its persistent TCP connection: the
	// octets to the server, and the packets in both directions.
	udp, udpPackets, tcp, tcpPackets float64
}

// relays are the forms in which agents send the search path to servers.
var relays = []struct {
	what, settings, more string
	searched             bool
}{
	{"no option: the name in full", "option: paths", "", false},
	{"option with 3 paths", "option: paths", "", true},
	{"option with 3 paths and 3 of the host's", "option: paths",
		"  autopath: {hostPaths: [eu-west-1.compute.internal, corp.example.com, example.com]}\n", true},
	{"compact option", "option: compact", "", true},
}

// measureOctets queries names from the first Pod, one after another, each once.
func (b *bench) measureOctets(ctx context.Context, r *results, _ int) error {
	for _, w := range b.ways {
		if w.name != kepCache {
			continue
		}
		for _, relay := range relays {
			row := octetsRow{what: relay.what}
			for _, protocol := range []string{"udp", "tcp"} {
				w.agent = func(b *bench, node int) (*nodes.Process, error) {
					config := fmt.Sprintf("node: {mode: cache, addresses: ['%s', '%s'], servers: ['%s://%s'], %s}\n", nodes.Local,
						nodes.DNSService, protocol, nodes.ServerService, relay.settings)
					return b.startAgent(node, config+elsewhere+relay.more)
				}
				err := b.on(ctx, w, func(_ context.Context, s *stage) error {
					t, err := s.octetsOf(relay.searched)
					row.pod = perQuery(t.Queries.Bytes)
					if protocol == "udp" {
						row.udp, row.udpPackets = perQuery(t.Up.Bytes), perQuery(t.Up.Packets+t.Down.Packets)
					} else {
						row.tcp, row.tcpPackets = perQuery(t.Up.Bytes), perQuery(t.Up.Packets+t.Down.Packets)
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			r.octets = append(r.octets, row)
		}
	}
	return nil
}

// askedNames is the number of names queried.
const askedNames = 50

func perQuery(n int) float64 { return float64(n) / askedNames }

func (s *stage) octetsOf(searched bool) (t nodes.Traffic, err error) {
	if err := s.world.StartCount(); err != nil {
		return t, err
	}
	for i := range askedNames {
		want := s.short(0, 1+i)
		if searched {
			want.Name = nodes.Searched(want.Name, s.namespace(0))
		} else {
			want.Name += "." + s.namespace(0) + ".svc.cluster.local"
		}
		q, err := s.world.Pods[0].Ask(s.service, want, time.Second)
		if err != nil {
			return t, err
		}
		if q.Result != nodes.Right {
			return t, fmt.Errorf("%s: %+v", want.Name, q)
		}
	}
	return s.world.Counted(0)
}
