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
	for i := range c.Access {
		rule, err := c.Access[i].compile()
		if err != nil {
			return &keyError{"access." + err.key, i, err.err}
		}
		made.Rules.Access = append(made.Rules.Access, rule)
	}
	for i, w := range c.Rewrite {
		from, err := dnsname.Parse(w.From)
		if err != nil {
			return badItem("rewrite.from", i, "%w", err)
		}
		to, err := dnsname.Parse(w.To)
		if err != nil {
			return badItem("rewrite.to", i, "%w", err)
		}
		made.Rules.Rewrites = append(made.Rules.Rewrites, filter.Rewrite{From: from, To: to, Exact: w.Exact})
	}
	for i, n := range c.Block.Names {
		name, err := dnsname.Parse(n)
		switch {
		case err != nil:
			return badItem("block.names", i, "%w", err)
		case name.IsRoot():
			return badItem("block.names", i, "the root: everything would be blocked")
		}
		made.Rules.Block.Names = append(made.Rules.Block.Names, name)
	}
	if c.Block.Answer != blockNXDomain && c.Block.Answer != blockZero {
		return badValue("block.answer", "%q is not %s or %s", c.Block.Answer, blockNXDomain, blockZero)
	}
	for _, ttl := range []struct {
		key string
		of  int
	}{{"block.ttl", c.Block.TTL}, {"hosts.ttl", c.Hosts.TTL}} {
		if ttl.of < 0 || ttl.of > maxTTL {
			return badValue(ttl.key, "%d is not between 0 and %d", ttl.of, maxTTL)
		}
	}
	made.Rules.Block.Files, made.Rules.Block.Zero, made.Rules.Block.TTL = c.Block.Files, c.Block.Answer == blockZero, uint32(c.Block.TTL)
	made.Rules.Hosts = filter.Hosts{Lines: c.Hosts.Lines, Files: c.Hosts.Files, TTL: uint32(c.Hosts.TTL)}
	if err := filter.CheckLines(c.Hosts.Lines); err != nil {
		return badValue("hosts.lines", "%w", err)
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
	q := &c.QueryLog
	made.QueryLog.OneIn = q.OneIn
	if q.OneIn < 0 {
		return badValue("queryLog.oneIn", "%d is less than 0", q.OneIn)
	}
	if made.QueryLog.Clients, err = parsePrefixes(q.Clients); err != nil {
		return badValue("queryLog.clients", "%w", err)
	}
	if made.QueryLog.Names, err = parseNames(q.Names); err != nil {
		return badValue("queryLog.names", "%w", err)
	}
	for i, text := range q.RCodes {
		rcode, err := dnswire.ParseRCode(text)
		if err != nil {
			return badItem("queryLog.rcodes", i, "%w", err)
		}
		made.QueryLog.RCodes = append(made.QueryLog.RCodes, rcode)
	}
	if c.DNSTap == "" {
		return nil
	}
	network, address, ok := querylog.ParseTap(c.DNSTap)
	if !ok {
		return badValue("dnstap", "%q is not unix:PATH or tcp:ADDRESS:PORT", c.DNSTap)
	}
	made.QueryLog.Tap = querylog.Tap{Network: network, Address: address, Version: c.Identity.Version}
	return nil
}

func (c *Config) compileRateLimit(made *Compiled) error {
	l := &c.RateLimit
	const most = 1 << 20
	for _, n := range []struct {
		key                string
		value, least, most int
	}{
		{"rateLimit.perSecond", l.PerSecond, 0, most},
		{"rateLimit.burst", l.Burst, 1, most},
		{"rateLimit.prefix4", l.Prefix4, 0, 32},
		{"rateLimit.prefix6", l.Prefix6, 0, 128},
		{"rateLimit.slip", l.Slip, 0, most},
	} {
		if n.value < n.least || n.value > n.most {
			return badValue(n.key, "%d is not between %d and %d", n.value, n.least, n.most)
		}
	}
	made.RateLimit = filter.RateLimit{PerSecond: l.PerSecond, Burst: l.Burst, Prefix4: l.Prefix4, Prefix6: l.Prefix6, Slip: l.Slip}
	return nil
}
