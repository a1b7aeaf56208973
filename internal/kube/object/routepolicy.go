package object

import (
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// APIRoutePolicy is a RoutePolicy of the API. docs/gateway-policy.md describes the fields.
type APIRoutePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   APIRoutePolicySpec     `json:"spec,omitzero"`
	Status gatewayv1.PolicyStatus `json:"status,omitzero"`
}

// APIRoutePolicySpec is the spec of a RoutePolicy.
type APIRoutePolicySpec struct {
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs,omitempty"`

	Allow              []string           `json:"allow,omitempty"`
	Deny               []string           `json:"deny,omitempty"`
	RateLimits         []APIRateLimit     `json:"rateLimits,omitempty"`
	ConcurrentRequests *APIConcurrency    `json:"concurrentRequests,omitempty"`
	MaxBodySize        *resource.Quantity `json:"maxBodySize,omitempty"`
	BasicAuth          *APIPasswords      `json:"basicAuth,omitempty"`
}

// APIRateLimit is an element of rateLimits.
type APIRateLimit struct {
	Requests int64              `json:"requests,omitempty"`
	Per      gatewayv1.Duration `json:"per,omitempty"`
	Burst    *int64             `json:"burst,omitempty"`
	Except   []string           `json:"except,omitempty"`
}

// APIConcurrency is concurrentRequests.
type APIConcurrency struct {
	Max    int64    `json:"max,omitempty"`
	Except []string `json:"except,omitempty"`
}

// APIPasswords is basicAuth.
type APIPasswords struct {
	SecretRef APISecretName `json:"secretRef,omitzero"`
	Format    string        `json:"format,omitempty"`
	Realm     string        `json:"realm,omitempty"`
}

// APISecretName names a Secret in the namespace of the policy.
type APISecretName struct {
	Name string `json:"name,omitempty"`
}

// APIRoutePolicyList is a list of RoutePolicies.
type APIRoutePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []APIRoutePolicy `json:"items"`
}

// DeepCopyObject implements runtime.Object. What is decoded is not changed, so that copies may share it.
func (p *APIRoutePolicy) DeepCopyObject() runtime.Object {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *APIRoutePolicyList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

var portolanVersion = schema.GroupVersion{Group: "portolan.dev", Version: "v1alpha1"}

func addPortolan(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(portolanVersion.WithKind("RoutePolicy"), new(APIRoutePolicy))
	s.AddKnownTypeWithName(portolanVersion.WithKind("RoutePolicyList"), new(APIRoutePolicyList))
	metav1.AddToGroupVersion(s, portolanVersion)
	return nil
}

// routePolicySalvage: a value that can't be read makes the policy invalid, so that no request is served.
var routePolicySalvage = salvage{
	invalid: map[string]string{
		"allow": `["?"]`, "deny": `["?"]`, "rateLimits": `[{}]`, "concurrentRequests": `{}`, "maxBodySize": `-1`,
		"basicAuth": `{}`,
	},
	rules: map[string]func([]byte) string{"targetRefs": func([]byte) string { return `{}` }},
}

// RoutePolicy converts a RoutePolicy. What is invalid makes the policy Invalid.
func RoutePolicy(p *APIRoutePolicy) (*cluster.RoutePolicy, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	made := &cluster.RoutePolicy{Key: k, Meta: meta(&p.ObjectMeta)}
	for i := range p.Spec.TargetRefs {
		t := &p.Spec.TargetRefs[i]
		made.Targets = append(made.Targets, cluster.PolicyTarget{
			ObjectRef: cluster.ObjectRef{
				Group: string(t.Group), Kind: string(t.Kind), Namespace: k.Namespace, Name: string(t.Name),
			},
			Section: string(or(t.SectionName, "")),
		})
	}
	bad := in(demands(&p.Spec, made), "spec")
	if len(bad) > 0 {
		made.Invalid = bad[0].Error()
	}
	for i := range p.Status.Ancestors {
		a := &p.Status.Ancestors[i]
		made.Ancestors = append(made.Ancestors,
			parentStatus(&a.AncestorRef, string(a.ControllerName), a.Conditions, k.Namespace))
	}
	return made, append(errs, bad...)
}

// demands converts what a policy demands of requests.
func demands(s *APIRoutePolicySpec, made *cluster.RoutePolicy) (errs field.ErrorList) {
	made.Allow, errs = clients(s.Allow, "allow")
	deny, bad := clients(s.Deny, "deny")
	made.Deny, errs = deny, append(errs, bad...)
	for i := range s.RateLimits {
		limit, bad := rateLimit(&s.RateLimits[i])
		made.Limits, errs = append(made.Limits, limit), append(errs, in(bad, "rateLimits", i)...)
	}
	if c := s.ConcurrentRequests; c != nil {
		most, bad := count(c.Max, "max")
		except, worse := clients(c.Except, "except")
		made.Concurrent = &cluster.ConcurrencyLimit{Max: most, Except: except}
		errs = append(errs, in(append(bad, worse...), "concurrentRequests")...)
	}
	if q := s.MaxBodySize; q != nil {
		size, whole := q.AsInt64()
		if made.MaxBody = size; !whole || size < 1 {
			errs = append(errs, in(nowhere(field.Invalid(nil, q.String(), "must be a positive number of octets")),
				"maxBodySize")...)
		}
	}
	if b := s.BasicAuth; b != nil {
		passwords, bad := passwords(b, made.Namespace)
		made.Passwords, errs = passwords, append(errs, in(bad, "basicAuth")...)
	}
	return errs
}

// clients converts a list of addresses and ranges of them, the field called of.
func clients(all []string, of string) (made []netip.Prefix, errs field.ErrorList) {
	for i, text := range all {
		if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			text = netip.PrefixFrom(addr, addr.BitLen()).String()
		}
		p, bad := prefix(text)
		made, errs = append(made, p), append(errs, in(bad, of, i)...)
	}
	return made, errs
}

// count converts a number of requests, the field called of.
func count(n int64, of string) (uint32, field.ErrorList) {
	const most = 1 << 30
	if n < 1 || n > most {
		return 0, in(nowhere(field.Invalid(nil, n, "must be between 1 and 1073741824, inclusive")), of)
	}
	return uint32(n), nil
}

func rateLimit(r *APIRateLimit) (made cluster.RequestLimit, errs field.ErrorList) {
	made.Requests, errs = count(r.Requests, "requests")
	per, bad := timeout(&r.Per)
	if made.Per = per.Limit; len(bad) == 0 && (made.Per < time.Second || made.Per > time.Hour) {
		bad = nowhere(field.Invalid(nil, r.Per, "must be between 1s and 1h, inclusive"))
	}
	errs = append(errs, in(bad, "per")...)
	if r.Burst != nil {
		made.Burst, bad = count(*r.Burst, "burst")
		errs = append(errs, bad...)
	}
	made.Except, bad = clients(r.Except, "except")
	return made, append(errs, bad...)
}

// passwords converts basicAuth of a policy in a namespace.
func passwords(b *APIPasswords, namespace string) (made *cluster.Passwords, errs field.ErrorList) {
	made = &cluster.Passwords{
		Secret: cluster.ObjectRef{Kind: cluster.KindSecret.String(), Namespace: namespace, Name: b.SecretRef.Name},
		Map:    b.Format == "Map", Realm: b.Realm,
	}
	errs = in(checkName(b.SecretRef.Name, validation.IsDNS1123Subdomain), "secretRef", "name")
	if b.Format != "" && b.Format != "File" && b.Format != "Map" {
		errs = append(errs, in(nowhere(field.NotSupported(nil, b.Format, []string{"File", "Map"})), "format")...)
	}
	if !isFieldValue(b.Realm) || strings.ContainsFunc(b.Realm, func(r rune) bool { return r > unicode.MaxASCII }) {
		errs = append(errs, in(nowhere(field.Invalid(nil, b.Realm, "must be characters of ASCII")), "realm")...)
	}
	return made, errs
}
