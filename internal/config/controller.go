package config

import (
	"strings"
	"time"

	"portolan.dev/portolan/internal/kube/leader"
)

// Controller is what controllers go by.
type Controller struct {
	// MaxEndpointsPerSlice is how many endpoints an EndpointSlice holds at most,
	// ConcurrentSyncs how many Services are worked on at once.
	MaxEndpointsPerSlice int `yaml:"maxEndpointsPerSlice"`
	ConcurrentSyncs      int `yaml:"concurrentSyncs"`
	// LeaderElection has one of several controllers work.
	LeaderElection LeaderElection `yaml:"leaderElection"`
}

// LeaderElection is about the Lease Namespace/Name.
type LeaderElection struct {
	Enabled   bool   `yaml:"enabled"`
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// LeaseDuration is for how long nobody else leads after a renewal,
	// RenewDeadline for how long the leader tries to renew, RetryPeriod how long
	// everybody waits between two attempts.
	LeaseDuration Duration `yaml:"leaseDuration"`
	RenewDeadline Duration `yaml:"renewDeadline"`
	RetryPeriod   Duration `yaml:"retryPeriod"`
}

// CompiledController is Controller in the types of its users.
type CompiledController struct {
	MaxEndpoints, Syncs int
	// Lease is who leads; nil when nobody else does the same.
	Lease *leader.Config
}

func (c *Config) compileController(made *Compiled) error {
	of := &c.Controller
	made.Controller = CompiledController{MaxEndpoints: of.MaxEndpointsPerSlice, Syncs: of.ConcurrentSyncs}
	e := &of.LeaderElection
	lease := &leader.Config{
		Namespace: e.Namespace, Name: e.Name, LeaseDuration: time.Duration(e.LeaseDuration),
		RenewDeadline: time.Duration(e.RenewDeadline), RetryPeriod: time.Duration(e.RetryPeriod),
	}
	if err := lease.Check(); err != nil {
		key, problem, _ := strings.Cut(err.Error(), ": ")
		return badValue("controller.leaderElection."+key, "%s", problem)
	}
	if e.Enabled {
		made.Controller.Lease = lease
	}
	return nil
}
