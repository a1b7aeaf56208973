package object

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	"portolan.dev/portolan/internal/cluster"
)

// addGatewayX adds the types of the experimental kind that is read.
func addGatewayX(s *runtime.Scheme) error {
	version := schema.GroupVersion(gatewayx.GroupVersion)
	s.AddKnownTypes(version, new(gatewayx.XBackendTrafficPolicy), new(gatewayx.XBackendTrafficPolicyList))
	metav1.AddToGroupVersion(s, version)
	return nil
}

// BackendTrafficPolicy converts an XBackendTrafficPolicy.
func BackendTrafficPolicy(p *gatewayx.XBackendTrafficPolicy) (*cluster.BackendTrafficPolicy, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	made := &cluster.BackendTrafficPolicy{Key: k, Meta: meta(&p.ObjectMeta), Session: p.Spec.SessionPersistence != nil}
	for i := range p.Spec.TargetRefs {
		t := &p.Spec.TargetRefs[i]
		made.Targets = append(made.Targets, cluster.PolicyTarget{ObjectRef: cluster.ObjectRef{
			Group: string(t.Group), Kind: string(t.Kind), Namespace: k.Namespace, Name: string(t.Name),
		}})
	}
	if r := p.Spec.RetryConstraint; r != nil {
		limits, bad := retryConstraint(r)
		made.Retries, errs = limits, append(errs, in(bad, "spec", "retryConstraint")...)
	}
	for i := range p.Status.Ancestors {
		a := &p.Status.Ancestors[i]
		made.Ancestors = append(made.Ancestors,
			parentStatus(&a.AncestorRef, string(a.ControllerName), a.Conditions, k.Namespace))
	}
	return made, errs
}

// retryConstraint converts limits of retries, with the defaults of the API: 20 % in 10s, and 10 in 1s.
func retryConstraint(r *gatewayx.RetryConstraint) (made *cluster.RetryConstraint, errs field.ErrorList) {
	const percent, mostPercent, least, mostLeast = 20, 100, 10, 1_000_000
	budget, rate := or(r.Budget, gatewayx.BudgetDetails{}), or(r.MinRetryRate, gatewayx.RequestRate{})
	made = new(cluster.RetryConstraint)
	var bad [4]field.ErrorList
	made.Percent, bad[0] = between(or(budget.Percent, percent), 0, mostPercent)
	made.Interval, bad[1] = upToHour(or(budget.Interval, "10s"), time.Second)
	made.Least, bad[2] = between(or(rate.Count, least), 1, mostLeast)
	made.Per, bad[3] = upToHour(or(rate.Interval, "1s"), time.Millisecond)
	return made, slices.Concat(
		in(bad[0], "budget", "percent"), in(bad[1], "budget", "interval"),
		in(bad[2], "minRetryRate", "count"), in(bad[3], "minRetryRate", "interval"),
	)
}

func between(n, least, most int) (uint32, field.ErrorList) {
	if n < least || n > most {
		return 0, nowhere(field.Invalid(nil, n, fmt.Sprintf("must be between %d and %d, inclusive", least, most)))
	}
	return uint32(n), nil
}

// upToHour converts a duration of an hour at most.
func upToHour(d gatewayx.Duration, least time.Duration) (time.Duration, field.ErrorList) {
	made, errs := timeout(&d)
	if len(errs) == 0 && (made.Limit < least || made.Limit > time.Hour) {
		errs = nowhere(field.Invalid(nil, d, fmt.Sprintf("must be between %v and 1h, inclusive", least)))
	}
	return made.Limit, errs
}
