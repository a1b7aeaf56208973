package config

import (
	"fmt"
	"net/netip"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/querylog"
)

// The answers to blocked names.
const (
	blockNXDomain = "nxdomain"
	blockZero     = "zero"
)

// actions are those of access rules.
var actions = map[string]filter.Action{"allow": filter.Allow, "refuse": filter.Refuse, "drop": filter.Drop}

func (c *Config) compileRules(made *Compiled) error {
	for i := range c.DNS.Access {
		rule, err := c.DNS.Access[i].compile()
		if err != nil {
			return &keyError{"dns.access." + err.key, i, err.err}
		}
		made.DNS.Rules.Access = append(made.DNS.Rules.Access, rule)
	}
	for i, w := range c.DNS.Rewrite {
		from, err := dnsname.Parse(w.From)
		if err != nil {
			return badItem("dns.rewrite.from", i, "%w", err)
		}
		to, err := dnsname.Parse(w.To)
		if err != nil {
			return badItem("dns.rewrite.to", i, "%w", err)
		}
		made.DNS.Rules.Rewrites = append(made.DNS.Rules.Rewrites, filter.Rewrite{From: from, To: to, Exact: w.Exact})
	}
	for i, n := range c.DNS.Block.Names {
		name, err := dnsname.Parse(n)
		switch {
		case err != nil:
			return badItem("dns.block.names", i, "%w", err)
		case name.IsRoot():
			return badItem("dns.block.names", i, "the root: everything would be blocked")
		}
		made.DNS.Rules.Block.Names = append(made.DNS.Rules.Block.Names, name)
	}
	made.DNS.Rules.Block.Files, made.DNS.Rules.Block.Zero, made.DNS.Rules.Block.TTL = c.DNS.Block.Files, c.DNS.Block.Answer == blockZero, uint32(c.DNS.Block.TTL)
	made.DNS.Rules.Hosts = filter.Hosts{Lines: c.DNS.Hosts.Lines, Files: c.DNS.Hosts.Files, TTL: uint32(c.DNS.Hosts.TTL)}
	if err := filter.CheckLines(c.DNS.Hosts.Lines); err != nil {
		return badValue("dns.hosts.lines", "%w", err)
	}
	return c.compileRateLimit(made)
}

// compile gives a rule, or the error of a key of it.
func (a *Access) compile() (made filter.AccessRule, bad *keyError) {
	wrong := func(key, format string, args ...any) (filter.AccessRule, *keyError) {
		return made, &keyError{key: key, err: fmt.Errorf(format, args...)}
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

// parsePrefixes reads ranges; an address is one of its own.
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

func parseNames(texts []string) (all []dnsname.Name, err error) {
	for _, text := range texts {
		name, err := dnsname.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, nil
}

func (c *Config) compileQueryLog(made *Compiled) (err error) {
	q := &c.DNS.QueryLog
	made.DNS.QueryLog.OneIn = q.OneIn
	if made.DNS.QueryLog.Clients, err = parsePrefixes(q.Clients); err != nil {
		return badValue("dns.queryLog.clients", "%w", err)
	}
	if made.DNS.QueryLog.Names, err = parseNames(q.Names); err != nil {
		return badValue("dns.queryLog.names", "%w", err)
	}
	for i, text := range q.RCodes {
		rcode, err := dnswire.ParseRCode(text)
		if err != nil {
			return badItem("dns.queryLog.rcodes", i, "%w", err)
		}
		made.DNS.QueryLog.RCodes = append(made.DNS.QueryLog.RCodes, rcode)
	}
	if c.DNS.DNSTap == "" {
		return nil
	}
	network, address, ok := querylog.ParseTap(c.DNS.DNSTap)
	if !ok {
		return badValue("dns.dnstap", "%q is not unix:PATH or tcp:ADDRESS:PORT", c.DNS.DNSTap)
	}
	made.DNS.QueryLog.Tap = querylog.Tap{Network: network, Address: address, Version: c.DNS.Identity.Version}
	return nil
}

func (c *Config) compileRateLimit(made *Compiled) error {
	l := &c.DNS.RateLimit
	made.DNS.RateLimit = filter.RateLimit{PerSecond: l.PerSecond, Burst: l.Burst, Prefix4: l.Prefix4, Prefix6: l.Prefix6, Slip: l.Slip}
	return nil
}
