package settings

import (
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/leader"
)

// Controller is the section of the controllers.
type Controller struct {
	// MaxEndpointsPerSlice is the highest number of endpoints in an EndpointSlice.
	// ConcurrentSyncs is the number of Services that are synced at once.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
	ConcurrentSyncs      int `yaml:"concurrentSyncs"`
	// LeaderElection elects one of several controllers, which alone writes.
	LeaderElection LeaderElection `yaml:"leaderElection"`
}

// LeaderElection configures the election by the Lease Namespace/Name.
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
			Enabled: true, Namespace: "kube-system", Name: "portolan-slices",
			LeaseDuration: key.Duration(leader.DefaultLeaseDuration),
			RenewDeadline: key.Duration(leader.DefaultRenewDeadline),
			RetryPeriod:   key.Duration(leader.DefaultRetryPeriod),
		},
	}
}

// CompiledController is the section controller in the types of the packages that use
// it.
type CompiledController struct {
	MaxEndpoints, Syncs int
	// Lease configures the election; nil if there is only one controller.
	Lease *leader.Config
}

// Compile checks the section, except for the checks in ControllerKeys, and returns it
// in the types of the packages that use it. Its error is a *key.Error.
func (c *Controller) Compile() (CompiledController, error) {
	made := CompiledController{MaxEndpoints: c.MaxEndpointsPerSlice, Syncs: c.ConcurrentSyncs}
	e := &c.LeaderElection
	lease := &leader.Config{
		Namespace: e.Namespace, Name: e.Name, LeaseDuration: time.Duration(e.LeaseDuration),
		RenewDeadline: time.Duration(e.RenewDeadline), RetryPeriod: time.Duration(e.RetryPeriod),
	}
	if err := lease.Check(); err != nil {
		name, problem, _ := strings.Cut(err.Error(), ": ")
		return made, key.Errorf("controller.leaderElection."+name, "%s", problem)
	}
	if e.Enabled {
		made.Lease = lease
	}
	return made, nil
}
