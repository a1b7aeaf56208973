package rig

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
)

// Portolan returns a contender that serves DNS and readiness. flags name its source.
func Portolan(p *Program, log string, flags ...string) *Contender {
	return &Contender{Name: "Portolan", Ready: OverHTTP("/readyz"), Log: log,
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			args := []string{"serve", "--listen", ports[0].String(), "--admin", ports[1].String()}
			return p.Command(append(args, flags...)...), nil
		}}
}

// corefile serves the same as Portolan with its defaults.
const corefile = `cluster.local:%[1]d in-addr.arpa:%[1]d ip6.arpa:%[1]d %[7]s {
	bind 127.0.0.1
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig %[2]s
		pods verified
	}
	ready %[3]s
	health %[4]s
	prometheus %[5]s
	%[6]s
}
`

// Certificate is a certificate and its key, in files.
type Certificate struct{ File, Key string }

// CoreDNS returns a contender that reads the cluster of a kubeconfig file. plugins are
// lines for its Corefile. With a certificate it also serves over TLS. files is the
// prefix of its file names.
func CoreDNS(p *Program, files, kubeconfig, plugins string, c Certificate) *Contender {
	return &Contender{Name: "CoreDNS", Ready: OverHTTP("/ready"), Log: files + ".log",
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			file := files + ".corefile"
			secure := ""
			if c.File != "" {
				secure = fmt.Sprintf("tls://cluster.local:%d", ports[4].Port())
				plugins += fmt.Sprintf("\n\ttls %s %s", c.File, c.Key)
			}
			text := fmt.Sprintf(corefile, ports[0].Port(), kubeconfig, ports[1], ports[2], ports[3], plugins, secure)
			return p.Command("-conf", file), os.WriteFile(file, []byte(text), 0o600)
		}}
}
