package corefile

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// forwardNotes are the notes on options of the plugin forward.
var forwardNotes = map[string]pluginNote{
	"doh_method": {Done, "always on: queries over HTTPS use POST"},
	"except": {
		Missing, "these names are forwarded as well; a route with a longer suffix can use other upstreams, and " +
			"dns.block can deny them",
	},
	"expire": {Done, "connections are closed after 10s without queries"},
	"failfast_all_unhealthy_upstreams": {
		Done, "always on: if no upstream answers within the route's timeout, the response is SERVFAIL",
	},
	"failover": {Done, "always on: another upstream is queried after SERVFAIL or REFUSED"},
	"health_check": {
		Done, "health is derived from replies; failed upstreams are probed from time to time",
	},
	"max_age":              {Done, "connections are closed after 10s without queries"},
	"max_connect_attempts": {Done, "upstreams are tried until the route's timeout expires"},
	"max_fails":            {Done, "health is derived from replies; failed upstreams are queried last"},
	"max_idle_conns":       {Done, "queries share one connection to an upstream"},
	"next":                 {Missing, "a name is forwarded to one route only"},
	"next_on_nodata":       {Missing, "a name is forwarded to one route only"},
	"prefer_udp":           {Done, "always on: UDP is used first, and TCP after a truncated reply"},
	"read_timeout":         {Done, "another upstream is queried as soon as one takes longer than usual"},
	"resolver":             {Missing, "upstreams must be addresses: host names are not resolved"},
	"source_address":       {Missing, "the system chooses the source address"},
}

// upstreams collects the settings of a plugin forward.
type upstreams struct {
	route      dnssettings.Route
	tcp        bool
	serverName string
}

func (t *translator) forward(b *block, s *statement) {
	if len(s.args) < 2 {
		t.fail(s, "must have a zone and at least one server")
		return
	}
	if t.first["forward"] == nil {
		t.first["forward"] = s
	}
	var u upstreams
	for i := range s.options {
		if o := &s.options[i]; !t.forwardOption(b, o, &u) {
			t.noteOption(o, forwardNotes)
		}
	}
	for _, to := range s.args[1:] {
		t.appendUpstream(s, &u, to)
	}
	if len(u.route.Upstreams) == 0 && u.route.ResolvConf == "" {
		t.note(Missing, s, "none of the servers is supported: there is no route")
		return
	}
	from := t.zonesOf(b, s, s.args[:1])
	if t.err == nil {
		t.appendRoutes(b, s, from, u.route)
	}
}

// forwardOption translates an option that becomes a setting.
func (t *translator) forwardOption(b *block, o *statement, u *upstreams) bool {
	switch o.name {
	case "force_tcp":
		u.tcp = true
	case "tls":
		t.forwardTLS(b, o, u)
	case "tls_servername":
		u.serverName = t.oneArg(o)
	case "policy":
		switch policy := t.oneArg(o); policy {
		case "random", "sequential":
			u.route.Policy = policy
		case "round_robin":
			u.route.Policy = "random"
			t.note(Differs, o, "upstreams are used in random order, not in rotation")
		default:
			t.fail(o, "%q is not random, round_robin or sequential", policy)
		}
	case "max_concurrent":
		t.maxConcurrent(o)
	case "failover":
		if !slices.ContainsFunc(o.args, func(code string) bool { return strings.EqualFold(code, "NXDOMAIN") }) {
			return false
		}
		t.note(Missing, o, "NXDOMAIN is a valid answer: no other upstream is queried")
	default:
		return false
	}
	return true
}

// forwardTLS translates up to three files. If there is one or are three, the last is the
// CA of the upstreams' certificates.
func (t *translator) forwardTLS(b *block, o *statement, u *upstreams) {
	switch len(o.args) {
	case 0:
	case 1, 3:
		u.route.CA = b.file(o.args[len(o.args)-1])
	case 2:
	default:
		t.fail(o, "must have at most three files")
	}
	if len(o.args) > 1 {
		t.note(Missing, o, "there are no client certificates for upstreams")
	}
}

// maxConcurrent translates the limit of concurrent queries. All routes share one limit,
// the sum of those in the Corefile.
func (t *translator) maxConcurrent(o *statement) {
	n := t.number(o, t.oneArg(o), 0, 1<<30)
	if n == 0 {
		return // unlimited
	}
	if t.first["max_concurrent"] == nil {
		t.first["max_concurrent"] = o
		t.Config.DNS.Forward.MaxInFlight = 0
		t.setOrigin(o, "dns.forward.maxInFlight")
	}
	t.Config.DNS.Forward.MaxInFlight += n
}

// appendUpstream adds a server, or a file with servers.
func (t *translator) appendUpstream(s *statement, u *upstreams, to string) {
	transport, rest, ok := strings.Cut(to, "://")
	if !ok {
		transport, rest = "dns", to
	}
	addr, serverName, err := parseServer(transport, rest)
	switch {
	case err == nil:
	case ok:
		t.fail(s, "%w", err)
		return
	case strings.Contains(rest, "/"):
		t.setResolvConf(s, u, rest)
		return
	default:
		t.note(Missing, s, "%s: upstreams must be addresses: host names are not resolved", to)
		return
	}
	if serverName == "" {
		serverName = u.serverName
	}
	switch transport {
	case "dns":
		if u.tcp {
			addr = "tcp://" + addr
		}
	case "tls":
		addr = "tls://" + addr
		if serverName != "" {
			addr += "#" + serverName
		}
	case "https":
		if serverName != "" {
			addr = serverName + "/dns-query@" + addr
		}
		addr = "https://" + addr
	default:
		t.note(Missing, s, "%s: upstreams are queried over UDP, TCP, TLS or HTTPS", to)
		return
	}
	if !slices.Contains(u.route.Upstreams, addr) {
		u.route.Upstreams = append(u.route.Upstreams, addr)
	}
}

func (t *translator) setResolvConf(s *statement, u *upstreams, file string) {
	if u.route.ResolvConf != "" && u.route.ResolvConf != file {
		t.note(Missing, s, "a route has one resolv.conf: %s is omitted", file)
		return
	}
	u.route.ResolvConf = file
	if u.tcp {
		t.note(Missing, s, "servers in %s are queried over UDP first despite force_tcp: write their addresses here", file)
	}
}

// parseServer parses ADDRESS[%NAME][:PORT]. NAME is the server name of the certificate,
// for TLS and QUIC only.
func parseServer(transport, text string) (addr, serverName string, err error) {
	wrong := fmt.Errorf("%q is not a server address", text)
	host, port := strings.Trim(text, "[]"), ""
	if h, p, err := net.SplitHostPort(text); err == nil {
		host, port = h, p
	}
	if transport == "tls" || transport == "quic" {
		host, serverName, _ = strings.Cut(host, "%")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "", "", wrong
	}
	if port == "" {
		return ip.Unmap().String(), serverName, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", wrong
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String(), serverName, nil
}

// appendRoutes adds a route for each zone of the block that overlaps one of the zones in
// from.
func (t *translator) appendRoutes(b *block, s *statement, from []string, route dnssettings.Route) {
	reached := false
	for _, zone := range b.zones {
		for _, suffix := range from {
			switch {
			case isBelow(suffix, zone):
			case isBelow(zone, suffix):
				suffix = zone
			default:
				continue
			}
			reached = true
			route.Suffix = suffix
			t.appendRoute(s, route)
		}
	}
	if !reached {
		t.note(Done, s, "no effect: it applies to no name in the block's zones")
	}
}

func (t *translator) appendRoute(s *statement, route dnssettings.Route) {
	routes := &t.Config.DNS.Forward.Routes
	i := slices.IndexFunc(*routes, func(r dnssettings.Route) bool { return r.Suffix == route.Suffix })
	if i < 0 {
		t.setOrigin(s, fmt.Sprintf("dns.forward.routes[%d]", len(*routes)))
		t.first["route "+route.Suffix] = s
		*routes = append(*routes, route)
		return
	}
	if !sameRoute((*routes)[i], route) {
		first := t.first["route "+route.Suffix]
		t.note(Missing, s, "only the servers on line %d are used for names in %s", first.line, showZone(route.Suffix))
	}
}

func sameRoute(a, b dnssettings.Route) bool {
	return slices.Equal(a.Upstreams, b.Upstreams) && a.ResolvConf == b.ResolvConf && a.Policy == b.Policy && a.CA == b.CA
}

func showZone(zone string) string {
	if zone == "" {
		return "."
	}
	return zone
}

// isCluster reports whether a zone is in a cluster domain.
func (t *translator) isCluster(zone string) bool {
	return slices.ContainsFunc(t.Config.DNS.Zones, func(z string) bool { return isBelow(zone, z) })
}

// removeShadowedRoutes removes routes for names in the cluster's zones.
func (t *translator) removeShadowedRoutes() {
	var left []dnssettings.Route
	origins := make(map[string]string)
	for i, r := range t.Config.DNS.Forward.Routes {
		key := fmt.Sprintf("dns.forward.routes[%d]", i)
		if t.isCluster(r.Suffix) {
			t.note(Missing, t.first["route "+r.Suffix],
				"names in the cluster's zone %s are answered from the cluster, not forwarded", r.Suffix)
		} else {
			origins[fmt.Sprintf("dns.forward.routes[%d]", len(left))] = t.Origins[key]
			left = append(left, r)
		}
		delete(t.Origins, key)
	}
	t.Config.DNS.Forward.Routes = left
	maps.Copy(t.Origins, origins)
}
