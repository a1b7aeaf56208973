package settings

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/leader"
	"portolan.dev/portolan/internal/network/podcidr"
	"portolan.dev/portolan/internal/network/pool"
)

// Controller is the section of the controllers.
type Controller struct {
	// MaxEndpointsPerSlice is the highest number of endpoints in an EndpointSlice.
	// ConcurrentSyncs is the number of Services that are synced at once.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
	ConcurrentSyncs      int `yaml:"concurrentSyncs"`
	// LeaderElection elects one of several controllers, which alone writes.
	LeaderElection LeaderElection `yaml:"leaderElection"`
	// Nodes is the section of the controller of Nodes' ranges.
	Nodes Nodes `yaml:"nodes"`
	// LoadBalancer is the section of the controller of load balancers' addresses.
	LoadBalancer LoadBalancer `yaml:"loadBalancer"`
}

// Nodes configures the ranges of Pod addresses that Nodes get.
type Nodes struct {
	// ClusterCIDRs are one or two ranges, of different families, that the ranges of Nodes are parts of. MaskIPv4 and
	// MaskIPv6 are the lengths of their prefixes.
	ClusterCIDRs []string `yaml:"clusterCIDRs"`
	MaskIPv4     int      `yaml:"maskIPv4"`
	MaskIPv6     int      `yaml:"maskIPv6"`
}

// LeaderElection configures the election by the Lease Namespace/Name. An empty name is the controller's own.
type LeaderElection struct {
	Enabled   bool   `yaml:"enabled"`
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// LeaseDuration is the time after a renewal in which no other instance can become
	// leader. RenewDeadline is the time for which the leader tries to renew.
	// RetryPeriod is the interval between attempts of any instance.
	LeaseDuration key.Duration `yaml:"leaseDuration"`
	RenewDeadline key.Duration `yaml:"renewDeadline"`
	RetryPeriod   key.Duration `yaml:"retryPeriod"`
}

// DefaultController returns the section of a file that lacks it.
func DefaultController() Controller {
	return Controller{
		MaxEndpointsPerSlice: endpointslices.DefaultMaxEndpoints, ConcurrentSyncs: endpointslices.DefaultSyncs,
		LeaderElection: LeaderElection{
			Enabled: true, Namespace: "kube-system",
			LeaseDuration: key.Duration(leader.DefaultLeaseDuration),
			RenewDeadline: key.Duration(leader.DefaultRenewDeadline),
			RetryPeriod:   key.Duration(leader.DefaultRetryPeriod),
		},
		Nodes:        Nodes{MaskIPv4: 24, MaskIPv6: 64},
		LoadBalancer: LoadBalancer{Class: DefaultLoadBalancerClass},
	}
}

// CompiledController is the section controller in the types of the packages that use
// it.
type CompiledController struct {
	MaxEndpoints, Syncs int
	// Lease configures the election; nil if there is only one controller. Its name may be empty.
	Lease *leader.Config
	// Nodes are the ranges that Nodes get parts of; none if they are not configured.
	Nodes []podcidr.Range
	// LoadBalancer are the pools, and the Services that they are for.
	LoadBalancer pool.Config
}

// LeaseOf returns the election of a controller; nil if there is only one process.
func (c *CompiledController) LeaseOf(controller string) *leader.Config {
	if c.Lease == nil {
		return nil
	}
	lease := *c.Lease
	lease.Name = cmp.Or(lease.Name, leasePrefix+controller)
	return &lease
}

const leasePrefix = "portolan-"

// Compile checks the section, except for the checks in ControllerKeys, and returns it
// in the types of the packages that use it. Its error is a *key.Error.
func (c *Controller) Compile() (CompiledController, error) {
	made := CompiledController{MaxEndpoints: c.MaxEndpointsPerSlice, Syncs: c.ConcurrentSyncs}
	e := &c.LeaderElection
	lease := &leader.Config{
		Namespace: e.Namespace, Name: e.Name, LeaseDuration: time.Duration(e.LeaseDuration),
		RenewDeadline: time.Duration(e.RenewDeadline), RetryPeriod: time.Duration(e.RetryPeriod),
	}
	named := *lease
	named.Name = cmp.Or(e.Name, leasePrefix+"slices") // any valid name
	if err := named.Check(); err != nil {
		name, problem, _ := strings.Cut(err.Error(), ": ")
		return made, key.Errorf("controller.leaderElection."+name, "%s", problem)
	}
	if e.Enabled {
		made.Lease = lease
	}
	var err error
	if made.Nodes, err = c.Nodes.compile(); err != nil {
		return made, err
	}
	made.LoadBalancer, err = c.LoadBalancer.compile()
	return made, err
}

// compile returns the ranges; none if there are no ClusterCIDRs.
func (n *Nodes) compile() (ranges []podcidr.Range, err error) {
	for i, text := range n.ClusterCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, key.ItemErrorf("controller.nodes.clusterCIDRs", i,
				"%q is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48", text)
		}
		r := podcidr.Range{Cluster: p, Bits: n.MaskIPv6}
		if p.Addr().Is4() {
			r.Bits = n.MaskIPv4
		}
		if err := r.Check(); err != nil {
			return nil, key.ItemErrorf("controller.nodes.clusterCIDRs", i, "%w", err)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, nil
	}
	if err := podcidr.CheckRanges(ranges); err != nil {
		return nil, key.Errorf("controller.nodes.clusterCIDRs", "%w", err)
	}
	return ranges, nil
}
