package corefile

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config"
)

// translator has the state of a translation.
type translator struct {
	Translation
	what    string // the file is: corefile, config map
	path    string
	options Options
	err     error // the first

	cluster *statement // the plugin kubernetes that counts; nil without
	fallen  []string   // zones that it lets fall through
	whole   bool       // it has all reverse names
	cache   *statement // the plugin cache that counts
	served  []served   // what is listened on
	first   map[string]*statement
}

// served is an address, and the zones that CoreDNS serves there.
type served struct {
	addr  string
	zones []string
}

func newTranslator(what, path string, o Options) *translator {
	t := &translator{what: what, path: path, options: o, first: make(map[string]*statement)}
	t.Config, t.Origins = config.Default(), make(map[string]string)
	t.Config.DNS.Listen, t.Config.Admin.Listen = nil, ""
	return t
}

// note adds a note about a statement.
func (t *translator) note(k NoteKind, s *statement, format string, args ...any) {
	t.Notes = append(t.Notes, Note{s.file, s.line, s.path(), k, fmt.Sprintf(format, args...)})
}

// fail records an error in a statement with which CoreDNS does not start.
func (t *translator) fail(s *statement, format string, args ...any) {
	if t.err == nil {
		t.err = &errAt{t.what, s.file, s.line, fmt.Errorf("%s: %w", s.path(), fmt.Errorf(format, args...))}
	}
}

// from records the origin of the settings with the given keys.
func (t *translator) from(s *statement, keys ...string) {
	for _, key := range keys {
		t.Origins[key] = fmt.Sprintf("%s:%d", filepath.Base(s.file), s.line)
	}
}

// translate translates server blocks.
func (t *translator) translate(blocks []block) {
	for i := range blocks {
		b := &blocks[i]
		t.enter(b)
		for j := range b.statements { // what others mean depends on its zones
			if s := &b.statements[j]; s.name == "kubernetes" {
				t.kubernetes(b, s)
			}
		}
	}
	for i := range blocks {
		b := &blocks[i]
		for j := range b.statements {
			t.plugin(b, &b.statements[j])
		}
	}
	t.logPlugins(blocks)
	if len(blocks) > 0 {
		t.checkBlocks(blocks)
		t.checkListen(&blocks[0])
	}
}

// checkListen sees to it that something is listened on: where the interfaces of
// the host that shall serve are not known, it may be bound to nothing else.
func (t *translator) checkListen(first *block) {
	c := &t.Config
	switch {
	case len(c.DNS.Listen)+len(c.DNS.TLS.Listen)+len(c.DNS.HTTPS.Listen) > 0:
	case t.options.InterfaceAddrs != nil:
		t.fail(t.at(first), "no address is left to listen on")
	default:
		c.DNS.Listen = config.Default().DNS.Listen
		t.Notes = append(t.Notes, Note{t.path, 1, "file", Differs, "UDP and TCP are served on loopback, " + c.DNS.Listen[0]})
	}
}

// plugin translates a plugin.
func (t *translator) plugin(b *block, s *statement) {
	if plugin, ok := plugins[s.name]; ok {
		plugin(t, b, s)
	} else if v, ok := verdicts[s.name]; ok {
		t.note(v.kind, s, "%s", v.why)
	} else {
		t.fail(s, "not a plugin of CoreDNS 1.15")
	}
}

// at is a block's line as a statement, for what is said of the whole block.
func (t *translator) at(b *block) *statement {
	return &statement{file: t.path, line: b.line, name: strings.Join(b.keys, " ")}
}

// enter reads what a block is about.
func (t *translator) enter(b *block) {
	at := t.at(b)
	for _, key := range b.keys {
		sites, err := parseSite(key, cmp.Or(t.options.Port, "53"))
		if err != nil {
			t.fail(at, "%w", err)
		}
		b.sites = append(b.sites, sites...)
	}
	for _, s := range b.sites {
		if !slices.Contains(b.zones, s.zone) {
			b.zones = append(b.zones, s.zone)
		}
		if !slices.Contains(b.texts, s.text) {
			b.texts = append(b.texts, s.text)
		}
	}
	for i := range b.statements {
		if s := &b.statements[i]; s.name == "root" {
			b.root = t.one(s)
		}
	}
	t.listen(b, at)
}

// file is a file that a plugin names.
func (b *block) file(name string) string {
	if b.root == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(b.root, name)
}

// listen notes where a block is served.
func (t *translator) listen(b *block, at *statement) {
	hosts := t.hosts(b)
	for _, s := range b.sites {
		var list *[]string
		switch s.transport {
		case "dns":
			list = &t.Config.DNS.Listen
		case "tls":
			list = &t.Config.DNS.TLS.Listen
		case "https":
			list = &t.Config.DNS.HTTPS.Listen
		default:
			t.note(Missing, at, "DNS is served over UDP, TCP, TLS and HTTPS, not over %s", s.transport)
			continue
		}
		for _, host := range hosts {
			addr := netipJoin(host, s.port)
			if !slices.Contains(*list, addr) {
				*list = append(*list, addr)
			}
			t.serve(s.transport+" "+addr, s.zone)
		}
	}
}

func netipJoin(host netip.Addr, port string) string {
	n, _ := strconv.ParseUint(port, 10, 16) // read before
	return netip.AddrPortFrom(host, uint16(n)).String()
}

func (t *translator) serve(addr, zone string) {
	i := slices.IndexFunc(t.served, func(s served) bool { return s.addr == addr })
	if i < 0 {
		i = len(t.served)
		t.served = append(t.served, served{addr: addr})
	}
	if !slices.Contains(t.served[i].zones, zone) {
		t.served[i].zones = append(t.served[i].zones, zone)
	}
}

// hosts are the addresses that a block is bound to.
func (t *translator) hosts(b *block) (hosts []netip.Addr) {
	bound := false
	for i := range b.statements {
		s := &b.statements[i]
		if s.name != "bind" {
			continue
		}
		bound = true
		if len(s.args) == 0 {
			t.fail(s, "no address")
		}
		chosen := t.addresses(s)
		for i := range s.options {
			o := &s.options[i]
			if o.name != "except" {
				t.fail(o, "no such option")
				continue
			}
			except := t.addresses(o)
			chosen = slices.DeleteFunc(chosen, func(a netip.Addr) bool { return slices.Contains(except, a) })
		}
		hosts = append(hosts, chosen...)
	}
	if bound {
		return hosts
	}
	if t.options.IPv4Only {
		return []netip.Addr{netip.IPv4Unspecified()}
	}
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// addresses are those that the arguments name, or those of the interfaces that
// they name.
func (t *translator) addresses(s *statement) (all []netip.Addr) {
	for _, a := range s.args {
		if addr, err := netip.ParseAddr(a); err == nil {
			all = append(all, addr.Unmap())
			continue
		}
		if t.options.InterfaceAddrs == nil {
			t.note(Missing, s, "%s: the interfaces of the host that shall serve are not known here: name their addresses, or let it read this file itself", a)
			continue
		}
		addrs, err := t.options.InterfaceAddrs(a)
		if err != nil {
			t.fail(s, "%q is neither an address nor an interface: %w", a, err)
		}
		all = append(all, addrs...)
	}
	return all
}

// checkBlocks notes what is not the same because there is one set of settings.
func (t *translator) checkBlocks(blocks []block) {
	for _, s := range t.served {
		if !sameZones(s.zones, t.served[0].zones) {
			t.note(Missing, t.at(&blocks[0]), "all names are answered on all addresses, so also those of other blocks on %s", s.addr)
			break
		}
	}
	if t.cluster == nil {
		t.note(Missing, t.at(&blocks[0]), "no plugin kubernetes: the names of %s are answered here all the same, from a cluster that must be read", t.Config.DNS.Zones[0])
	}
}

func sameZones(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// finish returns the translation.
func (t *translator) finish() (*Translation, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.dropShadowed()
	t.Config.DNS.Listen = withoutCovered(t.Config.DNS.Listen)
	t.noteUnsaid()
	sortNotes(t.path, t.Notes)
	if err := t.validate(); err != nil {
		return nil, err
	}
	return &t.Translation, nil
}

// withoutCovered leaves out addresses that one for all interfaces covers.
func withoutCovered(addrs []string) (left []string) {
	for _, text := range addrs {
		addr := netip.MustParseAddrPort(text)
		all := netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
		if addr.Addr().Is4() {
			all = netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port())
		}
		if addr == all || addr.Port() == 0 || !slices.Contains(addrs, all.String()) {
			left = append(left, text)
		}
	}
	return left
}

// one returns the only argument of a statement.
func (t *translator) one(s *statement) string {
	if len(s.args) != 1 {
		t.fail(s, "one argument is wanted, not %d", len(s.args))
		return ""
	}
	return s.args[0]
}

// number parses an argument that is an integer within bounds.
func (t *translator) number(s *statement, arg string, least, most int) int {
	n, err := strconv.Atoi(arg)
	if err != nil || n < least || n > most {
		t.fail(s, "%q is not a number between %d and %d", arg, least, most)
		return least
	}
	return n
}

// duration parses an argument that is a duration, and not negative.
func (t *translator) duration(s *statement, arg string) time.Duration {
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		t.fail(s, "%q is not a duration, such as 10s or 1m30s", arg)
		return 0
	}
	return d
}

// once reports whether a statement is the first of a plugin whose settings there
// is one set of, and notes it where another one says something else.
func (t *translator) once(s *statement, otherwise NoteKind) bool {
	first := t.first[s.name]
	if first == nil {
		t.first[s.name] = s
		return true
	}
	if !sameStatement(first, s) {
		t.note(otherwise, s, "there is one set of these settings for all names, that of line %d", first.line)
	}
	return false
}

func sameStatement(a, b *statement) bool {
	return a.name == b.name && slices.Equal(a.args, b.args) &&
		slices.EqualFunc(a.options, b.options, func(x, y statement) bool { return sameStatement(&x, &y) })
}

// verdict is the note about a directive that becomes no setting.
type verdict struct {
	kind NoteKind
	why  string
}

// judge notes the verdict on an option, if there is one.
func (t *translator) judge(o *statement, verdicts map[string]verdict) {
	v, ok := verdicts[o.name]
	if !ok {
		t.fail(o, "no such option")
		return
	}
	t.note(v.kind, o, "%s", v.why)
}
