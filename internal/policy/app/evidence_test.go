package app

import (
	"net/netip"
	"testing"
	"time"

	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/internal/support/evidence"
)

// TestDrops verifies the reasons and texts of events.
func TestDrops(t *testing.T) {
	t.Parallel()
	line := func(event string) droplog.Record {
		return droplog.Record{
			Time: time.Now(), Event: event, Direction: "egress", Source: netip.MustParseAddr("10.244.1.7"), SourcePod: "shop/web-0",
			Destination: netip.MustParseAddr("2001:db8::7"), DestinationPort: 8080, Protocol: "TCP",
			Reason: "no rule of shop/web allows it", Packets: 3,
		}
	}
	ping := line("deny")
	ping.Protocol, ping.DestinationPort = "ICMPv6", 0
	for claim, test := range map[string]struct {
		line            droplog.Record
		reason, subject string
	}{
		"denied":          {line("deny"), "policy", "[2001:db8::7]:8080/TCP"},
		"without a port":  {ping, "policy", "2001:db8::7/ICMPv6"},
		"in audit mode":   {line("audit"), "audit", "[2001:db8::7]:8080/TCP"},
		"of no Pod":       {line("unknown"), "unknown-address", "[2001:db8::7]:8080/TCP"},
		"a forged source": {line("forged"), "forged-source", "[2001:db8::7]:8080/TCP"},
	} {
		ring := evidence.New(evidence.Config{Size: 10, OneIn: 100, Mask: evidence.MaskNone})
		newDrops(ring).observe(&test.line)
		events := ring.Events()
		if len(events) != 1 {
			t.Errorf("%s: %d events, want 1", claim, len(events))
			continue
		}
		got := events[0]
		if got.Reason != test.reason || got.Subject != test.subject || got.Detail != "egress no rule of shop/web allows it" ||
			got.Pod != "shop/web-0" || got.ClientText() != "10.244.1.7" || got.Weight != 3 || got.Route != test.line.Reason {
			t.Errorf("%s: event %+v, want %s %s", claim, got, test.reason, test.subject)
		}
	}
	newDrops(nil).observe(&ping) // tells nobody
}
