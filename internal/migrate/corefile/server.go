package corefile

import (
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/config/key"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Where CoreDNS' plugins listen when they are given no address.
const (
	defaultHealth     = ":8080"
	defaultReady      = ":8181"
	defaultPrometheus = "localhost:9153"
)

// addrOf is the address that a plugin is given, or its default.
func (t *translator) addrOf(s *statement, standard string) string {
	text := standard
	if len(s.args) > 0 {
		text = t.one(s)
	}
	addr, err := listenAddr(text)
	if err != nil {
		t.fail(s, "%w", err)
	}
	return addr.String()
}

// addProbes has CoreDNS' paths served on an address.
func (t *translator) addProbes(s *statement, addr string) {
	if probes := &t.Config.Admin.Probes; !slices.Contains(*probes, addr) {
		*probes = append(*probes, addr)
		t.from(s, "admin.probes")
	}
}

func (t *translator) health(_ *block, s *statement) {
	t.addProbes(s, t.addrOf(s, defaultHealth))
	for i := range s.options {
		o := &s.options[i]
		if o.name != "lameduck" {
			t.fail(o, "no such option")
			continue
		}
		t.Config.Lameduck = key.Duration(t.duration(o, t.one(o)))
		t.from(o, "lameduck")
	}
}

func (t *translator) ready(_ *block, s *statement) {
	t.addProbes(s, t.addrOf(s, defaultReady))
	for i := range s.options {
		o := &s.options[i]
		switch {
		case o.name != "monitor":
			t.fail(o, "no such option")
		case t.one(o) == "continuously":
			t.note(Done, o, "it is told how things are now")
		case o.args[0] == "until-ready":
			t.note(Differs, o, "it is told how things are now; what was ready stays so, unless admin.maxStaleness is set")
		default:
			t.fail(o, "%q is not until-ready or continuously", o.args[0])
		}
	}
}

// prometheus: the first address is that of the admin server, which has more to
// say; /metrics is served on the others, too.
func (t *translator) prometheus(_ *block, s *statement) {
	addr := t.addrOf(s, defaultPrometheus)
	switch {
	case t.Config.Admin.Listen == "" || t.Config.Admin.Listen == addr:
		t.Config.Admin.Listen = addr
		t.from(s, "admin.listen")
	default:
		t.addProbes(s, addr)
	}
	if t.first["prometheus"] == nil {
		t.first["prometheus"] = s
		t.Config.Admin.CoreDNSMetrics = true
		t.from(s, "admin.coreDNSMetrics")
		t.note(Differs, s, "some metrics have CoreDNS' names, too, see docs/from-coredns.md; zones and objects are shown there, too, under /debug")
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name != "runtime_metrics" {
			t.fail(o, "no such option")
			continue
		}
		t.note(Differs, o, "of the Go runtime there are the client library's usual metrics")
	}
}

func (t *translator) pprof(_ *block, s *statement) {
	t.note(Differs, s, "profiles are under /debug/pprof on admin.listen, for loopback only unless admin.pprof is set")
	for i := range s.options {
		t.note(Missing, &s.options[i], "there are no profiles of blocking")
	}
}

func (t *translator) errorsPlugin(_ *block, s *statement) {
	t.note(Done, s, "what goes wrong in a query is told in its answer, and counted; other errors are logged always")
	for i := range s.options {
		t.note(Done, &s.options[i], "errors of queries are counted, and not logged one by one")
	}
}

func (t *translator) debug(_ *block, s *statement) {
	t.Config.Log.Level = "debug"
	t.from(s, "log.level")
}

func (t *translator) loadbalance(_ *block, s *statement) {
	if len(s.args) > 0 && s.args[0] != "round_robin" {
		t.note(Missing, s, "records are given in turn, not by %s", s.args[0])
	} else {
		t.note(Done, s, "addresses and SRV records begin with another one each time")
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name == "reload" {
			t.note(Missing, o, "there is no file of weights")
			continue
		}
		t.note(Missing, o, "records are given in turn: none are preferred")
	}
}

func (t *translator) bufsize(_ *block, s *statement) {
	if !t.once(s, Missing) || len(s.args) == 0 {
		return
	}
	t.Config.DNS.UDPSize = t.number(s, t.one(s), 512, 4096)
	t.from(s, "dns.udpSize")
}

func (t *translator) nsid(_ *block, s *statement) {
	if t.once(s, Missing) && len(s.args) > 0 {
		t.Config.DNS.Identity.NSID = strings.Join(s.args, " ")
		t.from(s, "dns.identity.nsid")
	}
}

func (t *translator) chaos(_ *block, s *statement) {
	if !t.once(s, Missing) {
		return
	}
	if len(s.args) == 0 {
		t.note(Differs, s, "version.bind and id.server are refused: set dns.identity.version and dns.identity.serverID")
		return
	}
	t.Config.DNS.Identity.Version = s.args[0]
	t.from(s, "dns.identity.version")
	t.note(Differs, s, "id.server is what dns.identity.serverID says, and refused without it; authors.bind, hostname.bind and version.server are refused")
}

func (t *translator) timeouts(_ *block, s *statement) {
	if !t.once(s, Missing) {
		return
	}
	for i := range s.options {
		o := &s.options[i]
		switch o.name {
		case "idle":
			t.Config.DNS.TCP.Idle = key.Duration(max(t.duration(o, t.one(o)), 1))
			t.from(o, "dns.tcp.idle")
		case "maxtcpqueries":
			t.Config.DNS.TCP.MaxQueries = max(t.number(o, t.one(o), -1, 1<<30), 0)
			t.from(o, "dns.tcp.maxQueries")
		case "read", "write":
			t.note(Differs, o, "a query must be there, and its answer taken, within dns.tcp.idle")
		default:
			t.fail(o, "no such option")
		}
	}
}

// tls: CERT KEY [CA] is the certificate of what is served over TLS.
func (t *translator) tls(b *block, s *statement) {
	if !t.once(s, Missing) {
		return
	}
	for i := range s.options {
		o := &s.options[i]
		if o.name == "client_auth" && t.one(o) == "nocert" {
			continue
		}
		t.note(Missing, o, "a certificate and its key are read from files, and clients show none")
	}
	switch {
	case len(s.args) < 2 && len(s.options) == 0:
		t.fail(s, "a certificate and its key are wanted")
		return
	case len(s.args) < 2:
		return
	case len(s.args) == 3:
		t.note(Differs, s, "clients show no certificates: the CA is of no use")
	case len(s.args) > 3:
		t.fail(s, "at most three files are wanted")
	}
	t.Config.DNS.TLS.Certificate, t.Config.DNS.TLS.Key = b.file(s.args[0]), b.file(s.args[1])
	t.from(s, "dns.tls.certificate", "dns.tls.key")
}
