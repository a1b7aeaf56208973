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
	// MaxEndpointsPerSlice is how many endpoints an EndpointSlice holds at most,
	// ConcurrentSyncs how many Services are synced at once.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
	ConcurrentSyncs      int `yaml:"concurrentSyncs"`
	// LeaderElection makes one of several controllers write.
	LeaderElection LeaderElection `yaml:"leaderElection"`
}

// LeaderElection is about the Lease Namespace/Name.
type LeaderElection struct {
	Enabled   bool   `yaml:"enabled"`
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// LeaseDuration is how long no other instance leads after a renewal,
	// RenewDeadline how long the leader tries to renew, RetryPeriod the time between
	// two attempts of any instance.
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
	// Lease elects the leader; nil where there is one controller.
	Lease *leader.Config
}

// Compile checks the section, but for what its ControllerKeys say, and returns it in
// the types of the packages that use it. An error is a *key.Error.
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
