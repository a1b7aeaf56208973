package corefile

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// defaultHostsTTL is the default TTL of the plugin hosts, in seconds.
const defaultHostsTTL = 3600

// hostsNotes are the notes on options of the plugin hosts.
var hostsNotes = map[string]pluginNote{
	"fallthrough_unsupported": {Missing, "a name with addresses in dns.hosts has no other records"},
	"no_reverse":              {Missing, "addresses in dns.hosts have reverse names"},
	"reload":                  {Done, "always on: files are checked every second"},
}

func (t *translator) hostsPlugin(b *block, s *statement) {
	h := &t.Config.DNS.Hosts
	if t.first["hosts"] == nil {
		t.first["hosts"] = s
		h.TTL = defaultHostsTTL
		t.setOrigin(s, "dns.hosts.ttl")
	}
	file, zones := "/etc/hosts", b.zones
	if len(s.args) > 0 {
		file = b.file(s.args[0])
		zones = t.zonesOf(b, s, s.args[1:])
	}
	if !slices.Contains(h.Files, file) {
		h.Files = append(h.Files, file)
		t.setOrigin(s, "dns.hosts.files")
	}
	if !slices.Contains(zones, "") {
		t.note(Differs, s, "all names of %s are served, not only those in %s", file, strings.Join(zones, " "))
	}
	falls := false
	for i := range s.options {
		o := &s.options[i]
		switch {
		case o.name == "ttl":
			t.hostsTTL(s, o)
		case o.name == "fallthrough":
			falls = len(o.args) == 0 || covers(t.zonesOf(b, o, o.args), zones)
		case hostsNotes[o.name].text != "":
			t.noteOption(o, hostsNotes)
		default:
			t.appendHost(o, zones)
		}
	}
	if !falls {
		t.note(Missing, s, "names without addresses in dns.hosts are forwarded, as with fallthrough; dns.block denies names")
	}
}

// covers reports whether each zone is one of the others or below one.
func covers(others, zones []string) bool {
	return !slices.ContainsFunc(zones, func(z string) bool {
		return !isBelowAny(z, others)
	})
}

// hostsTTL translates the option ttl of a plugin hosts.
func (t *translator) hostsTTL(plugin, o *statement) {
	ttl := t.number(o, t.oneArg(o), 1, 65535)
	if t.first["hosts"] != plugin && ttl != t.Config.DNS.Hosts.TTL {
		t.note(Missing, o, "there is one dns.hosts.ttl: %d applies", t.Config.DNS.Hosts.TTL)
		return
	}
	t.Config.DNS.Hosts.TTL = ttl
	t.setOrigin(o, "dns.hosts.ttl")
}

// appendHost adds a line of hosts(5). CoreDNS ignores lines without a valid address and
// names outside its zones.
func (t *translator) appendHost(o *statement, zones []string) {
	words := []string{o.name}
	addr, err := netip.ParseAddr(o.name)
	if err != nil || addr.Zone() != "" {
		t.note(Done, o, "not an address: the line is ignored")
		return
	}
	for _, name := range o.args {
		parsed, err := dnsname.Parse(name)
		switch {
		case err != nil:
			t.note(Done, o, "%s: the name is ignored", err)
		case !slices.ContainsFunc(zones, func(z string) bool { return isBelow(zoneText(parsed), z) }):
			t.note(Done, o, "%s is in none of the zones: the name is ignored", name)
		default:
			words = append(words, name)
		}
	}
	if len(words) > 1 {
		t.Config.DNS.Hosts.Lines = append(t.Config.DNS.Hosts.Lines, strings.Join(words, " "))
		t.setOrigin(o, "dns.hosts.lines")
	}
}

// rewrite translates [continue|stop] FIELD ..., or FIELD and answer rules in a block.
func (t *translator) rewrite(b *block, s *statement) {
	args := s.args
	if len(args) > 0 && (args[0] == "continue" || args[0] == "stop") {
		if args[0] == "continue" {
			t.note(Differs, s, "one rule applies to a name: that with the longest suffix")
		}
		args = args[1:]
	}
	for _, o := range s.options {
		args = append(slices.Clone(args), append([]string{o.name}, o.args...)...)
	}
	switch {
	case len(args) < 2:
		t.fail(s, "must have a field and its arguments")
	case args[0] != "name":
		t.noteRewrite(s, args[0])
	default:
		t.rewriteName(b, s, args[1:])
	}
}

// noteRewrite adds the note on a field that is not rewritten.
func (t *translator) noteRewrite(s *statement, field string) {
	if field == "type" {
		t.note(Missing, s, "types are not rewritten; dns.suppress answers that names outside lack a type, and ANY is "+
			"answered with one RRset (RFC 8482)")
		return
	}
	t.note(Missing, s, "only names are rewritten, not %s", field)
}

// rewriteName translates [exact|suffix|prefix|substring|regex] FROM TO [answer rules].
func (t *translator) rewriteName(b *block, s *statement, args []string) {
	how := "exact"
	if slices.Contains([]string{"exact", "suffix", "prefix", "substring", "regex"}, args[0]) {
		how, args = args[0], args[1:]
	}
	if len(args) < 2 {
		t.fail(s, "must have two names")
		return
	}
	w := dnssettings.Rewrite{From: args[0], To: args[1], Exact: how == "exact"}
	switch how {
	case "prefix", "substring":
		t.note(Missing, s, "only whole names and suffixes are rewritten, not a %s", how)
		return
	case "regex":
		var ok bool
		if w.From, w.To, ok = suffixesOf(w.From, w.To); !ok {
			t.note(Missing, s, "only whole names and suffixes are rewritten; "+
				"a regular expression must be like (.*)\\.old\\.example {1}.new.example")
			return
		}
	}
	from, errFrom := dnsname.Parse(strings.TrimPrefix(w.From, "."))
	to, errTo := dnsname.Parse(strings.TrimPrefix(w.To, "."))
	if errFrom != nil || errTo != nil {
		t.note(Missing, s, "%s and %s must consist of whole labels", w.From, w.To)
		return
	}
	overlaps := func(z string) bool { return isBelow(zoneText(from), z) || isBelow(z, zoneText(from)) }
	if !slices.ContainsFunc(b.zones, overlaps) {
		t.note(Done, s, "no effect: it applies to no name in the block's zones")
		return
	}
	if how != "exact" {
		t.note(Differs, s, "%s itself is rewritten, too, and names only at label boundaries", zoneText(from))
	}
	t.noteAnswers(s, args[2:])
	w.From, w.To = zoneText(from), zoneText(to)
	if !slices.Contains(t.Config.DNS.Rewrite, w) {
		t.setOrigin(s, "dns.rewrite["+itoa(len(t.Config.DNS.Rewrite))+"]")
		t.Config.DNS.Rewrite = append(t.Config.DNS.Rewrite, w)
	}
}

// noteAnswers adds notes on answer rules. The owner name of answers is always the queried
// name.
func (t *translator) noteAnswers(s *statement, args []string) {
	if slices.Contains(args, "value") {
		t.note(Missing, s, "names in the RDATA of answers are not rewritten")
	}
	if i := slices.Index(args, "answer"); i >= 0 && slices.Contains(args[i:], "name") {
		t.note(Done, s, "always on: the answer has the queried name")
	}
}

var (
	anyPrefix  = regexp.MustCompile(`^\^?\(\.[*+]\)\\?\.((?:[-_a-zA-Z0-9]|\\?\.)+)\$?$`)
	firstGroup = regexp.MustCompile(`^\{1\}\.([-_.a-zA-Z0-9]+)$`)
)

// suffixesOf returns the suffixes that a regular expression and its replacement rewrite.
// It returns false if they do anything else.
func suffixesOf(pattern, replacement string) (from, to string, ok bool) {
	p, r := anyPrefix.FindStringSubmatch(pattern), firstGroup.FindStringSubmatch(replacement)
	if p == nil || r == nil {
		return "", "", false
	}
	return strings.ReplaceAll(p[1], `\`, ""), r[1], true
}

// acl translates [ZONES...] { allow|block|filter|drop [type QTYPE...] [net SOURCE...] }.
func (t *translator) acl(b *block, s *statement) {
	zones := t.zonesOf(b, s, s.args)
	if slices.Contains(zones, "") {
		zones = nil
	}
	for i := range s.options {
		t.aclRule(&s.options[i], zones)
	}
}

var aclActions = map[string]string{"allow": "allow", "block": "refuse", "filter": "refuse", "drop": "drop"}

func (t *translator) aclRule(o *statement, zones []string) {
	action := strings.ToLower(o.name)
	rule := dnssettings.Access{Action: aclActions[action], Names: zones}
	if rule.Action == "" {
		t.fail(o, "must be allow, block, filter or drop")
		return
	}
	var types []string
	section, all := "", false
	for _, arg := range o.args {
		switch {
		case strings.EqualFold(arg, "type"), strings.EqualFold(arg, "net"):
			section = strings.ToLower(arg)
		case section == "type":
			if arg != "*" {
				types = append(types, strings.ToUpper(arg))
			}
		case section == "net" && arg == "*":
			all = true
		case section == "net":
			if !isRange(arg) {
				t.fail(o, "%q is not an address range such as 10.0.0.0/8", arg)
			}
			rule.Clients = append(rule.Clients, arg)
		default:
			t.fail(o, "%q: must be type or net", arg)
		}
	}
	if all {
		rule.Clients = nil
	}
	switch {
	case len(types) > 0 && action == "filter":
		t.suppress(o, dnssettings.Suppress{Types: types, Clients: rule.Clients, Names: rule.Names})
		return
	case len(types) > 0:
		t.note(Missing, o, "rules apply to all types: this rule is omitted; dns.suppress answers that names outside "+
			"lack a type")
		return
	}
	if action == "filter" {
		t.note(Differs, o, "queries are answered with REFUSED instead of NODATA")
	}
	t.setOrigin(o, "dns.access["+itoa(len(t.Config.DNS.Access))+"]")
	t.Config.DNS.Access = append(t.Config.DNS.Access, rule)
}

func isRange(text string) bool {
	_, errPrefix := netip.ParsePrefix(text)
	_, errAddr := netip.ParseAddr(text)
	return errPrefix == nil || errAddr == nil
}
