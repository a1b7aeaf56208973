package cluster

import "time"

// BackendTrafficPolicy is an XBackendTrafficPolicy (gateway.networking.x-k8s.io/v1alpha1): how requests are sent to the
// endpoints of Services.
type BackendTrafficPolicy struct {
	Key
	Meta
	Targets []PolicyTarget // without Section
	Retries *RetryConstraint
	// Session: the policy has sessionPersistence.
	Session bool
	// Ancestors are those of the status, of all controllers.
	Ancestors []ParentStatus
}

// RetryConstraint limits the requests that are sent again (GEP-3388): of those of the last Interval to Percent, but not
// to fewer than Least in each Per.
type RetryConstraint struct {
	Percent  uint32
	Interval time.Duration
	Least    uint32
	Per      time.Duration
}

// Ref returns kind and key.
func (p *BackendTrafficPolicy) Ref() Ref { return Ref{KindBackendTrafficPolicy, p.Key} }
