// Package settings declares the section of the configuration file for policies: its keys, its
// defaults and what it compiles to.
package settings

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
)

// What becomes of connections that a change forbids.
const (
	Cut  = "cut"
	Keep = "keep"
)

// DefaultTable is the name of the table.
const DefaultTable = "portolan-policy"

// Annotation is one that agents which enforce policies have, as Pods of a DaemonSet, see Policy.DaemonSet.
const Annotation = "portolan.dev/policy"

// Policy is the section of policies.
type Policy struct {
	Table    string `yaml:"table"`
	Existing string `yaml:"existing"`
	// PodRanges are what the node's Pods get addresses of; none is the Node's.
	PodRanges []string `yaml:"podRanges"`
	// DaemonSet is the name of the agents' DaemonSet; empty if there is none. An agent that ends when it
	// is gone, or its Pods lack Annotation, removes what policies have on the node.
	DaemonSet string  `yaml:"daemonSet"`
	CNI       CNI     `yaml:"cni"`
	Domains   Domains `yaml:"domains"`
	Log       Log     `yaml:"log"`
}

// CNI is the section of the plugin that waits for a Pod's rules.
type CNI struct {
	Socket string `yaml:"socket"` // empty turns it off
	// Install has the agent install the plugin, into the directories BinDir and ConfDir.
	Install bool   `yaml:"install"`
	BinDir  string `yaml:"binDir"`
	ConfDir string `yaml:"confDir"`
}

// Domains is the section of policies by domain name.
type Domains struct {
	// Least is the least time that an address counts after an answer with it, and Grace how much longer
	// than the answer's TTL.
	Least key.Duration `yaml:"leastTTL"`
	Grace key.Duration `yaml:"grace"`
	// MaxAddresses is the highest number of addresses of one name.
	MaxAddresses int `yaml:"maxAddresses"`
}

// Log is the section of the log of packets.
type Log struct {
	Group int `yaml:"group"` // of NFLOG
	Rate  int `yaml:"rate"`  // per second and chain
}

// Default returns the section of a file that lacks it.
func Default() Policy {
	return Policy{
		Table: DefaultTable, Existing: Cut,
		CNI:     CNI{Socket: "/run/portolan/cni.sock", BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
		Domains: Domains{Least: key.Duration(time.Minute), Grace: key.Duration(time.Minute), MaxAddresses: 256},
		Log:     Log{Group: 97, Rate: 10},
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	Table     string
	Cut       bool           // connections that a change forbids
	PodRanges []netip.Prefix // nil is the Node's
	DaemonSet string         // of the agents; empty: there is none
	Socket    string         // empty: there is none
	// Install says that the agent installs the plugin, into BinDir and ConfDir, and keeps it there.
	Install         bool
	BinDir, ConfDir string
	Domains         CompiledDomains
	Log             Log
}

// CompiledDomains is a Domains in the types of the packages that use it.
type CompiledDomains struct {
	Least, Grace time.Duration
	MaxAddresses int
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of the
// packages that use it. Its error is a *key.Error.
func (p *Policy) Compile() (Compiled, error) {
	made := Compiled{
		Table: p.Table, Cut: p.Existing == Cut, DaemonSet: p.DaemonSet, Log: p.Log,
		Socket: p.CNI.Socket, Install: p.CNI.Install, BinDir: p.CNI.BinDir, ConfDir: p.CNI.ConfDir,
		Domains: CompiledDomains{
			Least: time.Duration(p.Domains.Least), Grace: time.Duration(p.Domains.Grace), MaxAddresses: p.Domains.MaxAddresses,
		},
	}
	if p.Table == "" {
		return made, key.Errorf("policy.table", "is empty; leave it out for %s", DefaultTable)
	}
	if strings.Contains(p.DaemonSet, "/") {
		return made, key.Errorf("policy.daemonSet", "%q is not a name; the namespace is that of the agents", p.DaemonSet)
	}
	if err := p.CNI.check(); err != nil {
		return made, err
	}
	for i, text := range p.PodRanges {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			return made, key.ItemErrorf("policy.podRanges", i, "%q is not a range such as 10.244.1.0/24", text)
		}
		if slices.ContainsFunc(made.PodRanges, r.Overlaps) {
			return made, key.ItemErrorf("policy.podRanges", i, "%q overlaps another range", text)
		}
		made.PodRanges = append(made.PodRanges, r.Masked())
	}
	return made, nil
}

// check checks the section of the plugin.
func (c *CNI) check() error {
	for _, p := range []struct{ name, path string }{{"socket", c.Socket}, {"binDir", c.BinDir}, {"confDir", c.ConfDir}} {
		if off := p.name == "socket" && p.path == ""; !off && !filepath.IsAbs(p.path) {
			return key.Errorf("policy.cni."+p.name, "%q is not an absolute path", p.path)
		}
	}
	if c.Install && c.Socket == "" {
		return key.Errorf("policy.cni.install", "needs policy.cni.socket: without it no Pod would start")
	}
	return nil
}
