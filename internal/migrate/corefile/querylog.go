package corefile

import (
	"net/netip"
	"slices"
	"strings"
)

// logRule is a use of the plugin log: the queries that it logs.
type logRule struct {
	statement *statement
	names     []string // zones
	classes   []string
}

// logRCodes are the response codes of the classes of the plugin log. Denials without a
// code here are NODATA, whose code is NOERROR.
var logRCodes = map[string][]string{
	"success": {"NOERROR"},
	"denial":  {"NXDOMAIN"},
	"error":   {"FORMERR", "SERVFAIL", "NOTIMP", "REFUSED", "YXDOMAIN", "BADVERS", "BADCOOKIE"},
	"all":     nil,
}

// logPlugins translates the plugin log of all blocks to one set of names and codes.
func (t *translator) logPlugins(blocks []block) {
	var all []logRule
	for i := range blocks {
		for j := range blocks[i].statements {
			if s := &blocks[i].statements[j]; s.name == "log" {
				all = t.appendLogged(all, &blocks[i], s)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	first, q := all[0].statement, &t.Config.DNS.QueryLog
	q.OneIn = 1
	t.setOrigin(first, "dns.queryLog.oneIn")
	t.note(Differs, first,
		"lines have the keys client, proto, qname, qtype, rcode, octets and elapsed, and go to standard error")
	var classes, names []string
	for _, l := range all {
		classes, names = append(classes, l.classes...), append(names, l.names...)
		if !sameZones(l.classes, all[0].classes) {
			t.note(Differs, l.statement, "the names and codes of all plugins log are combined")
		}
	}
	t.logClasses(first, classes)
	if !slices.Contains(names, "") {
		slices.Sort(names)
		q.Names = slices.Compact(names)
		t.setOrigin(first, "dns.queryLog.names")
	}
	for i := range blocks {
		b := &blocks[i]
		overlaps := slices.ContainsFunc(b.zones, func(z string) bool { return isBelowAny(z, names) })
		if overlaps && !b.has("log") {
			t.note(Differs, first, "queries for names in the block %s are logged, too", strings.Join(b.keys, " "))
		}
	}
}

// appendLogged appends the rule of a plugin log in a block.
func (t *translator) appendLogged(all []logRule, b *block, s *statement) []logRule {
	names := s.args
	if n := len(names); n > 1 && strings.Contains(names[n-1], "{") {
		names = names[:n-1]
		t.note(Differs, s, "the format is not configurable")
	}
	l := logRule{statement: s, names: intersection(b.zones, t.zonesOf(b, s, names))}
	for i := range s.options {
		o := &s.options[i]
		if o.name != "class" || len(o.args) == 0 {
			t.fail(o, "must be class and at least one of all, denial, error and success")
		}
		for _, class := range o.args {
			if _, ok := logRCodes[class]; !ok {
				t.fail(o, "%q is not all, denial, error or success", class)
			}
			if !slices.Contains(l.classes, class) {
				l.classes = append(l.classes, class)
			}
		}
	}
	if len(l.classes) == 0 {
		l.classes = []string{"all"}
	}
	if len(l.names) == 0 {
		t.note(Done, s, "no effect: it applies to no name in the block's zones")
		return all
	}
	return append(all, l)
}

// logClasses sets the response codes of classes, unless these are all codes.
func (t *translator) logClasses(s *statement, classes []string) {
	has := func(class string) bool { return slices.Contains(classes, class) }
	success, denial := has("success"), has("denial")
	if has("all") || success && denial && has("error") {
		return
	}
	if denial && !success {
		t.note(Differs, s, "NXDOMAIN is logged; NODATA is not, because its code is NOERROR")
	}
	if success && !denial {
		t.note(Differs, s, "all responses with NOERROR are logged, including NODATA")
	}
	for _, class := range []string{"success", "denial", "error"} {
		if has(class) {
			t.Config.DNS.QueryLog.RCodes = append(t.Config.DNS.QueryLog.RCodes, logRCodes[class]...)
		}
	}
	t.setOrigin(s, "dns.queryLog.rcodes")
}

// intersection returns the zones that are in both sets; of two zones that overlap, the
// lower one.
func intersection(a, b []string) (both []string) {
	for _, x := range a {
		for _, y := range b {
			switch {
			case isBelow(x, y):
				both = append(both, x)
			case isBelow(y, x):
				both = append(both, y)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// isBelowAny reports whether a zone is one of the others or below one.
func isBelowAny(zone string, others []string) bool {
	return slices.ContainsFunc(others, func(o string) bool { return isBelow(zone, o) })
}

// has reports whether a block has a plugin.
func (b *block) has(plugin string) bool {
	return slices.ContainsFunc(b.statements, func(s statement) bool { return s.name == plugin })
}

// dnstapNotes are the notes on options of the plugin dnstap.
var dnstapNotes = map[string]pluginNote{
	"extra":      {Missing, "the field extra is not set"},
	"identity":   {Differs, "it is dns.identity.nsid, which clients can query, or the host name"},
	"skipverify": {Missing, "dnstap is not sent over TLS"},
	"tls":        {Missing, "dnstap is not sent over TLS"},
	"version":    {Differs, "it is dns.identity.version, which clients can query"},
}

// dnstap translates SOCKET [full] [WRITEBUFFER] [QUEUE], or listen SOCKET [full].
func (t *translator) dnstap(b *block, s *statement) {
	if len(s.args) == 0 {
		t.fail(s, "must have a socket")
		return
	}
	if !t.isFirst(s, Missing) {
		return
	}
	for i := range s.options {
		t.noteOption(&s.options[i], dnstapNotes)
	}
	if s.args[0] == "listen" {
		t.note(Missing, s, "listening for collectors is not supported: the server connects to one")
		return
	}
	if len(s.args) > 2 {
		t.note(Differs, s, "the buffer and the queue have fixed sizes")
	}
	network, address, ok := strings.Cut(s.args[0], "://")
	if !ok {
		network, address = "unix", s.args[0]
	}
	switch network {
	case "unix":
	case "tcp":
		if _, err := netip.ParseAddrPort(address); err != nil {
			t.note(Missing, s, "%s is not an address and port: host names are not resolved", address)
			return
		}
	default:
		t.note(Missing, s, "dnstap is sent to a Unix socket or over TCP, not over %s", network)
		return
	}
	if address == "" {
		t.fail(s, "must have a socket")
		return
	}
	t.Config.DNS.DNSTap = network + ":" + address
	t.setOrigin(s, "dns.dnstap")
	t.note(Differs, s, "client queries and responses are sent, always as with full; forwarded queries are not")
	if !slices.Contains(b.zones, "") {
		t.note(Differs, s, "queries for all names are sent, not only for those of this block")
	}
}
