package app

import (
	"net/netip"

	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/internal/support/evidence"
)

// EvidenceKind is the kind of events that are packets which policies deny.
const EvidenceKind = "drop"

// dropReasons are the reasons of evidence, and the events of the log that they stand for.
var dropReasons = []struct {
	event string
	evidence.Reason
}{
	{"deny", evidence.Reason{Word: "policy", Meaning: "A policy denies the packet; the detail says which."}},
	{"audit", evidence.Reason{Word: "audit", Meaning: "A policy in audit mode would have denied the packet."}},
	{"unknown", evidence.Reason{Word: "unknown-address", Meaning: "No Pod of the node has the address."}},
	{
		"forged",
		evidence.Reason{Word: "forged-source", Meaning: "The source is not an address of the Pod that sent the packet."},
	},
}

// EvidenceReasons returns the reasons of packets that policies deny.
func EvidenceReasons() []evidence.Reason {
	all := make([]evidence.Reason, 0, len(dropReasons))
	for _, r := range dropReasons {
		all = append(all, r.Reason)
	}
	return all
}

// drops tells of packets that policies deny.
type drops struct {
	sampler *evidence.Sampler // nil if nothing is told
}

// dropsBuffer is the number of lines of one second that are told of.
const dropsBuffer = 256

func newDrops(ring *evidence.Ring) *drops {
	source := ring.Source(evidence.SourceConfig{Kind: EvidenceKind, Reasons: EvidenceReasons(), Buffer: dropsBuffer})
	return &drops{source.Sampler(0)}
}

// observe tells of the packets of a line. All are told: the kernel's limit is below any flood.
func (d *drops) observe(r *droplog.Record) {
	if d.sampler == nil {
		return
	}
	for i := range dropReasons {
		if dropReasons[i].event == r.Event {
			d.sampler.Record(&evidence.Sample{
				Reason: i, Weight: r.Packets, Time: r.Time, Client: r.Source, Pod: r.SourcePod,
				Subject: destination(r), Detail: []byte(r.Direction + " " + r.Reason), Route: r.Reason,
			})
		}
	}
}

// destination returns the address, port and protocol that packets were for, such as
// 10.244.1.7:8080/TCP.
func destination(r *droplog.Record) []byte {
	if r.DestinationPort == 0 {
		return append(r.Destination.AppendTo(nil), "/"+r.Protocol...)
	}
	to := netip.AddrPortFrom(r.Destination, r.DestinationPort)
	return append(to.AppendTo(nil), "/"+r.Protocol...)
}
