package corefile

import (
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// The defaults of the plugin cache, in seconds.
const (
	defaultSuccessTTL = 3600
	defaultDenialTTL  = 1800
	defaultMinTTL     = 5
	maxTTL            = 1<<31 - 1
)

// cacheVerdicts are on options of the plugin cache.
var cacheVerdicts = map[string]verdict{
	"keepttl":            {Missing, "TTLs of answers that are kept count down"},
	"prefetch":           {Done, "answers in use are asked for again before their TTL ends"},
	"serve_stale_policy": {Missing, "a denial counts as an address does"},
	"servfail":           {Differs, "failures are kept for 1s to 5s, the longer the more of them there are"},
}

func (t *translator) cachePlugin(b *block, s *statement) {
	if !t.once(s, Differs) {
		return
	}
	t.cache = s
	c, args := &t.Config.DNS.Cache, s.args
	c.MaxTTL, c.MaxNegativeTTL, c.MinTTL = defaultSuccessTTL, defaultDenialTTL, defaultMinTTL
	if len(args) > 0 && strings.Trim(args[0], "-0123456789") == "" {
		c.MaxTTL = t.number(s, args[0], 1, maxTTL)
		c.MaxNegativeTTL, args = c.MaxTTL, args[1:]
	}
	t.from(s, "dns.cache.maxTTL", "dns.cache.maxNegativeTTL", "dns.cache.minTTL")
	for _, z := range t.zonesOf(b, s, args) {
		if z != "" && len(args) > 0 {
			t.note(Differs, s, "answers are kept for all names that others are asked for; the cluster's own need no cache")
			break
		}
	}
	stale := false
	for i := range s.options {
		o := &s.options[i]
		stale = stale || o.name == "serve_stale"
		if !t.cacheOption(o, c) {
			t.judge(o, cacheVerdicts)
		}
	}
	c.MinTTL = min(c.MinTTL, c.MaxTTL)
	if !stale {
		t.note(Differs, s, "when all upstreams fail, an answer is given for %s past its TTL; dns.cache.stale 0s ends that", time.Duration(c.Stale))
	}
}

// cacheOption translates an option that becomes a setting.
func (t *translator) cacheOption(o *statement, c *dnssettings.Cache) bool {
	switch o.name {
	case "success":
		t.capacity(o)
		if len(o.args) > 1 {
			c.MaxTTL = t.number(o, o.args[1], 1, maxTTL)
			t.from(o, "dns.cache.maxTTL")
		}
		if len(o.args) > 2 {
			c.MinTTL = t.number(o, o.args[2], 0, maxTTL)
			t.from(o, "dns.cache.minTTL")
		}
	case "denial":
		t.capacity(o)
		if len(o.args) > 1 {
			c.MaxNegativeTTL = t.number(o, o.args[1], 1, maxTTL)
			t.from(o, "dns.cache.maxNegativeTTL")
		}
		if len(o.args) > 2 {
			t.note(Missing, o, "TTLs of denials are not raised")
		}
	case "serve_stale":
		t.serveStale(o, c)
	case "disable":
		t.disable(o, c)
	default:
		return false
	}
	return true
}

func (t *translator) capacity(o *statement) {
	if len(o.args) == 0 || len(o.args) > 3 {
		t.fail(o, "one to three numbers are wanted")
		return
	}
	t.number(o, o.args[0], 0, maxTTL)
	t.note(Differs, o, "the cache is bounded by its memory, dns.cache.size, and not by the number of answers")
}

// serveStale: [DURATION] [immediate [TTL [RECHECK]] | verify [TIMEOUT [TTL [RECHECK]]]].
func (t *translator) serveStale(o *statement, c *dnssettings.Cache) {
	c.Stale, c.StaleAfter = key.Duration(time.Hour), 0
	if len(o.args) > 0 {
		c.Stale = key.Duration(t.duration(o, o.args[0]))
	}
	rest := o.args[min(2, len(o.args)):]
	if len(o.args) > 1 {
		switch mode := strings.ToLower(o.args[1]); mode {
		case "immediate":
		case "verify":
			c.StaleAfter = key.Duration(dnssettings.DefaultRouteTimeout)
			if len(rest) > 0 {
				if limit := t.duration(o, rest[0]); limit > 0 {
					c.StaleAfter = key.Duration(limit)
				}
				rest = rest[1:]
			}
		default:
			t.fail(o, "%q is not immediate or verify", mode)
		}
	}
	t.from(o, "dns.cache.stale", "dns.cache.staleAfter")
	if len(rest) > 0 {
		t.note(Differs, o, "answers past their TTL have a TTL of 30s, and failures are kept for 1s to 5s")
	}
}

// disable: success|denial [ZONES].
func (t *translator) disable(o *statement, c *dnssettings.Cache) {
	if len(o.args) == 0 || o.args[0] != "success" && o.args[0] != "denial" {
		t.fail(o, "success or denial is wanted")
		return
	}
	if zones := t.zonesOf(nil, o, append(o.args[1:], ".")); !slices.Contains(o.args[1:], ".") && len(zones) > 1 {
		if slices.ContainsFunc(zones, func(z string) bool { return z != "" && !t.isCluster(z) }) {
			t.note(Missing, o, "answers of others are kept, whatever their names")
		} else {
			t.note(Done, o, "the cluster's names need no cache")
		}
		return
	}
	if o.args[0] == "success" {
		c.MaxTTL = 0
		t.from(o, "dns.cache.maxTTL")
		t.note(Differs, o, "answers have a TTL of 0")
		return
	}
	c.MaxNegativeTTL = 0
	t.from(o, "dns.cache.maxNegativeTTL")
}
