package corefile

import (
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// Defaults of the plugin cache, in seconds.
const (
	defaultSuccessTTL = 3600
	defaultDenialTTL  = 1800
	defaultMinTTL     = 5
	maxTTL            = 1<<31 - 1
)

// cacheNotes are the notes on options of the plugin cache.
var cacheNotes = map[string]pluginNote{
	"keepttl":            {Missing, "TTLs of cached answers count down"},
	"prefetch":           {Done, "always on: answers in use are refreshed before their TTL expires"},
	"serve_stale_policy": {Missing, "negative answers are treated like positive ones"},
	"servfail":           {Differs, "failures are cached for 1s to 5s, longer with each repetition"},
}

func (t *translator) cachePlugin(b *block, s *statement) {
	if !t.isFirst(s, Differs) {
		return
	}
	t.cache = s
	c, args := &t.Config.DNS.Cache, s.args
	c.MaxTTL, c.MaxNegativeTTL, c.MinTTL = defaultSuccessTTL, defaultDenialTTL, defaultMinTTL
	if len(args) > 0 && strings.Trim(args[0], "-0123456789") == "" {
		c.MaxTTL = t.number(s, args[0], 1, maxTTL)
		c.MaxNegativeTTL, args = c.MaxTTL, args[1:]
	}
	t.setOrigin(s, "dns.cache.maxTTL", "dns.cache.maxNegativeTTL", "dns.cache.minTTL")
	for _, z := range t.zonesOf(b, s, args) {
		if z != "" && len(args) > 0 {
			t.note(Differs, s, "answers are cached for all forwarded names; the cluster's names need no cache")
			break
		}
	}
	stale := false
	for i := range s.options {
		o := &s.options[i]
		stale = stale || o.name == "serve_stale"
		if !t.cacheOption(o, c) {
			t.noteOption(o, cacheNotes)
		}
	}
	c.MinTTL = min(c.MinTTL, c.MaxTTL)
	if !stale {
		t.note(Differs, s, "if all upstreams fail, stale answers are served for up to %s; dns.cache.stale: 0s disables this",
			time.Duration(c.Stale))
	}
}

// cacheOption translates an option that becomes a setting.
func (t *translator) cacheOption(o *statement, c *dnssettings.Cache) bool {
	switch o.name {
	case "success":
		t.capacity(o)
		if len(o.args) > 1 {
			c.MaxTTL = t.number(o, o.args[1], 1, maxTTL)
			t.setOrigin(o, "dns.cache.maxTTL")
		}
		if len(o.args) > 2 {
			c.MinTTL = t.number(o, o.args[2], 0, maxTTL)
			t.setOrigin(o, "dns.cache.minTTL")
		}
	case "denial":
		t.capacity(o)
		if len(o.args) > 1 {
			c.MaxNegativeTTL = t.number(o, o.args[1], 1, maxTTL)
			t.setOrigin(o, "dns.cache.maxNegativeTTL")
		}
		if len(o.args) > 2 {
			t.note(Missing, o, "there is no minimum TTL of negative answers")
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
		t.fail(o, "must have one to three numbers")
		return
	}
	t.number(o, o.args[0], 0, maxTTL)
	t.note(Differs, o, "the cache is limited by memory, dns.cache.size, not by the number of answers")
}

// serveStale translates [DURATION] [immediate [TTL [RECHECK]] | verify [TIMEOUT [TTL
// [RECHECK]]]].
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
	t.setOrigin(o, "dns.cache.stale", "dns.cache.staleAfter")
	if len(rest) > 0 {
		t.note(Differs, o, "stale answers have a TTL of 30s, and failures are cached for 1s to 5s")
	}
}

// disable translates success|denial [ZONES].
func (t *translator) disable(o *statement, c *dnssettings.Cache) {
	if len(o.args) == 0 || o.args[0] != "success" && o.args[0] != "denial" {
		t.fail(o, "must be success or denial")
		return
	}
	if zones := t.zonesOf(nil, o, append(o.args[1:], ".")); !slices.Contains(o.args[1:], ".") && len(zones) > 1 {
		if slices.ContainsFunc(zones, func(z string) bool { return z != "" && !t.isCluster(z) }) {
			t.note(Missing, o, "forwarded names are cached regardless of their zone")
		} else {
			t.note(Done, o, "the cluster's names are not cached")
		}
		return
	}
	if o.args[0] == "success" {
		c.MaxTTL = 0
		t.setOrigin(o, "dns.cache.maxTTL")
		t.note(Differs, o, "forwarded answers have a TTL of 0")
		return
	}
	c.MaxNegativeTTL = 0
	t.setOrigin(o, "dns.cache.maxNegativeTTL")
}
