package corefile

import (
	"net/netip"
	"slices"
	"strings"
)

// logged is a use of the plugin log: of which queries there are lines.
type logged struct {
	statement *statement
	names     []string // these and those below
	classes   []string
}

// logRCodes are the codes of the classes of the plugin log. A denial may be
// NOERROR without records as well.
var logRCodes = map[string][]string{
	"success": {"NOERROR"},
	"denial":  {"NXDOMAIN"},
	"error":   {"FORMERR", "SERVFAIL", "NOTIMP", "REFUSED", "YXDOMAIN", "BADVERS", "BADCOOKIE"},
	"all":     nil,
}

// logPlugins translates the plugin log of all blocks: there is one set of names
// and codes.
func (t *translator) logPlugins(blocks []block) {
	var all []logged
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
	t.from(first, "dns.queryLog.oneIn")
	t.note(Differs, first, "a line has client, proto, qname, qtype, rcode, octets and elapsed, on standard error")
	var classes, names []string
	for _, l := range all {
		classes, names = append(classes, l.classes...), append(names, l.names...)
		if !sameZones(l.classes, all[0].classes) {
			t.note(Differs, l.statement, "names and codes of all log are taken together")
		}
	}
	t.logClasses(first, classes)
	if !slices.Contains(names, "") {
		slices.Sort(names)
		q.Names = slices.Compact(names)
		t.from(first, "dns.queryLog.names")
	}
	for i := range blocks {
		if b := &blocks[i]; !b.has("log") && slices.ContainsFunc(b.zones, func(z string) bool { return isBelowAny(z, names) }) {
			t.note(Differs, first, "queries for names of the block %s are logged, too", strings.Join(b.keys, " "))
		}
	}
}

// appendLogged appends what a use of log says of a block's names.
func (t *translator) appendLogged(all []logged, b *block, s *statement) []logged {
	names := s.args
	if n := len(names); n > 1 && strings.Contains(names[n-1], "{") {
		names = names[:n-1]
		t.note(Differs, s, "lines have a form of their own, not this one")
	}
	l := logged{statement: s, names: overlap(b.zones, t.zonesOf(b, s, names))}
	for i := range s.options {
		o := &s.options[i]
		if o.name != "class" || len(o.args) == 0 {
			t.fail(o, "class and at least one of all, denial, error and success are wanted")
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
		t.note(Done, s, "the block has no names that this is for")
		return all
	}
	return append(all, l)
}

// logClasses sets the codes of classes, unless they are all.
func (t *translator) logClasses(s *statement, classes []string) {
	has := func(class string) bool { return slices.Contains(classes, class) }
	success, denial := has("success"), has("denial")
	if has("all") || success && denial && has("error") {
		return
	}
	if denial && !success {
		t.note(Differs, s, "denials with NXDOMAIN are logged; those of a type alone are NOERROR, and are not")
	}
	if success && !denial {
		t.note(Differs, s, "all NOERROR is logged, with denials of a type alone")
	}
	for _, class := range []string{"success", "denial", "error"} {
		if has(class) {
			t.Config.DNS.QueryLog.RCodes = append(t.Config.DNS.QueryLog.RCodes, logRCodes[class]...)
		}
	}
	t.from(s, "dns.queryLog.rcodes")
}

// overlap are the zones that are in both of two sets, the lower one of each two.
func overlap(a, b []string) (both []string) {
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

// tapVerdicts are on options of the plugin dnstap.
var tapVerdicts = map[string]verdict{
	"extra":      {Missing, "messages have no field extra"},
	"identity":   {Differs, "it is dns.identity.nsid, which clients may ask for, or the host's name"},
	"skipverify": {Missing, "dnstap is not sent over TLS"},
	"tls":        {Missing, "dnstap is not sent over TLS"},
	"version":    {Differs, "it is dns.identity.version, which clients may ask for"},
}

// dnstap: SOCKET [full] [WRITEBUFFER] [QUEUE], or listen SOCKET [full].
func (t *translator) dnstap(b *block, s *statement) {
	if len(s.args) == 0 {
		t.fail(s, "a socket is wanted")
		return
	}
	if !t.once(s, Missing) {
		return
	}
	for i := range s.options {
		t.judge(&s.options[i], tapVerdicts)
	}
	if s.args[0] == "listen" {
		t.note(Missing, s, "a collector is connected to; none is waited for")
		return
	}
	if len(s.args) > 2 {
		t.note(Differs, s, "the size of what waits can't be set")
	}
	network, address, ok := strings.Cut(s.args[0], "://")
	if !ok {
		network, address = "unix", s.args[0]
	}
	switch network {
	case "unix":
	case "tcp":
		if _, err := netip.ParseAddrPort(address); err != nil {
			t.note(Missing, s, "%s is not an address and port: names are not looked up", address)
			return
		}
	default:
		t.note(Missing, s, "dnstap goes to a socket or over TCP, not over %s", network)
		return
	}
	if address == "" {
		t.fail(s, "a socket is wanted")
		return
	}
	t.Config.DNS.DNSTap = network + ":" + address
	t.from(s, "dns.dnstap")
	t.note(Differs, s, "queries of clients and their answers are sent, always as with full; what upstreams are asked is not")
	if !slices.Contains(b.zones, "") {
		t.note(Differs, s, "all names count, not only those of this block")
	}
}
