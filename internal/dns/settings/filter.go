package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/querylog"
)

// These are the answers to blocked names.
const (
	blockNXDomain = "nxdomain"
	blockZero     = "zero"
)

// actions maps the actions of access rules.
var actions = map[string]filter.Action{"allow": filter.Allow, "refuse": filter.Refuse, "drop": filter.Drop}

func (d *DNS) compileRules(made *Compiled) error {
	for i := range d.Access {
		rule, err := d.Access[i].compile()
		if err != nil {
			return &key.Error{Path: "dns.access." + err.Path, Item: i, Err: err.Err}
		}
		made.Rules.Access = append(made.Rules.Access, rule)
	}
	for i, w := range d.Rewrite {
		from, err := dnsname.Parse(w.From)
		if err != nil {
			return key.ItemErrorf("dns.rewrite.from", i, "%w", err)
		}
		to, err := dnsname.Parse(w.To)
		if err != nil {
			return key.ItemErrorf("dns.rewrite.to", i, "%w", err)
		}
		made.Rules.Rewrites = append(made.Rules.Rewrites, filter.Rewrite{From: from, To: to, Exact: w.Exact})
	}
	for i := range d.Suppress {
		rule, err := d.Suppress[i].compile()
		if err != nil {
			return &key.Error{Path: "dns.suppress." + err.Path, Item: i, Err: err.Err}
		}
		made.Rules.Suppress = append(made.Rules.Suppress, rule)
	}
	for i, n := range d.Block.Names {
		name, err := parseTree(n)
		switch {
		case err != nil:
			return key.ItemErrorf("dns.block.names", i, "%w", err)
		case name.IsRoot():
			return key.ItemErrorf("dns.block.names", i, "the root: everything would be blocked")
		}
		made.Rules.Block.Names = append(made.Rules.Block.Names, name)
	}
	made.Rules.Block.Files, made.Rules.Block.TTL = d.Block.Files, uint32(d.Block.TTL)
	made.Rules.Block.Zero = d.Block.Answer == blockZero
	made.Rules.Hosts = filter.Hosts{Lines: d.Hosts.Lines, Files: d.Hosts.Files, TTL: uint32(d.Hosts.TTL)}
	if err := filter.CheckLines(d.Hosts.Lines); err != nil {
		return key.Errorf("dns.hosts.lines", "%w", err)
	}
	return d.compileRateLimit(made)
}

// compile returns the compiled rule, or the error with its key.
func (a *Access) compile() (made filter.AccessRule, bad *key.Error) {
	wrong := func(path, format string, args ...any) (filter.AccessRule, *key.Error) {
		return made, &key.Error{Path: path, Item: -1, Err: fmt.Errorf(format, args...)}
	}
	var ok bool
	if made.Action, ok = actions[a.Action]; !ok {
		return wrong("action", "%q is not allow, refuse or drop", a.Action)
	}
	var err error
	if made.Clients, err = parsePrefixes(a.Clients); err != nil {
		return wrong("clients", "%w", err)
	}
	if made.Names, err = parseNames(a.Names); err != nil {
		return wrong("names", "%w", err)
	}
	return made, nil
}

// compile returns the compiled rule, or the error with its key.
func (s *Suppress) compile() (made filter.Suppression, bad *key.Error) {
	wrong := func(path string, err error) (filter.Suppression, *key.Error) {
		return made, &key.Error{Path: path, Item: -1, Err: err}
	}
	if len(s.Types) == 0 {
		return wrong("types", errors.New("no type; give one such as AAAA"))
	}
	for _, text := range s.Types {
		t, err := dnswire.ParseType(text)
		switch {
		case err != nil:
			return wrong("types", err)
		case !t.IsData() || t == dnswire.TypeCNAME:
			return wrong("types", fmt.Errorf("%s cannot be suppressed; give types of data such as AAAA", t))
		}
		made.Types = append(made.Types, t)
	}
	var err error
	if made.Clients, err = parsePrefixes(s.Clients); err != nil {
		return wrong("clients", err)
	}
	if made.Names, err = parseNames(s.Names); err != nil {
		return wrong("names", err)
	}
	return made, nil
}

// parsePrefixes parses prefixes. An address is a prefix of full length.
func parsePrefixes(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if addr, errAddr := netip.ParseAddr(text); errAddr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a range, such as 10.0.0.0/8", text)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// parseTree parses a name that stands for itself and all names below.
func parseTree(text string) (dnsname.Name, error) {
	if rest, wildcard := strings.CutPrefix(text, "*."); wildcard {
		return dnsname.Name{}, fmt.Errorf("%q: a name includes all names below it; write %s", text, rest)
	}
	return dnsname.Parse(text)
}

func parseNames(texts []string) (all []dnsname.Name, err error) {
	for _, text := range texts {
		name, err := parseTree(text)
		if err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, nil
}

func (d *DNS) compileQueryLog(made *Compiled) (err error) {
	q := &d.QueryLog
	made.QueryLog.OneIn = q.OneIn
	if made.QueryLog.Clients, err = parsePrefixes(q.Clients); err != nil {
		return key.Errorf("dns.queryLog.clients", "%w", err)
	}
	if made.QueryLog.Names, err = parseNames(q.Names); err != nil {
		return key.Errorf("dns.queryLog.names", "%w", err)
	}
	for i, text := range q.RCodes {
		rcode, err := dnswire.ParseRCode(text)
		if err != nil {
			return key.ItemErrorf("dns.queryLog.rcodes", i, "%w", err)
		}
		made.QueryLog.RCodes = append(made.QueryLog.RCodes, rcode)
	}
	if d.DNSTap == "" {
		return nil
	}
	network, address, ok := querylog.ParseTap(d.DNSTap)
	if !ok {
		return key.Errorf("dns.dnstap", "%q is not unix:PATH or tcp:ADDRESS:PORT", d.DNSTap)
	}
	made.QueryLog.Tap = querylog.Tap{Network: network, Address: address, Version: d.Identity.Version}
	return nil
}

func (d *DNS) compileRateLimit(made *Compiled) error {
	l := &d.RateLimit
	made.RateLimit = filter.RateLimit{
		PerSecond: l.PerSecond, Burst: l.Burst, Prefix4: l.Prefix4, Prefix6: l.Prefix6, Slip: l.Slip,
	}
	return nil
}
