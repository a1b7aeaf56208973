package rig

import (
	"context"
	"fmt"
	"os/exec"

	"portolan.dev/portolan/test/e2e/debian"
)

// Program is a measured program, ready to start.
type Program struct {
	Version   string // or commit
	path      string
	libraries string // directory of its libraries, if it has any
}

// Command returns a command that runs the program.
func (p *Program) Command(args ...string) *exec.Cmd {
	return debian.Loading(exec.Command(p.path, args...), p.libraries)
}

// Path returns the program's file.
func (p *Program) Path() string { return p.path }

// These are the names of the measured programs in flags and tables.
const (
	NamePortolan  = "portolan"
	NameCoreDNS   = "coredns"
	NameKnot      = "knot"
	NameNSD       = "nsd"
	NameUnbound   = "unbound"
	NameKubeProxy = "kube-proxy" // the newest
	NameCaddy     = "caddy"
	NameNginx     = "nginx"
	NameHAProxy   = "haproxy"
	NameFlannel   = "flannel"
	NamePTP       = "ptp" // this and the following are CNI plugins
	NameBridge    = "bridge"
	NameHostLocal = "host-local"
	NamePortMap   = "portmap"
	NameEcho      = "echo" // answers with the query, to measure the cost of the rig
)

// programs has a function for each program that builds it from a tree or a module, or
// fetches it as a Debian package.
var programs = map[string]func(ctx context.Context, w *Workshop) (*Program, error){
	NamePortolan: func(ctx context.Context, w *Workshop) (*Program, error) {
		return w.PortolanOf(ctx, w.Tree, NamePortolan)
	},
	NameCoreDNS: func(ctx context.Context, w *Workshop) (*Program, error) {
		return w.buildOnce(ctx, released{"coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns"})
	},
	NameKubeProxy: func(ctx context.Context, w *Workshop) (*Program, error) {
		return w.buildOnce(ctx, released{"kubeproxy", "kubeproxy", "k8s.io/kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"})
	},
	NameCaddy: func(ctx context.Context, w *Workshop) (*Program, error) {
		const module = "github.com/caddyserver/caddy/v2"
		return w.buildOnce(ctx, released{"caddy", "caddy", module, module + "/cmd/caddy"})
	},
	NameFlannel: func(ctx context.Context, w *Workshop) (*Program, error) {
		const program = "portolan.dev/portolan/bench/flannel" // of flannel's packages
		return w.buildOnce(ctx, released{"flannel", "flannel", "github.com/flannel-io/flannel", program})
	},
	NamePTP:       cniPlugin(NamePTP, "main"),
	NameBridge:    cniPlugin(NameBridge, "main"),
	NameHostLocal: cniPlugin(NameHostLocal, "ipam"),
	NamePortMap:   cniPlugin(NamePortMap, "meta"),
	NameNginx:     fromDebian("nginx", "nginx", "-v", "nginx/"),
	NameHAProxy:   fromDebian("haproxy", "haproxy", "-v", "version "),
	NameKnot:      fromDebian("knot", "knotd", "--version", "version "),
	NameNSD:       fromDebian("nsd", "nsd", "-v", "version "),
	NameUnbound:   fromDebian("unbound", "unbound", "-V", "Version "),
	NameEcho: func(ctx context.Context, w *Workshop) (*Program, error) {
		path, err := w.Tool(ctx, NameEcho)
		return &Program{path: path}, err
	},
}

// cniPlugin returns a function that provides a reference CNI plugin of a kind.
func cniPlugin(name, kind string) func(context.Context, *Workshop) (*Program, error) {
	const module = "github.com/containernetworking/plugins"
	return func(ctx context.Context, w *Workshop) (*Program, error) {
		return w.buildOnce(ctx, released{"cniplugins", "cni-" + name, module, module + "/plugins/" + kind + "/" + name})
	}
}

// fromDebian returns a function that provides the program of a package. Its version
// follows word in what the program prints with flag.
func fromDebian(packageName, program, flag, word string) func(context.Context, *Workshop) (*Program, error) {
	return func(ctx context.Context, w *Workshop) (p *Program, err error) {
		p = new(Program)
		if p.path, p.libraries, err = debian.Program(ctx, w.log, packageName, program); err != nil {
			return nil, err
		}
		p.Version, err = versionOf(p.Command(flag), word)
		return p, err
	}
}

// Program builds or fetches a program by its name.
func (w *Workshop) Program(ctx context.Context, name string) (*Program, error) {
	provide := programs[name]
	if provide == nil {
		return nil, fmt.Errorf("there is no program %q to measure", name)
	}
	return provide(ctx, w)
}

// PortolanOf builds the Portolan of a tree as a program with the given name.
func (w *Workshop) PortolanOf(ctx context.Context, tree, name string) (*Program, error) {
	path, err := w.build(ctx, tree, "./cmd/portolan", name)
	return &Program{path: path, Version: commit(ctx, tree)}, err
}
