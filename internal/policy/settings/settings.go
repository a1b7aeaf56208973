// Package settings declares the section of the configuration file for policies: its keys, its
// defaults and what it compiles to.
package settings

import (
	"net/netip"
	"path/filepath"
	"slices"
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

// Policy is the section of policies.
type Policy struct {
	Table    string `yaml:"table"`
	Existing string `yaml:"existing"`
	// PodRanges are what the node's Pods get addresses of; none is the Node's.
	PodRanges []string `yaml:"podRanges"`
	CNI       CNI      `yaml:"cni"`
	Domains   Domains  `yaml:"domains"`
	Log       Log      `yaml:"log"`
}

// CNI is the section of the plugin that waits for a Pod's rules.
type CNI struct {
	Socket string `yaml:"socket"` // empty turns it off
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
		CNI:     CNI{Socket: "/run/portolan/cni.sock"},
		Domains: Domains{Least: key.Duration(time.Minute), Grace: key.Duration(time.Minute), MaxAddresses: 256},
		Log:     Log{Group: 97, Rate: 10},
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	Table     string
	Cut       bool           // connections that a change forbids
	PodRanges []netip.Prefix // nil is the Node's
	Socket    string         // empty: there is none
	Domains   CompiledDomains
	Log       Log
}

// CompiledDomains is a Domains in the types of the packages that use it.
type CompiledDomains struct {
	Least, Grace time.Duration
	MaxAddresses int
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of the
// packages that use it. Its error is a *key.Error.
func (p *Policy) Compile() (Compiled, error) {
	made := Compiled{Table: p.Table, Cut: p.Existing == Cut, Socket: p.CNI.Socket, Log: p.Log, Domains: CompiledDomains{
		Least: time.Duration(p.Domains.Least), Grace: time.Duration(p.Domains.Grace), MaxAddresses: p.Domains.MaxAddresses,
	}}
	if p.Table == "" {
		return made, key.Errorf("policy.table", "is empty; leave it out for %s", DefaultTable)
	}
	if made.Socket != "" && !filepath.IsAbs(made.Socket) {
		return made, key.Errorf("policy.cni.socket", "%q is not an absolute path", made.Socket)
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
