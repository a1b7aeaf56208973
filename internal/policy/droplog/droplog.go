// Package droplog reports packets that policies deny, from the kernel's log of packets
// (nfnetlink_log, linux/netfilter/nfnetlink_log.h), as structured lines with the names of
// Pods.
//
//	rules with log group ─► nflog ─► packet ──► gather ───────────► emit ─► slog
//	                        socket   addresses  one line a second   rate    the last lines
//	                                 and ports  for equal packets   limit   followers
//
// The kernel limits how many packets each rule logs, and this package how many lines there
// are in all, of which each sender's Namespace has its share: one that is denied a lot hides no other.
// The metrics of the rules count all packets.
package droplog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// Label is what a rule says of the packets that it logs.
type Label struct {
	// Event is what happened: "deny", "audit" (a policy in audit mode would have denied it)
	// "unknown" (the address is one for Pods of the node that no Pod has) or "forged" (the source is none of
	// the addresses of the Pod that sent it).
	Event     string
	Direction ruleset.Direction
	// Chain is the chain of the rule, and Reason why the rule is there.
	Chain, Reason string
}

// Config configures a Log. Zero limits are the defaults below.
type Config struct {
	// Group is the group of nfnetlink_log. One process can have it at a time.
	Group uint16
	// Parse reads the prefix that a rule gives a packet, and reports whether it is one of
	// policies.
	Parse func(prefix string) (Label, bool)
	// Pod returns the Pod that has an address, as NAMESPACE/NAME; empty if none has it. While
	// it waits, further packets are not read, but lines are.
	Pod func(netip.Addr) string
	// Ended reports whether the Pod that had an address ended a short time ago: packets that
	// arrive late, of event "unknown", have no line. Nil is never.
	Ended func(netip.Addr) bool
	// Behind returns the Pod behind a device of the node, as Pod does; nil knows none.
	Behind func(device uint32) string
	// Observe is called with each line, also if the limits let it not be written. It must not block, nor
	// keep the Record. Nil observes nothing.
	Observe func(*Record)
	// PerSecond is the highest number of lines a second, and Keep the number of lines kept
	// for Recent.
	PerSecond, Keep int
	Log             *slog.Logger
}

// forged is the Event of packets whose source is none of the addresses of the Pod that sent them.
const forged = "forged"

// The defaults.
const (
	DefaultPerSecond = 20
	DefaultKeep      = 1000
)

// gatherTime is for how long equal packets are gathered into one line.
const gatherTime = time.Second

// maxGathered is the highest number of lines that are being gathered, of which a share has at
// most as many as are free, and followerLen how many lines a follower may lag behind.
const (
	maxGathered = 1024
	followerLen = 256
)

// Record is a line: packets of the same addresses, protocol and destination port that the
// same rule logged.
type Record struct {
	Time      time.Time `json:"time"` // of the first packet
	Event     string    `json:"event"`
	Direction string    `json:"direction"` // "ingress" or "egress", of the Pod that the rule is for
	// Source and Destination are those after the translation of Services.
	Source         netip.Addr `json:"source"`
	SourcePod      string     `json:"sourcePod,omitempty"` // NAMESPACE/NAME, of "forged" packets the one that sent them
	Destination    netip.Addr `json:"destination"`
	DestinationPod string     `json:"destinationPod,omitempty"`
	// Protocol is "TCP", "UDP", "SCTP", "ICMP", "ICMPv6" or a number. Only the first three
	// have ports, except for fragments after the first. SourcePort is that of the first
	// packet.
	Protocol        string `json:"protocol"`
	SourcePort      uint16 `json:"sourcePort,omitempty"`
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	Chain           string `json:"chain"`
	Reason          string `json:"reason"`
	Packets         int    `json:"packets"`
}

// IsOf reports whether a Pod of a Namespace sent the packets or was to receive them.
func (r *Record) IsOf(namespace string) bool {
	return inNamespace(r.SourcePod, namespace) || inNamespace(r.DestinationPod, namespace)
}

func inNamespace(pod, namespace string) bool {
	return len(pod) > len(namespace) && pod[:len(namespace)] == namespace && pod[len(namespace)] == '/'
}

// String is the line for people, without a line feed.
func (r *Record) String() string {
	line := fmt.Sprintf("%s %s %s %s %s -> %s", r.Time.UTC().Format(time.RFC3339), r.Event, r.Direction, r.Protocol,
		end(r.SourcePod, r.Source, r.SourcePort), end(r.DestinationPod, r.Destination, r.DestinationPort))
	if r.Packets > 1 {
		line += fmt.Sprintf(" (%d packets)", r.Packets)
	}
	return line + ": " + r.Reason
}

// end is one end of a flow for people.
func end(pod string, addr netip.Addr, port uint16) string {
	text := addr.String()
	if port > 0 {
		text = netip.AddrPortFrom(addr, port).String()
	}
	if pod != "" {
		return pod + " (" + text + ")"
	}
	return text
}

// flow is what equal packets have in common.
type flow struct {
	label    Label
	from, to netip.Addr
	protocol uint8
	port     uint16 // of the destination
	device   uint32 // of "forged" packets
}

// line is a Record that is being gathered.
type line struct {
	Record
	// pod is the sender, or where that is none the receiver; empty if neither is a Pod. share is its Namespace.
	pod, share string
}

// Stats are the figures of a Log, since the start.
type Stats struct {
	// Packets are those that the kernel logged for policies, and Lines the lines written.
	Packets, Lines uint64
	// Suppressed are packets without a line, because of the limits.
	Suppressed uint64
	// Foreign are packets that other rules logged to the group, Malformed those without
	// addresses, and Late those of Pods that have ended, see Config.Ended.
	Foreign, Malformed, Late uint64
	// Overflows is how often the kernel's buffer was full, and packets were lost.
	Overflows uint64
}

// Log reports packets. Its methods are safe for concurrent use.
type Log struct {
	cfg Config

	mu         sync.Mutex
	gathered   map[flow]*line
	shares     map[string]int // how many are gathered of each share
	recent     []Record       // a ring: the oldest is at next once it is full
	next       int
	tokens     float64 // lines that may be written now
	refilled   time.Time
	suppressed map[string]int // packets of each Pod since the last line about them
	told       time.Time
	followers  map[*follower]struct{}
	stats      Stats
	ended      bool
}

// New returns a Log, which reads nothing before Run.
func New(cfg Config) *Log {
	if cfg.PerSecond == 0 {
		cfg.PerSecond = DefaultPerSecond
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.Observe == nil {
		cfg.Observe = func(*Record) {}
	}
	if cfg.Ended == nil {
		cfg.Ended = func(netip.Addr) bool { return false }
	}
	return &Log{
		cfg: cfg, gathered: make(map[flow]*line), shares: make(map[string]int), suppressed: make(map[string]int),
		followers: make(map[*follower]struct{}), tokens: float64(cfg.PerSecond),
	}
}

// Stats returns the present figures.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// logged is a packet as the kernel logs it.
type logged struct {
	prefix string // of the rule
	device uint32 // by which it came
	// payload is the octets from the IP header on, of which the end may be missing.
	payload []byte
}

// observe gathers a packet.
func (l *Log) observe(now time.Time, m logged) {
	label, ours := l.cfg.Parse(m.prefix)
	p, ok := parsePacket(m.payload)
	if !ours {
		l.count(&l.stats.Foreign)
		return
	}
	if !ok {
		l.count(&l.stats.Malformed)
		return
	}
	if label.Event == "unknown" && l.cfg.Ended(p.subject(label.Direction)) {
		l.count(&l.stats.Late)
		return
	}
	f := flow{label: label, from: p.from, to: p.to, protocol: p.protocol, port: p.toPort}
	sender := l.cfg.Pod
	if label.Event == forged && l.cfg.Behind != nil {
		f.device = m.device
		sender = func(netip.Addr) string { return l.cfg.Behind(m.device) }
	}
	if !l.isNew(f) {
		return
	}
	r := Record{
		Time: now, Event: label.Event, Direction: directions[label.Direction],
		Source: p.from, SourcePod: sender(p.from), Destination: p.to, DestinationPod: l.cfg.Pod(p.to),
		Protocol: protocolName(p.protocol), SourcePort: p.fromPort, DestinationPort: p.toPort,
		Chain: label.Chain, Reason: label.Reason, Packets: 1,
	}
	pod := cmp.Or(r.SourcePod, r.DestinationPod)
	namespace, _, _ := strings.Cut(pod, "/")
	l.insert(f, &line{r, pod, namespace})
}

// insert begins a line, if its share has room.
func (l *Log) insert(f flow, first *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch other := l.gathered[f]; {
	case other != nil:
		other.Packets++
	case l.shares[first.share] >= maxGathered-len(l.gathered):
		l.suppress(first)
	default:
		l.gathered[f] = first
		l.shares[first.share]++
	}
}

// count counts a packet without a line.
func (l *Log) count(of *uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*of++
}

// isNew counts a packet, and reports whether it is the first of a line.
func (l *Log) isNew(f flow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Packets++
	if r := l.gathered[f]; r != nil {
		r.Packets++
		return false
	}
	return true
}

var directions = map[ruleset.Direction]string{ruleset.Ingress: "ingress", ruleset.Egress: "egress"}

// suppress counts the packets of a line that is not written.
func (l *Log) suppress(r *line) {
	l.stats.Suppressed += uint64(r.Packets)
	l.suppressed[r.pod] += r.Packets
}

// flush writes the lines whose packets have been gathered for long enough by now, in order
// of time.
func (l *Log) flush(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := make(map[string][]*line)
	for f, r := range l.gathered {
		if now.Sub(r.Time) >= gatherTime {
			l.cfg.Observe(&r.Record)
			due[r.share] = append(due[r.share], r)
			delete(l.gathered, f)
			if l.shares[r.share]--; l.shares[r.share] == 0 {
				delete(l.shares, r.share)
			}
		}
	}
	most := float64(l.cfg.PerSecond)
	l.tokens = min(most, l.tokens+now.Sub(l.refilled).Seconds()*most)
	l.refilled = now
	chosen, rest := divide(due, int(l.tokens))
	for _, r := range rest {
		l.suppress(r)
	}
	for _, r := range chosen {
		l.tokens--
		l.emit(&r.Record)
	}
	l.tellSuppressed(now)
}

// divide chooses at most n lines, which it returns in order of time, and the others. The shares take turns, in
// a random order, so that of more shares than lines none goes without for ever.
func divide(shares map[string][]*line, n int) (chosen, rest []*line) {
	inOrder := func(a, b *line) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.String(), b.String()))
	}
	turns := slices.Collect(maps.Values(shares))
	rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	for _, lines := range turns {
		slices.SortFunc(lines, inOrder)
	}
	for len(turns) > 0 && len(chosen) < n {
		turns = slices.DeleteFunc(turns, func(lines []*line) bool { return len(lines) == 0 })
		for i, lines := range turns[:min(len(turns), n-len(chosen))] {
			chosen, turns[i] = append(chosen, lines[0]), lines[1:]
		}
	}
	slices.SortFunc(chosen, inOrder)
	return chosen, slices.Concat(turns...)
}

// tellSuppressed says, once a minute at most, how many packets have no line, and which Pod has
// the most of them.
func (l *Log) tellSuppressed(now time.Time) {
	if len(l.suppressed) == 0 || now.Sub(l.told) < time.Minute {
		return
	}
	packets, most := 0, ""
	for pod, n := range l.suppressed {
		packets += n
		if cmp.Or(cmp.Compare(n, l.suppressed[most]), cmp.Compare(pod, most)) > 0 {
			most = pod
		}
	}
	attrs := []any{"packets", packets}
	if most != "" {
		attrs = append(attrs, "pod", most, "podPackets", l.suppressed[most])
	}
	l.cfg.Log.Warn("more packets were denied by policies than are logged", attrs...)
	clear(l.suppressed)
	l.told = now
}

// emit writes a line, keeps it and passes it to the followers.
func (l *Log) emit(r *Record) {
	l.stats.Lines++
	attrs := []any{"event", r.Event, "direction", r.Direction, "protocol", r.Protocol, "source", r.Source}
	if r.SourcePod != "" {
		attrs = append(attrs, "sourcePod", r.SourcePod)
	}
	attrs = append(attrs, "destination", r.Destination)
	if r.DestinationPod != "" {
		attrs = append(attrs, "destinationPod", r.DestinationPod)
	}
	if r.DestinationPort > 0 {
		attrs = append(attrs, "sourcePort", r.SourcePort, "destinationPort", r.DestinationPort)
	}
	attrs = append(attrs, "packets", r.Packets, "chain", r.Chain, "reason", r.Reason)
	switch r.Event {
	case "audit":
		l.cfg.Log.Info("packet would be denied by policy", attrs...)
	case "unknown":
		l.cfg.Log.Info("packet of an address without a Pod denied", attrs...)
	case forged:
		l.cfg.Log.Info("packet denied whose source is not an address of its Pod", attrs...)
	default:
		l.cfg.Log.Info("packet denied by policy", attrs...)
	}
	if len(l.recent) < l.cfg.Keep {
		l.recent = append(l.recent, *r)
	} else {
		l.recent[l.next] = *r
		l.next = (l.next + 1) % l.cfg.Keep
	}
	for f := range l.followers {
		select {
		case f.records <- *r:
		default:
			f.missed++
		}
	}
}

// Recent returns the last lines, the oldest first.
func (l *Log) Recent() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last()
}

func (l *Log) last() []Record { return slices.Concat(l.recent[l.next:], l.recent[:l.next]) }

// follower receives lines from now on.
type follower struct {
	records chan Record // closed when the Log ends
	missed  int         // lines that it was too slow for
}

// follow returns the last lines, and a follower that receives the next ones until leave is
// called.
func (l *Log) follow() (before []Record, f *follower, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f = &follower{records: make(chan Record, followerLen)}
	if l.ended {
		close(f.records)
		return l.last(), f, func() {}
	}
	l.followers[f] = struct{}{}
	return l.last(), f, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers, f)
	}
}

// end ends all followers.
func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for f := range l.followers {
		close(f.records)
	}
	clear(l.followers)
}

// flushUntil writes lines as they are due, until ctx is done, and then all that is left.
func (l *Log) flushUntil(ctx context.Context) {
	tick := time.NewTicker(gatherTime / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.flush(time.Now().Add(gatherTime))
			l.end()
			return
		case <-tick.C:
			l.flush(time.Now())
		}
	}
}
