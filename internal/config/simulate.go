package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
)

// Simulate has manifests completed as a cluster's control plane would do it.
type Simulate struct {
	Enabled bool `yaml:"enabled"`
	// NodePorts are the first and the last that Services get, as in 30000-32767.
	NodePorts string `yaml:"nodePorts"`
	// MaxEndpointsPerSlice is 1 to 1000.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
}

// The ranges of a simulated cluster for which none are given: those of kind.
var (
	simulatedServices = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	simulatedPods     = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
)

// compileSimulate comes behind compileRanges, which checked the ranges alone.
func (c *Config) compileSimulate(made *Compiled) (err error) {
	s := &c.Simulate
	var cfg simulate.Config
	if cfg.NodePorts, err = nodePorts(s.NodePorts); err != nil {
		return badValue("simulate.nodePorts", "%w", err)
	}
	cfg.MaxEndpoints = s.MaxEndpointsPerSlice
	cfg.ServiceRanges, cfg.PodRanges = prefixesOr(c.DNS.ServiceCIDRs, simulatedServices), prefixesOr(c.DNS.PodCIDRs, simulatedPods)
	if !s.Enabled {
		return nil
	}
	if c.Manifests == "" {
		return badValue("simulate.enabled", "a cluster is made of manifests, and there are none; give a directory of them (manifests)")
	}
	if _, err := simulate.New(cfg); err != nil {
		return badValue("simulate.enabled", "%w (dns.serviceCIDRs and dns.podCIDRs say which)", err)
	}
	made.Simulate = cfg
	return nil
}

// prefixesOr are the ranges of texts that were checked; others where there are
// none.
func prefixesOr(texts []string, others []netip.Prefix) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	if len(all) == 0 {
		return others
	}
	return all
}

func nodePorts(text string) (ports alloc.Ports, err error) {
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return ports, fmt.Errorf("%q is not a range of ports, such as 30000-32767", text)
	}
	return alloc.Ports{First: uint16(a), Last: uint16(b)}, nil
}
