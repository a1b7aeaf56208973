package corefile

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnsname"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// defaultHostsTTL is that of the plugin hosts, in seconds.
const defaultHostsTTL = 3600

// hostsVerdicts are on options of the plugin hosts.
var hostsVerdicts = map[string]verdict{
	"fallthrough_unsupported": {Missing, "a name that has addresses there has nothing else"},
	"no_reverse":              {Missing, "addresses there have reverse names"},
	"reload":                  {Done, "files are looked at every second"},
}

func (t *translator) hostsPlugin(b *block, s *statement) {
	h := &t.Config.DNS.Hosts
	first := t.first["hosts"] == nil
	if first {
		t.first["hosts"] = s
		h.TTL = defaultHostsTTL
		t.from(s, "dns.hosts.ttl")
	}
	file, zones := "/etc/hosts", b.zones
	if len(s.args) > 0 {
		file = b.file(s.args[0])
		zones = t.zonesOf(b, s, s.args[1:])
	}
	if !slices.Contains(h.Files, file) {
		h.Files = append(h.Files, file)
		t.from(s, "dns.hosts.files")
	}
	if !slices.Contains(zones, "") {
		t.note(Differs, s, "all names of %s count, not only those in %s", file, strings.Join(zones, " "))
	}
	falls := false
	for i := range s.options {
		o := &s.options[i]
		switch {
		case o.name == "ttl":
			t.hostsTTL(o, first)
		case o.name == "fallthrough":
			falls = len(o.args) == 0 || covers(t.zonesOf(b, o, o.args), zones)
		case hostsVerdicts[o.name].why != "":
			t.judge(o, hostsVerdicts)
		default:
			t.addHost(o, zones)
		}
	}
	if !falls {
		t.note(Missing, s, "other names are looked for elsewhere, as with fallthrough; block denies names")
	}
}

// covers reports whether each of the zones is in one of the others.
func covers(others, zones []string) bool {
	return !slices.ContainsFunc(zones, func(z string) bool {
		return !isBelowAny(z, others)
	})
}

func (t *translator) hostsTTL(o *statement, first bool) {
	ttl := t.number(o, t.one(o), 1, 65535)
	if !first && ttl != t.Config.DNS.Hosts.TTL {
		t.note(Missing, o, "there is one TTL of hosts, %d", t.Config.DNS.Hosts.TTL)
		return
	}
	t.Config.DNS.Hosts.TTL = ttl
	t.from(o, "dns.hosts.ttl")
}

// addHost adds a line of hosts(5). CoreDNS passes over those that are none, and
// over names that are not in its zones.
func (t *translator) addHost(o *statement, zones []string) {
	words := []string{o.name}
	addr, err := netip.ParseAddr(o.name)
	if err != nil || addr.Zone() != "" {
		t.note(Done, o, "not an address: the line is passed over")
		return
	}
	for _, name := range o.args {
		parsed, err := dnsname.Parse(name)
		switch {
		case err != nil:
			t.note(Done, o, "%s: the name is passed over", err)
		case !slices.ContainsFunc(zones, func(z string) bool { return isBelow(zoneText(parsed), z) }):
			t.note(Done, o, "%s is in none of the zones: the name is passed over", name)
		default:
			words = append(words, name)
		}
	}
	if len(words) > 1 {
		t.Config.DNS.Hosts.Lines = append(t.Config.DNS.Hosts.Lines, strings.Join(words, " "))
		t.from(o, "dns.hosts.lines")
	}
}

// rewrite: [continue|stop] FIELD ..., or FIELD and answers in a block.
func (t *translator) rewrite(b *block, s *statement) {
	args := s.args
	if len(args) > 0 && (args[0] == "continue" || args[0] == "stop") {
		if args[0] == "continue" {
			t.note(Differs, s, "one rule counts for a name: that of the longest name")
		}
		args = args[1:]
	}
	for _, o := range s.options {
		args = append(slices.Clone(args), append([]string{o.name}, o.args...)...)
	}
	switch {
	case len(args) < 2:
		t.fail(s, "what is rewritten is missing")
	case args[0] != "name":
		t.note(Missing, s, "only names are rewritten, not %s", args[0])
	default:
		t.rewriteName(b, s, args[1:])
	}
}

// rewriteName: [exact|suffix|prefix|substring|regex] FROM TO [answers].
func (t *translator) rewriteName(b *block, s *statement, args []string) {
	how := "exact"
	if slices.Contains([]string{"exact", "suffix", "prefix", "substring", "regex"}, args[0]) {
		how, args = args[0], args[1:]
	}
	if len(args) < 2 {
		t.fail(s, "two names are wanted")
		return
	}
	w := dnssettings.Rewrite{From: args[0], To: args[1], Exact: how == "exact"}
	switch how {
	case "prefix", "substring":
		t.note(Missing, s, "names are rewritten whole or by their last labels, not by %s", how)
		return
	case "regex":
		var ok bool
		if w.From, w.To, ok = suffixesOf(w.From, w.To); !ok {
			t.note(Missing, s, "names are rewritten whole or by their last labels, not by a regular expression, but one such as (.*)\\.old\\.example {1}.new.example")
			return
		}
	}
	from, errFrom := dnsname.Parse(strings.TrimPrefix(w.From, "."))
	to, errTo := dnsname.Parse(strings.TrimPrefix(w.To, "."))
	if errFrom != nil || errTo != nil {
		t.note(Missing, s, "%s and %s are not both whole labels", w.From, w.To)
		return
	}
	if !slices.ContainsFunc(b.zones, func(z string) bool { return isBelow(zoneText(from), z) || isBelow(z, zoneText(from)) }) {
		t.note(Done, s, "the block has no names that this is for")
		return
	}
	if how != "exact" {
		t.note(Differs, s, "%s is rewritten, too, and names only where labels end", zoneText(from))
	}
	t.noteAnswers(s, args[2:])
	w.From, w.To = zoneText(from), zoneText(to)
	if !slices.Contains(t.Config.DNS.Rewrite, w) {
		t.from(s, "dns.rewrite["+itoa(len(t.Config.DNS.Rewrite))+"]")
		t.Config.DNS.Rewrite = append(t.Config.DNS.Rewrite, w)
	}
}

// noteAnswers: the answer belongs to the name that was asked for, always.
func (t *translator) noteAnswers(s *statement, args []string) {
	if slices.Contains(args, "value") {
		t.note(Missing, s, "names in the data of answers are not rewritten")
	}
	if i := slices.Index(args, "answer"); i >= 0 && slices.Contains(args[i:], "name") {
		t.note(Done, s, "the answer belongs to the name that was asked for")
	}
}

var (
	anyPrefix  = regexp.MustCompile(`^\^?\(\.[*+]\)\\?\.((?:[-_a-zA-Z0-9]|\\?\.)+)\$?$`)
	firstGroup = regexp.MustCompile(`^\{1\}\.([-_.a-zA-Z0-9]+)$`)
)

// suffixesOf are the suffixes that a regular expression and its replacement are
// about, where that is all that they are about.
func suffixesOf(pattern, replacement string) (from, to string, ok bool) {
	p, r := anyPrefix.FindStringSubmatch(pattern), firstGroup.FindStringSubmatch(replacement)
	if p == nil || r == nil {
		return "", "", false
	}
	return strings.ReplaceAll(p[1], `\`, ""), r[1], true
}

// acl: [ZONES...] { allow|block|filter|drop [type QTYPE...] [net SOURCE...] }.
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
		t.fail(o, "not allow, block, filter or drop")
		return
	}
	typed, section, all := false, "", false
	for _, arg := range o.args {
		switch {
		case strings.EqualFold(arg, "type"), strings.EqualFold(arg, "net"):
			section = strings.ToLower(arg)
		case section == "type":
			typed = typed || arg != "*"
		case section == "net" && arg == "*":
			all = true
		case section == "net":
			if !isRange(arg) {
				t.fail(o, "%q is not a range, such as 10.0.0.0/8", arg)
			}
			rule.Clients = append(rule.Clients, arg)
		default:
			t.fail(o, "%q: type or net is wanted", arg)
		}
	}
	if all {
		rule.Clients = nil
	}
	if typed {
		t.note(Missing, o, "rules are for all types: this one is left out")
		return
	}
	if action == "filter" {
		t.note(Differs, o, "queries are refused, and not answered with nothing")
	}
	t.from(o, "dns.access["+itoa(len(t.Config.DNS.Access))+"]")
	t.Config.DNS.Access = append(t.Config.DNS.Access, rule)
}

func isRange(text string) bool {
	_, errPrefix := netip.ParsePrefix(text)
	_, errAddr := netip.ParseAddr(text)
	return errPrefix == nil || errAddr == nil
}
