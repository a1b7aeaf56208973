package forwarding

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"portolan.dev/portolan/bench/rig"
)

// These are the contenders.
const (
	portolan = rig.NamePortolan
	coreDNS  = rig.NameCoreDNS
	unbound  = rig.NameUnbound
)

// contenderNames returns the names in the order of the tables.
func contenderNames() []string { return []string{portolan, coreDNS, unbound} }

// entrant is a contender that can be started repeatedly.
type entrant struct {
	name, version string
	// contend returns the contender with these upstreams. files is the prefix of its
	// file names.
	contend func(upstreams []netip.AddrPort, files string) (*rig.Contender, error)
}

func (b *bench) entrant(ctx context.Context, name string) (*entrant, error) {
	switch name {
	case portolan:
		return b.portolan(ctx)
	case coreDNS:
		return b.coreDNS(ctx)
	default:
		return b.unbound(ctx)
	}
}

// namespace is the only manifest of the cluster that Portolan serves.
const namespace = `apiVersion: v1
kind: Namespace
metadata: {name: default}
`

// portolanConfig has no low limit on waiting queries, because all come from one client.
const portolanConfig = `dns:
  forward:
    routes: [{upstreams: ["%s", "%s"]}]
    maxInFlight: 65536
    maxInFlightPerClient: 65536
  cache: {size: 256Mi}
`

func (b *bench) portolan(ctx context.Context) (*entrant, error) {
	program, err := b.workshop.Program(ctx, portolan)
	if err != nil {
		return nil, err
	}
	cluster := b.file("cluster.yaml")
	if err := os.WriteFile(cluster, []byte(namespace), 0o600); err != nil {
		return nil, err
	}
	contend := func(upstreams []netip.AddrPort, files string) (*rig.Contender, error) {
		config := files + ".yaml"
		text := fmt.Sprintf(portolanConfig, upstreams[0], upstreams[1])
		err := os.WriteFile(config, []byte(text), 0o600)
		return rig.Portolan(program, files+".log", "--manifests", cluster, "--config", config), err
	}
	return &entrant{portolan, program.Version, contend}, nil
}

// corefile caches answers for as long as Portolan does, and also collects metrics.
const corefile = `.:%d {
	bind 127.0.0.1
	forward . %s %s
	cache 3600 {
		success 262144 3600
		denial 262144 3600
	}
	ready %s
	prometheus %s
}
`

func (b *bench) coreDNS(ctx context.Context) (*entrant, error) {
	program, err := b.workshop.Program(ctx, coreDNS)
	if err != nil {
		return nil, err
	}
	contend := func(upstreams []netip.AddrPort, files string) (*rig.Contender, error) {
		return &rig.Contender{Name: "CoreDNS", Log: files + ".log", Ready: rig.OverHTTP("/ready"),
			Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
				text := fmt.Sprintf(corefile, ports[0].Port(), upstreams[0], upstreams[1], ports[1], ports[2])
				return program.Command("-conf", files+".corefile"), os.WriteFile(files+".corefile", []byte(text), 0o600)
			}}, nil
	}
	return &entrant{coreDNS, program.Version, contend}, nil
}

// unboundConfig is one thread that queries upstreams, does not validate signatures
// (like the others) and has room for as many waiting queries.
const unboundConfig = `server:
    directory: ""
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    interface: 127.0.0.1
    port: %d
    do-ip6: no
    num-threads: 1
    outgoing-range: 8192
    num-queries-per-thread: 4096
    module-config: "iterator"
    do-not-query-localhost: no
    msg-cache-size: 128m
    rrset-cache-size: 128m
remote-control:
    control-enable: no
forward-zone:
    name: "."
    forward-addr: %s@%d
    forward-addr: %s@%d
`

func (b *bench) unbound(ctx context.Context) (*entrant, error) {
	program, err := b.workshop.Program(ctx, unbound)
	if err != nil {
		return nil, err
	}
	contend := func(upstreams []netip.AddrPort, files string) (*rig.Contender, error) {
		return &rig.Contender{Name: "Unbound", Log: files + ".log", Ready: answers,
			Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
				a, b := upstreams[0], upstreams[1]
				text := fmt.Sprintf(unboundConfig, ports[0].Port(), a.Addr(), a.Port(), b.Addr(), b.Port())
				return program.Command("-d", "-c", files+".conf"), os.WriteFile(files+".conf", []byte(text), 0o600)
			}}, nil
	}
	return &entrant{unbound, program.Version, contend}, nil
}

// answers checks a contender without a readiness endpoint by sending it a query.
func answers(_ context.Context, ports []netip.AddrPort) error {
	c, err := dial(ports[0])
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ask("ready.example.org.")
}
