package corefile

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	dnssettings "portolan.dev/portolan/internal/dns/settings"
)

// forwardVerdicts are on options of the plugin forward.
var forwardVerdicts = map[string]verdict{
	"doh_method":                       {Done, "HTTPS is asked with POST"},
	"except":                           {Missing, "these names are asked for as well; a route of a longer suffix can lead elsewhere, and block can deny them"},
	"expire":                           {Done, "connections stay open while they are used, and 10s longer"},
	"failfast_all_unhealthy_upstreams": {Done, "a question that no upstream answers is answered SERVFAIL within the route's timeout"},
	"failover":                         {Done, "another upstream is asked where one answers SERVFAIL or REFUSED"},
	"health_check":                     {Done, "how upstreams answer questions tells how they are; those that do not are asked again now and then"},
	"max_age":                          {Done, "connections stay open while they are used, and 10s longer"},
	"max_connect_attempts":             {Done, "upstreams are tried until the route's timeout"},
	"max_fails":                        {Done, "how upstreams answer questions tells how they are; those that do not come last"},
	"max_idle_conns":                   {Done, "queries share one connection to an upstream"},
	"next":                             {Missing, "a name is asked of one route"},
	"next_on_nodata":                   {Missing, "a name is asked of one route"},
	"prefer_udp":                       {Done, "UDP comes first, and TCP for what does not fit"},
	"read_timeout":                     {Done, "another upstream is asked as soon as one takes longer than it usually does"},
	"resolver":                         {Missing, "upstreams are addresses: their names are not looked up"},
	"source_address":                   {Missing, "the system chooses the address that upstreams are asked from"},
}

// upstreams is the plugin forward while it is read.
type upstreams struct {
	route      dnssettings.Route
	tcp        bool
	serverName string
}

func (t *translator) forward(b *block, s *statement) {
	if len(s.args) < 2 {
		t.fail(s, "a zone and at least one server are wanted")
		return
	}
	if t.first["forward"] == nil {
		t.first["forward"] = s
	}
	var u upstreams
	for i := range s.options {
		if o := &s.options[i]; !t.forwardOption(b, o, &u) {
			t.judge(o, forwardVerdicts)
		}
	}
	for _, to := range s.args[1:] {
		t.addUpstream(s, &u, to)
	}
	if len(u.route.Upstreams) == 0 && u.route.ResolvConf == "" {
		t.note(Missing, s, "no server is left that could be asked: there is no route")
		return
	}
	from := t.zonesOf(b, s, s.args[:1])
	if t.err == nil {
		t.addRoutes(b, s, from, u.route)
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
		u.serverName = t.one(o)
	case "policy":
		switch policy := t.one(o); policy {
		case "random", "sequential":
			u.route.Policy = policy
		case "round_robin":
			u.route.Policy = "random"
			t.note(Differs, o, "upstreams come first at random, and not in turn")
		default:
			t.fail(o, "%q is not random, round_robin or sequential", policy)
		}
	case "max_concurrent":
		t.maxConcurrent(o)
	case "failover":
		if !slices.ContainsFunc(o.args, func(code string) bool { return strings.EqualFold(code, "NXDOMAIN") }) {
			return false
		}
		t.note(Missing, o, "that a name does not exist is an answer: no other upstream is asked")
	default:
		return false
	}
	return true
}

// forwardTLS: of one to three files the certificates that sign the upstreams'
// are the first or the last.
func (t *translator) forwardTLS(b *block, o *statement, u *upstreams) {
	switch len(o.args) {
	case 0:
	case 1, 3:
		u.route.CA = b.file(o.args[len(o.args)-1])
	case 2:
	default:
		t.fail(o, "at most three files are wanted")
	}
	if len(o.args) > 1 {
		t.note(Missing, o, "no certificate of ours is shown to upstreams")
	}
}

// maxConcurrent: all routes share one bound, the sum of those that are given.
func (t *translator) maxConcurrent(o *statement) {
	n := t.number(o, t.one(o), 0, 1<<30)
	if n == 0 {
		return // no bound
	}
	if t.first["max_concurrent"] == nil {
		t.first["max_concurrent"] = o
		t.Config.DNS.Forward.MaxInFlight = 0
		t.from(o, "dns.forward.maxInFlight")
	}
	t.Config.DNS.Forward.MaxInFlight += n
}

// addUpstream adds a server, or a file with servers.
func (t *translator) addUpstream(s *statement, u *upstreams, to string) {
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
		t.addResolvConf(s, u, rest)
		return
	default:
		t.note(Missing, s, "%s: upstreams are addresses: their names are not looked up", to)
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
		t.note(Missing, s, "%s: upstreams are asked over UDP, TCP, TLS and HTTPS", to)
		return
	}
	if !slices.Contains(u.route.Upstreams, addr) {
		u.route.Upstreams = append(u.route.Upstreams, addr)
	}
}

func (t *translator) addResolvConf(s *statement, u *upstreams, file string) {
	if u.route.ResolvConf != "" && u.route.ResolvConf != file {
		t.note(Missing, s, "a route has one file of servers: %s is left out", file)
		return
	}
	u.route.ResolvConf = file
	if u.tcp {
		t.note(Missing, s, "servers of %s are asked over UDP first, in spite of force_tcp: name them here", file)
	}
}

// parseServer reads ADDRESS[%NAME][:PORT]; a NAME, which the certificate is of,
// there is over TLS only.
func parseServer(transport, text string) (addr, serverName string, err error) {
	wrong := fmt.Errorf("%q is not the address of a server", text)
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

// addRoutes adds a route for each zone of the block that names from such zones
// are in.
func (t *translator) addRoutes(b *block, s *statement, from []string, route dnssettings.Route) {
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
			t.addRoute(s, route)
		}
	}
	if !reached {
		t.note(Done, s, "the block has no names that this is for")
	}
}

func (t *translator) addRoute(s *statement, route dnssettings.Route) {
	routes := &t.Config.DNS.Forward.Routes
	i := slices.IndexFunc(*routes, func(r dnssettings.Route) bool { return r.Suffix == route.Suffix })
	if i < 0 {
		t.from(s, fmt.Sprintf("dns.forward.routes[%d]", len(*routes)))
		t.first["route "+route.Suffix] = s
		*routes = append(*routes, route)
		return
	}
	if !sameRoute((*routes)[i], route) {
		t.note(Missing, s, "names in %s are asked of those on line %d alone", showZone(route.Suffix), t.first["route "+route.Suffix].line)
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

// dropShadowed leaves out routes for names that are the cluster's.
func (t *translator) dropShadowed() {
	var left []dnssettings.Route
	origins := make(map[string]string)
	for i, r := range t.Config.DNS.Forward.Routes {
		key := fmt.Sprintf("dns.forward.routes[%d]", i)
		if t.isCluster(r.Suffix) {
			t.note(Missing, t.first["route "+r.Suffix], "names in %s are the cluster's: they are answered here, and nobody is asked", r.Suffix)
		} else {
			origins[fmt.Sprintf("dns.forward.routes[%d]", len(left))] = t.Origins[key]
			left = append(left, r)
		}
		delete(t.Origins, key)
	}
	t.Config.DNS.Forward.Routes = left
	for key, origin := range origins {
		t.Origins[key] = origin
	}
}
