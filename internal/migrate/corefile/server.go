package corefile

import (
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/config/key"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Default addresses of CoreDNS' plugins.
const (
	defaultHealth     = ":8080"
	defaultReady      = ":8181"
	defaultPrometheus = "localhost:9153"
)

// listenAddress returns the address in a plugin's argument, or the default.
func (t *translator) listenAddress(s *statement, standard string) string {
	text := standard
	if len(s.args) > 0 {
		text = t.oneArg(s)
	}
	addr, err := listenAddr(text)
	if err != nil {
		t.fail(s, "%w", err)
	}
	return addr.String()
}

// appendProbes adds an address on which CoreDNS' probe paths are served.
func (t *translator) appendProbes(s *statement, addr string) {
	if probes := &t.Config.Admin.Probes; !slices.Contains(*probes, addr) {
		*probes = append(*probes, addr)
		t.setOrigin(s, "admin.probes")
	}
}

func (t *translator) health(_ *block, s *statement) {
	t.appendProbes(s, t.listenAddress(s, defaultHealth))
	for i := range s.options {
		o := &s.options[i]
		if o.name != "lameduck" {
			t.fail(o, "no such option")
			continue
		}
		t.Config.Lameduck = key.Duration(t.duration(o, t.oneArg(o)))
		t.setOrigin(o, "lameduck")
	}
}

func (t *translator) ready(_ *block, s *statement) {
	t.appendProbes(s, t.listenAddress(s, defaultReady))
	for i := range s.options {
		o := &s.options[i]
		switch {
		case o.name != "monitor":
			t.fail(o, "no such option")
		case t.oneArg(o) == "continuously":
			t.note(Done, o, "always on: /ready reports the current state")
		case o.args[0] == "until-ready":
			t.note(Differs, o,
				"/ready reports the current state; loaded objects count as ready unless admin.maxStaleness is set")
		default:
			t.fail(o, "%q is not until-ready or continuously", o.args[0])
		}
	}
}

// prometheus translates the plugin prometheus. The first address becomes that of the
// admin server; the others serve /metrics and probes only.
func (t *translator) prometheus(_ *block, s *statement) {
	addr := t.listenAddress(s, defaultPrometheus)
	switch t.Config.Admin.Listen {
	case "", addr:
		t.Config.Admin.Listen = addr
		t.setOrigin(s, "admin.listen")
	default:
		t.appendProbes(s, addr)
	}
	if t.first["prometheus"] == nil {
		t.first["prometheus"] = s
		t.Config.Admin.CoreDNSMetrics = true
		t.setOrigin(s, "admin.coreDNSMetrics")
		t.note(Differs, s, "some metrics are exported under CoreDNS' names as well, see docs/from-coredns.md; the address "+
			"also serves dumps under /debug")
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name != "runtime_metrics" {
			t.fail(o, "no such option")
			continue
		}
		t.note(Differs, o, "only the default Go runtime metrics of the client library are exported")
	}
}

func (t *translator) pprof(_ *block, s *statement) {
	t.note(Differs, s,
		"profiles are served under /debug/pprof on admin.listen, to loopback only unless admin.pprof is set")
	for i := range s.options {
		t.note(Missing, &s.options[i], "there are no block profiles")
	}
}

func (t *translator) errorsPlugin(_ *block, s *statement) {
	t.note(Done, s,
		"always on: errors of queries are reported in the response and counted, not logged; other errors are logged")
	for i := range s.options {
		t.note(Done, &s.options[i], "errors of queries are counted, not logged")
	}
}

func (t *translator) debug(_ *block, s *statement) {
	t.Config.Log.Level = "debug"
	t.setOrigin(s, "log.level")
}

func (t *translator) loadbalance(_ *block, s *statement) {
	if len(s.args) > 0 && s.args[0] != "round_robin" {
		t.note(Missing, s, "records are rotated, not ordered by %s", s.args[0])
	} else {
		t.note(Done, s, "always on: A, AAAA and SRV records are rotated")
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name == "reload" {
			t.note(Missing, o, "there are no weights")
			continue
		}
		t.note(Missing, o, "records are rotated without preference")
	}
}

func (t *translator) bufsize(_ *block, s *statement) {
	if !t.isFirst(s, Missing) || len(s.args) == 0 {
		return
	}
	t.Config.DNS.UDPSize = t.number(s, t.oneArg(s), 512, 4096)
	t.setOrigin(s, "dns.udpSize")
}

func (t *translator) nsid(_ *block, s *statement) {
	if t.isFirst(s, Missing) && len(s.args) > 0 {
		t.Config.DNS.Identity.NSID = strings.Join(s.args, " ")
		t.setOrigin(s, "dns.identity.nsid")
	}
}

func (t *translator) chaos(_ *block, s *statement) {
	if !t.isFirst(s, Missing) {
		return
	}
	if len(s.args) == 0 {
		t.note(Differs, s,
			"version.bind and id.server are refused unless dns.identity.version and dns.identity.serverID are set")
		return
	}
	t.Config.DNS.Identity.Version = s.args[0]
	t.setOrigin(s, "dns.identity.version")
	t.note(Differs, s, "id.server is refused unless dns.identity.serverID is set; authors.bind, hostname.bind and "+
		"version.server are refused")
}

func (t *translator) timeouts(_ *block, s *statement) {
	if !t.isFirst(s, Missing) {
		return
	}
	for i := range s.options {
		o := &s.options[i]
		switch o.name {
		case "idle":
			t.Config.DNS.TCP.Idle = key.Duration(max(t.duration(o, t.oneArg(o)), 1))
			t.setOrigin(o, "dns.tcp.idle")
		case "maxtcpqueries":
			t.Config.DNS.TCP.MaxQueries = max(t.number(o, t.oneArg(o), -1, 1<<30), 0)
			t.setOrigin(o, "dns.tcp.maxQueries")
		case "read", "write":
			t.note(Differs, o, "dns.tcp.idle limits reading a query and writing the response, too")
		default:
			t.fail(o, "no such option")
		}
	}
}

// tls translates CERT KEY [CA], the certificate for DNS over TLS and HTTPS.
func (t *translator) tls(b *block, s *statement) {
	if !t.isFirst(s, Missing) {
		return
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name == "client_auth" && t.oneArg(o) == "nocert" {
			continue
		}
		t.note(Missing, o, "only a certificate file and a key file are supported, without client certificates")
	}
	switch {
	case len(s.args) < 2 && len(s.options) == 0:
		t.fail(s, "must have a certificate file and a key file")
		return
	case len(s.args) < 2:
		return
	case len(s.args) == 3:
		t.note(Differs, s, "there are no client certificates: the CA is not used")
	case len(s.args) > 3:
		t.fail(s, "must have at most three files")
	}
	t.Config.DNS.TLS.Certificate, t.Config.DNS.TLS.Key = b.file(s.args[0]), b.file(s.args[1])
	t.setOrigin(s, "dns.tls.certificate", "dns.tls.key")
}
