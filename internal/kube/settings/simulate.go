package settings

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
)

// Simulate is the section of the simulation, which completes manifests as a control
// plane does.
type Simulate struct {
	Enabled bool `yaml:"enabled"`
	// NodePorts are the first and the last node port, as in 30000-32767.
	NodePorts string `yaml:"nodePorts"`
	// MaxEndpointsPerSlice is 1 to 1000.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
}

// DefaultSimulate returns the section of a file that lacks it.
func DefaultSimulate() Simulate {
	return Simulate{NodePorts: "30000-32767", MaxEndpointsPerSlice: endpointslices.DefaultMaxEndpoints}
}

// These are the default ranges of a simulated cluster. They are the defaults of kind.
var (
	simulatedServices = []netip.Prefix{
		netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112"),
	}
	simulatedPods = []netip.Prefix{
		netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56"),
	}
)

// Compile checks the section, except for the checks in Keys. It returns the simulation
// of a cluster with these ranges, or the default ranges if empty. It returns the zero
// Config if the section is off. Its error is a *key.Error.
func (s *Simulate) Compile(services, pods []netip.Prefix) (simulate.Config, error) {
	ports, err := nodePorts(s.NodePorts)
	if err != nil {
		return simulate.Config{}, key.Errorf("simulate.nodePorts", "%w", err)
	}
	if !s.Enabled {
		return simulate.Config{}, nil
	}
	if len(services) == 0 {
		services = simulatedServices
	}
	if len(pods) == 0 {
		pods = simulatedPods
	}
	cfg := simulate.Config{
		NodePorts: ports, MaxEndpoints: s.MaxEndpointsPerSlice, ServiceRanges: services, PodRanges: pods,
	}
	if _, err := simulate.New(cfg); err != nil {
		return simulate.Config{}, key.Errorf("simulate.enabled", "%w (dns.serviceCIDRs and dns.podCIDRs say which)", err)
	}
	return cfg, nil
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
