package corefile

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/dnswire"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// fileNotes are the notes on options of the plugin file.
var fileNotes = map[string]pluginNote{
	"fallthrough": {Missing, "names that the zone does not have are denied, not forwarded"},
	"reload":      {Done, "always on: the file is checked every second, whatever its serial"},
	"transfer":    {Missing, "not translated; set transfer, see docs/configuration.md"},
	"upstream":    {Done, "always on: targets of aliases are resolved"},
}

// file translates DBFILE [ZONES...] { reload DURATION }.
func (t *translator) file(b *block, s *statement) {
	if len(s.args) == 0 {
		t.fail(s, "must have a file")
		return
	}
	zones := b.zones
	if len(s.args) > 1 {
		zones = t.zonesOf(b, s, s.args[1:])
	}
	for _, z := range zones {
		t.localZone(s, dnssettings.LocalZone{Zone: z, File: b.file(s.args[0])})
	}
	for i := range s.options {
		t.noteOption(&s.options[i], fileNotes)
	}
}

// localZone adds a zone, unless there cannot be one of that name. It reports whether it
// did.
func (t *translator) localZone(s *statement, z dnssettings.LocalZone) bool {
	dns := &t.Config.DNS
	same := func(o dnssettings.LocalZone) bool { return o.Zone == z.Zone }
	_, reverse := isReverse(z.Zone)
	switch {
	case z.Zone == "":
		t.note(Missing, s, "there is no local zone of all names; dns.forward.routes forwards them")
	case isBelowAny(z.Zone, dns.Zones):
		t.note(Missing, s, "%s is in the cluster's zone; give names in it by dns.hosts or dns.rewrite", z.Zone)
	case reverse && (z.Zone == "in-addr.arpa" || z.Zone == "ip6.arpa"):
		t.note(Missing, s, "the reverse zones as a whole are the cluster's; give the zones below them")
	case slices.ContainsFunc(dns.LocalZones, same),
		slices.Contains(dns.External.Zones, z.Zone),
		z.Zone == dns.Multicluster:
		t.note(Missing, s, "a zone comes from one plugin: the first of %s applies", z.Zone)
	default:
		t.setOrigin(s, "dns.localZones["+itoa(len(dns.LocalZones))+"]")
		dns.LocalZones = append(dns.LocalZones, z)
		return true
	}
	return false
}

// externalNotes are the notes on options of the plugin k8s_external.
var externalNotes = map[string]pluginNote{
	"apex":        {Differs, "the zone's name server is ns.dns.ZONE; its addresses are dns.external.addresses"},
	"fallthrough": {Missing, "names that the zone does not have are denied, not forwarded"},
	"headless":    {Missing, "headless Services have no names for clients outside"},
	"ttl":         {Differs, "dns.ttl is the TTL of all records of the cluster"},
}

// external translates the plugin k8s_external.
func (t *translator) external(b *block, s *statement) {
	zones := b.zones
	if len(s.args) > 0 {
		zones = t.zonesOf(b, s, s.args)
	}
	for _, z := range zones {
		switch e := &t.Config.DNS.External; {
		case z == "" || isBelowAny(z, t.Config.DNS.Zones):
			t.note(Missing, s, "names for clients outside need a zone of their own, beside the cluster's")
		case slices.ContainsFunc(t.Config.DNS.LocalZones, func(l dnssettings.LocalZone) bool { return l.Zone == z }):
			t.note(Missing, s, "a zone comes from one plugin: the first of %s applies", z)
		case !slices.Contains(e.Zones, z):
			e.Zones = append(e.Zones, z)
			t.setOrigin(s, "dns.external.zones")
		}
	}
	t.note(Differs, s, "the name server ns.dns.ZONE has no address unless dns.external.addresses is set")
	for i := range s.options {
		t.noteOption(&s.options[i], externalNotes)
	}
}

// multicluster translates the option of that name of the plugin kubernetes.
func (t *translator) multicluster(o *statement) {
	for i, z := range t.zonesOf(nil, o, o.args) {
		if i > 0 {
			t.note(Missing, o, "there is one domain of ServiceImports: %s", t.Config.DNS.Multicluster)
			return
		}
		t.Config.DNS.Multicluster = z
		t.setOrigin(o, "dns.multicluster")
	}
}

// templateParts are the options of a plugin template, as far as they are translated.
type templateParts struct {
	types  []string // none for all types
	zones  []string
	rcode  string
	answer []string // in master file form, without the owner
}

// template translates CLASS TYPE [ZONES...] { rcode RCODE; answer RR }: denials, empty
// answers, and answers that are the same for all names.
func (t *translator) template(b *block, s *statement) {
	parts, ok := t.templateParts(b, s)
	switch all := len(parts.types) == 0; {
	case !ok:
		t.note(Missing, s, "only templates that deny names, or answer all of them with the same records, have a "+
			"counterpart; see dns.block, dns.suppress and dns.localZones")
	case len(parts.answer) > 0:
		t.staticTemplate(s, &parts)
	case parts.rcode == "NXDOMAIN" && all && !slices.Contains(parts.zones, ""):
		t.setOrigin(s, "dns.block.names")
		t.Config.DNS.Block.Names = append(t.Config.DNS.Block.Names, parts.zones...)
	case parts.rcode == "NXDOMAIN" && all:
		t.note(Missing, s, "all names cannot be blocked; without dns.forward.routes those outside the zones are REFUSED")
	case all:
		t.note(Missing, s, "names cannot be without records of any type; dns.block denies them")
	default:
		if parts.rcode == "NXDOMAIN" {
			t.note(Differs, s, "the answer is NODATA: a name that has other types exists")
		}
		t.suppress(s, dnssettings.Suppress{Types: parts.types, Names: withoutRoot(parts.zones)})
	}
}

// withoutRoot returns no names if the root is among them: that means all.
func withoutRoot(zones []string) []string {
	if slices.Contains(zones, "") {
		return nil
	}
	return zones
}

// suppress adds a rule of dns.suppress.
func (t *translator) suppress(s *statement, rule dnssettings.Suppress) {
	t.note(Differs, s, "names in the zones served here keep their records of these types")
	t.setOrigin(s, "dns.suppress["+itoa(len(t.Config.DNS.Suppress))+"]")
	t.Config.DNS.Suppress = append(t.Config.DNS.Suppress, rule)
}

// fixedAnswer is an answer that is the same for all names: the queried name is its owner.
var fixedAnswer = regexp.MustCompile(`^\{\{\s*\.(?:Name|Zone)\s*\}\}\s+([^{}]+)$`)

// templateParts reads the options. It returns false if they do what has no counterpart.
func (t *translator) templateParts(b *block, s *statement) (parts templateParts, ok bool) {
	if len(s.args) < 2 {
		t.fail(s, "must have a class and a type")
		return parts, false
	}
	parts.zones, parts.rcode, ok = b.zones, "NOERROR", strings.EqualFold(s.args[0], "IN") ||
		strings.EqualFold(s.args[0], "ANY")
	if len(s.args) > 2 {
		parts.zones = t.zonesOf(b, s, s.args[2:])
	}
	if qtype := strings.ToUpper(s.args[1]); qtype != "ANY" {
		_, err := dnswire.ParseType(qtype)
		parts.types, ok = []string{qtype}, ok && err == nil
	}
	for i := range s.options {
		o := &s.options[i]
		text := strings.Join(o.args, " ")
		switch o.name {
		case "rcode":
			parts.rcode = strings.ToUpper(text)
			ok = ok && (parts.rcode == "NXDOMAIN" || parts.rcode == "NOERROR")
		case "answer":
			answer := fixedAnswer.FindStringSubmatch(text)
			ok = ok && answer != nil
			if answer != nil {
				parts.answer = append(parts.answer, answer[1])
			}
		case "match":
			ok = ok && slices.Contains([]string{".", ".*", "^.*$"}, text)
		case "authority", "ederror": // explain a denial
		default:
			ok = false // additional, fallthrough, upstream, meta data
		}
	}
	return parts, ok
}

// staticTemplate translates answers that are the same for all names in the zones.
func (t *translator) staticTemplate(s *statement, parts *templateParts) {
	var records strings.Builder
	for _, owner := range []string{"@", "*"} {
		for _, answer := range parts.answer {
			records.WriteString(owner + " " + answer + "\n")
		}
	}
	added := false
	for _, z := range parts.zones {
		added = t.localZone(s, dnssettings.LocalZone{Zone: z, Records: records.String()}) || added
	}
	if added {
		t.note(Differs, s, "the names have no records of other types, and none of them is forwarded")
	}
}

// placeholder begins the words that NodeLocal DNSCache replaces in its Corefile.
const placeholder = "__PILLAR__"

// checkNodeLocal fails for a Corefile of NodeLocal DNSCache as its manifest has it, and
// notes one that NodeLocal DNSCache has completed: the agent on a node takes its place.
func (t *translator) checkNodeLocal(b *block) {
	for i := range b.statements {
		s := &b.statements[i]
		linkLocal := func(text string) bool {
			addr, err := netip.ParseAddr(text)
			return err == nil && addr.Is4() && addr.IsLinkLocalUnicast()
		}
		switch {
		case slices.ContainsFunc(s.args, func(a string) bool { return strings.Contains(a, placeholder) }):
			t.fail(s, "%s... is for NodeLocal DNSCache, whose place portolan node takes: see docs/node.md, "+
				"\"From NodeLocal DNSCache\"", placeholder)
		case s.name == "bind" && slices.ContainsFunc(s.args, linkLocal) && t.first["NodeLocal DNSCache"] == nil:
			t.first["NodeLocal DNSCache"] = s
			t.note(Differs, s, "a cache on a node, as NodeLocal DNSCache, is portolan node: see docs/node.md, "+
				"\"From NodeLocal DNSCache\"")
		}
	}
}
