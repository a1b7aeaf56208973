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
	fileKind string // corefile or config map
	path     string
	options  Options
	err      error // the first error

	cluster          *statement            // the first plugin kubernetes; nil if there is none
	fallthroughZones []string              // the zones of its option fallthrough
	allReverse       bool                  // its zones include all reverse names
	cache            *statement            // the first plugin cache; nil if there is none
	served           []served              // the listening addresses
	first            map[string]*statement // the first use of a plugin or route
}

// served is an address and the zones that CoreDNS serves on it.
type served struct {
	addr  string
	zones []string
}

func newTranslator(what, path string, o Options) *translator {
	t := &translator{fileKind: what, path: path, options: o, first: make(map[string]*statement)}
	t.Config, t.Origins = config.Default(), make(map[string]string)
	t.Config.DNS.Listen, t.Config.Admin.Listen = nil, ""
	return t
}

// note adds a note about a statement.
func (t *translator) note(k NoteKind, s *statement, format string, args ...any) {
	t.Notes = append(t.Notes, Note{
		File: s.file, Line: s.line, Directive: s.path(), Kind: k, Text: fmt.Sprintf(format, args...),
	})
}

// fail records an error in a statement because of which CoreDNS does not start. Only the
// first error is kept.
func (t *translator) fail(s *statement, format string, args ...any) {
	if t.err == nil {
		t.err = &positionError{t.fileKind, s.file, s.line, fmt.Errorf("%s: %w", s.path(), fmt.Errorf(format, args...))}
	}
}

// from records the origin of the settings with the given keys.
func (t *translator) setOrigin(s *statement, keys ...string) {
	for _, key := range keys {
		t.Origins[key] = fmt.Sprintf("%s:%d", filepath.Base(s.file), s.line)
	}
}

// translate translates server blocks.
func (t *translator) translate(blocks []block) {
	for i := range blocks {
		b := &blocks[i]
		t.checkNodeLocal(b)
		t.readBlock(b)
		for j := range b.statements { // its zones affect the translation of other plugins
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

// checkListen checks that there is a listening address. If the block is bound to
// interfaces and the host is unknown, it sets the default address.
func (t *translator) checkListen(first *block) {
	c := &t.Config
	switch {
	case len(c.DNS.Listen)+len(c.DNS.TLS.Listen)+len(c.DNS.HTTPS.Listen) > 0:
	case t.options.InterfaceAddrs != nil:
		t.fail(t.blockStatement(first), "there is no address to listen on")
	default:
		c.DNS.Listen = config.Default().DNS.Listen
		text := "DNS is served on loopback over UDP and TCP, " + c.DNS.Listen[0]
		t.Notes = append(t.Notes, Note{File: t.path, Line: 1, Directive: "file", Kind: Differs, Text: text})
	}
}

// plugin translates a plugin.
func (t *translator) plugin(b *block, s *statement) {
	if plugin, ok := plugins[s.name]; ok {
		plugin(t, b, s)
	} else if v, ok := pluginNotes[s.name]; ok {
		t.note(v.kind, s, "%s", v.text)
	} else {
		t.fail(s, "not a plugin of CoreDNS 1.15")
	}
}

// blockStatement returns a statement for notes and errors about a whole block.
func (t *translator) blockStatement(b *block) *statement {
	return &statement{file: t.path, line: b.line, name: strings.Join(b.keys, " ")}
}

// readBlock derives a block's sites, zones and root directory, and its listening
// addresses.
func (t *translator) readBlock(b *block) {
	at := t.blockStatement(b)
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
			b.root = t.oneArg(s)
		}
	}
	t.setListen(b, at)
}

// file returns the path of a file named in a plugin.
func (b *block) file(name string) string {
	if b.root == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(b.root, name)
}

// setListen adds the listening addresses of a block.
func (t *translator) setListen(b *block, at *statement) {
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
			t.note(Missing, at, "DNS is served over UDP, TCP, TLS or HTTPS, not over %s", s.transport)
			continue
		}
		for _, host := range hosts {
			addr := netipJoin(host, s.port)
			if !slices.Contains(*list, addr) {
				*list = append(*list, addr)
			}
			t.recordServed(s.transport+" "+addr, s.zone)
		}
	}
}

func netipJoin(host netip.Addr, port string) string {
	n, _ := strconv.ParseUint(port, 10, 16) // validated by parseSite
	return netip.AddrPortFrom(host, uint16(n)).String()
}

// recordServed records that CoreDNS serves a zone on an address.
func (t *translator) recordServed(addr, zone string) {
	i := slices.IndexFunc(t.served, func(s served) bool { return s.addr == addr })
	if i < 0 {
		i = len(t.served)
		t.served = append(t.served, served{addr: addr})
	}
	if !slices.Contains(t.served[i].zones, zone) {
		t.served[i].zones = append(t.served[i].zones, zone)
	}
}

// hosts returns the addresses of a block's bind plugins, or the unspecified addresses.
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

// addresses returns the addresses in the arguments, and those of the interfaces in the
// arguments.
func (t *translator) addresses(s *statement) (all []netip.Addr) {
	for _, a := range s.args {
		if addr, err := netip.ParseAddr(a); err == nil {
			all = append(all, addr.Unmap())
			continue
		}
		if t.options.InterfaceAddrs == nil {
			t.note(Missing, s, "%s: the host's interfaces are unknown: write their addresses, or use serve --corefile", a)
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

// checkBlocks adds notes on differences that result from a single set of settings for all
// blocks.
func (t *translator) checkBlocks(blocks []block) {
	for _, s := range t.served {
		if !sameZones(s.zones, t.served[0].zones) {
			t.note(Missing, t.blockStatement(&blocks[0]),
				"all names are answered on all addresses, including those of other blocks on %s", s.addr)
			break
		}
	}
	if t.cluster == nil {
		t.note(Missing, t.blockStatement(&blocks[0]),
			"no plugin kubernetes: the names in %s are served nevertheless, and a cluster is required", t.Config.DNS.Zones[0])
	}
}

func sameZones(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// finish validates the translation and returns it, or the first error.
func (t *translator) finish() (*Translation, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.removeShadowedRoutes()
	t.Config.DNS.Listen = withoutCovered(t.Config.DNS.Listen)
	t.noteDefaults()
	sortNotes(t.path, t.Notes)
	if err := t.validate(); err != nil {
		return nil, err
	}
	return &t.Translation, nil
}

// withoutCovered returns the addresses that no unspecified address with the same port
// covers.
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

// oneArg returns the only argument of a statement.
func (t *translator) oneArg(s *statement) string {
	if len(s.args) != 1 {
		t.fail(s, "must have one argument, not %d", len(s.args))
		return ""
	}
	return s.args[0]
}

// number parses an argument that is an integer in [least, most].
func (t *translator) number(s *statement, arg string, least, most int) int {
	n, err := strconv.Atoi(arg)
	if err != nil || n < least || n > most {
		t.fail(s, "%q is not a number between %d and %d", arg, least, most)
		return least
	}
	return n
}

// duration parses an argument that is a non-negative duration.
func (t *translator) duration(s *statement, arg string) time.Duration {
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		t.fail(s, "%q is not a duration, such as 10s or 1m30s", arg)
		return 0
	}
	return d
}

// isFirst reports whether a statement is the first of a plugin with one set of settings for
// all blocks. If it is not and differs from the first, isFirst adds a note.
func (t *translator) isFirst(s *statement, otherwise NoteKind) bool {
	first := t.first[s.name]
	if first == nil {
		t.first[s.name] = s
		return true
	}
	if !sameStatement(first, s) {
		t.note(otherwise, s, "there is one set of these settings for all names: line %d applies", first.line)
	}
	return false
}

func sameStatement(a, b *statement) bool {
	return a.name == b.name && slices.Equal(a.args, b.args) &&
		slices.EqualFunc(a.options, b.options, func(x, y statement) bool { return sameStatement(&x, &y) })
}

// pluginNote is the note on a plugin or option that becomes no setting.
type pluginNote struct {
	kind NoteKind
	text string
}

// noteOption adds the note on an option, or an error if CoreDNS has no such option.
func (t *translator) noteOption(o *statement, verdicts map[string]pluginNote) {
	v, ok := verdicts[o.name]
	if !ok {
		t.fail(o, "no such option")
		return
	}
	t.note(v.kind, o, "%s", v.text)
}
