package query

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// These are the contenders.
const (
	portolan      = rig.NamePortolan
	agent         = "node"        // Portolan's agent, a secondary of the contender portolan
	base          = "base"        // another version of Portolan
	noEvidence    = "no-evidence" // Portolan without the sample of events
	coreDNS       = rig.NameCoreDNS
	coreDNSCached = "coredns-cache"
	knot          = rig.NameKnot
	nsd           = rig.NameNSD
	echo          = rig.NameEcho
)

// contenderNames returns the names in the order of the tables.
func contenderNames() []string {
	return []string{portolan, agent, base, noEvidence, coreDNS, coreDNSCached, knot, nsd, echo}
}

// entrant is a contender that can be started, with its version.
type entrant struct {
	*rig.Contender
	version string
}

func (b *bench) entrants() map[string]func(context.Context) (*entrant, error) {
	return map[string]func(context.Context) (*entrant, error){
		portolan: func(ctx context.Context) (*entrant, error) { return b.portolan(ctx, variant{portolan, b.tree, ""}) },
		agent:    b.agent,
		base:     func(ctx context.Context) (*entrant, error) { return b.portolan(ctx, variant{base, b.base, ""}) },
		noEvidence: func(ctx context.Context) (*entrant, error) {
			return b.portolan(ctx, variant{noEvidence, b.tree, "admin: {evidence: {size: 0}}\n"})
		},
		coreDNS: func(ctx context.Context) (*entrant, error) { return b.coreDNS(ctx, coreDNS, "") },
		// With the cache time that installers write.
		coreDNSCached: func(ctx context.Context) (*entrant, error) { return b.coreDNS(ctx, coreDNSCached, "cache 30") },
		knot:          func(ctx context.Context) (*entrant, error) { return b.withZones(ctx, theKnot()) },
		nsd:           func(ctx context.Context) (*entrant, error) { return b.withZones(ctx, theNSD()) },
		echo:          b.echo,
	}
}

// portolanConfig limits the reverse zones, and allows UDP answers as long as the
// longest that the workloads request.
const portolanConfig = `dns:
  podCIDRs: [10.0.0.0/8]
  udpSize: 4096
  transfer: {allow: [{clients: [127.0.0.1/32]}]}
`

// variant is a Portolan: the tree that it is built from, and what its configuration has more.
type variant struct{ name, tree, config string }

func (b *bench) portolan(ctx context.Context, v variant) (*entrant, error) {
	program, err := b.workshop.PortolanOf(ctx, v.tree, v.name)
	if err != nil {
		return nil, err
	}
	config := b.file(v.name + ".yaml")
	c := rig.Portolan(program, b.file(v.name+".log"), append([]string{"--config", config}, b.source...)...)
	start := c.Command
	c.Command = func(ports []netip.AddrPort) (*exec.Cmd, error) {
		text := v.config + portolanConfig + fmt.Sprintf("  tls: {listen: [%q], certificate: %q, key: %q}\n", ports[4],
			b.certificate.File, b.certificate.Key)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return start(ports)
	}
	return &entrant{c, program.Version}, nil
}

// agentConfig is formatted with the address of the primary, one to listen on, and a certificate with its key.
const agentConfig = `node: {mode: secondary, servers: [%[1]q], primaries: [%[1]q]}
dns:
  udpSize: 4096
  tls: {listen: [%[2]q], certificate: %[3]q, key: %[4]q}
`

// agent returns the agent of a node.
func (b *bench) agent(ctx context.Context) (*entrant, error) {
	i := slices.IndexFunc(b.running, func(c *contestant) bool { return c.name == portolan })
	if i < 0 {
		return nil, errors.New("it is a secondary of the contender " + portolan)
	}
	primary := b.running[i].DNS
	program, err := b.workshop.PortolanOf(ctx, b.tree, portolan)
	if err != nil {
		return nil, err
	}
	command := func(ports []netip.AddrPort) (*exec.Cmd, error) {
		config := b.file("node.yaml")
		text := fmt.Appendf(nil, agentConfig, primary, ports[4], b.certificate.File, b.certificate.Key)
		c := program.Command("node", "--config", config, "--listen", ports[0].String(), "--admin", ports[1].String())
		return c, os.WriteFile(config, text, 0o600)
	}
	return &entrant{
		&rig.Contender{Name: "Portolan, agent", Ready: b.hasLast, Log: b.file("node.log"), Command: command}, program.Version,
	}, nil
}

func (b *bench) coreDNS(ctx context.Context, name, plugins string) (*entrant, error) {
	program, err := b.workshop.Program(ctx, rig.NameCoreDNS)
	if err != nil {
		return nil, err
	}
	return &entrant{rig.CoreDNS(program, b.file(name), b.api.Kubeconfig(), plugins, b.certificate), program.Version}, nil
}

// zoneServer is a server for zone files from the Debian package of the same name.
type zoneServer struct {
	name string
	run  []string // arguments, before the configuration file
	// config is formatted with the directory, the port, a certificate, its key and the
	// port for TLS. zone is appended for each zone, formatted with its name and file.
	config, zone string
}

// theKnot returns Knot DNS for one processor, with defaults otherwise.
func theKnot() *zoneServer {
	return &zoneServer{name: knot, run: []string{"--config"},
		zone: "  - domain: %s\n    file: %q\n",
		config: `server:
    rundir: %[1]q
    listen: 127.0.0.1@%[2]d
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    udp-max-payload: 4096
log:
  - target: stderr
    any: warning
database:
    storage: %[1]q
template:
  - id: default
    storage: %[1]q
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
`}
}

// theNSD returns NSD for one processor, without the rate limit per client that Debian's
// build has.
func theNSD() *zoneServer {
	return &zoneServer{name: nsd, run: []string{"-d", "-c"},
		zone: "zone:\n    name: %q\n    zonefile: %q\n",
		config: `server:
    server-count: 1
    ip-address: 127.0.0.1@%[2]d
    ip-address: 127.0.0.1@%[5]d
    tls-service-pem: %[3]q
    tls-service-key: %[4]q
    tls-port: %[5]d
    do-ip6: no
    username: ""
    zonesdir: %[1]q
    zonelistfile: "%[1]s/zones"
    xfrdfile: ""
    xfrdir: %[1]q
    pidfile: ""
    database: ""
    ipv4-edns-size: 4096
    rrl-ratelimit: 0
remote-control:
    control-enable: no
`}
}

// withZones returns a contender for a server for zone files.
func (b *bench) withZones(ctx context.Context, z *zoneServer) (*entrant, error) {
	program, err := b.workshop.Program(ctx, z.name)
	if err != nil {
		return nil, err
	}
	command := func(ports []netip.AddrPort) (*exec.Cmd, error) {
		dir := b.file(z.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "config")
		config := fmt.Appendf(nil, z.config, dir, ports[0].Port(), b.certificate.File, b.certificate.Key, ports[4].Port())
		for _, zone := range b.zones {
			config = fmt.Appendf(config, z.zone, zone.name, zone.file)
		}
		return program.Command(append(z.run, file)...), os.WriteFile(file, config, 0o600)
	}
	c := &rig.Contender{Name: z.name, Log: b.file(z.name + ".log"), Command: command, Ready: b.hasLast}
	return &entrant{c, program.Version}, nil
}

// hasLast queries the last Service, to check that all are loaded.
func (b *bench) hasLast(_ context.Context, ports []netip.AddrPort) error {
	k := synthetic.ClusterIP
	q := query{b.cluster.DNSName(k, b.cluster.Services[k]-1), dnswire.TypeA, noEDNS}
	r, err := q.ask("udp", ports[0])
	if err == nil && len(r.Answer) != 1 {
		err = fmt.Errorf("%s: %s", q, r.Status)
	}
	return err
}

func (b *bench) echo(ctx context.Context) (*entrant, error) {
	program, err := b.workshop.Program(ctx, rig.NameEcho)
	if err != nil {
		return nil, err
	}
	return &entrant{rig.Echo(program, b.file("echo.log")), ""}, nil
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }
