package rig

import (
	"context"
	"fmt"
	"os/exec"

	"portolan.dev/portolan/test/e2e/debian"
)

// Program is a program that is measured, ready to start.
type Program struct {
	Version   string // or its commit
	path      string
	libraries string // where it has some of its own
}

// Command starts the program with arguments, when it is run.
func (p *Program) Command(args ...string) *exec.Cmd {
	return debian.Loading(exec.Command(p.path, args...), p.libraries)
}

// Path is the program's file.
func (p *Program) Path() string { return p.path }

// The programs that are measured, by their names in flags and tables.
const (
	NamePortolan = "portolan"
	NameCoreDNS  = "coredns"
	NameKnot     = "knot"
	NameNSD      = "nsd"
	NameUnbound  = "unbound"
	NameEcho     = "echo" // answers with the query: what the rig itself costs
)

// programs says how each of them is had: built from a tree or a module, or
// fetched as Debian's package, and how it says its version.
var programs = map[string]func(ctx context.Context, w *Workshop) (*Program, error){
	NamePortolan: func(ctx context.Context, w *Workshop) (*Program, error) {
		return w.PortolanOf(ctx, w.Tree, NamePortolan)
	},
	NameCoreDNS: func(ctx context.Context, w *Workshop) (*Program, error) {
		path, err := w.buildCoreDNS(ctx)
		if err != nil {
			return nil, err
		}
		p := &Program{path: path}
		p.Version, err = versionOf(p.Command("-version"), "CoreDNS-")
		return p, err
	},
	NameKnot:    fromDebian("knot", "knotd", "--version", "version "),
	NameNSD:     fromDebian("nsd", "nsd", "-v", "version "),
	NameUnbound: fromDebian("unbound", "unbound", "-V", "Version "),
	NameEcho: func(ctx context.Context, w *Workshop) (*Program, error) {
		path, err := w.Tool(ctx, NameEcho)
		return &Program{path: path}, err
	},
}

// fromDebian provides a program of a package, whose version stands behind a word of
// what flag prints.
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

// PortolanOf builds the Portolan of a tree, as a program of that name.
func (w *Workshop) PortolanOf(ctx context.Context, tree, name string) (*Program, error) {
	path, err := w.build(ctx, tree, "./cmd/portolan", name)
	return &Program{path: path, Version: commit(ctx, tree)}, err
}
