package status

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
)

// subject is an object, and what the compiler says of it.
type subject struct {
	ref cluster.Ref
	// object is nil if it does not exist.
	object  cluster.Object
	class   *compile.ClassVerdict
	gateway *compile.GatewayVerdict // or ListenerSet
	parents []compile.ParentVerdict // or the ancestors of a policy
	ingress *compile.IngressVerdict
}

// surroundings are what statuses depend on beside verdicts.
type surroundings struct {
	// published are the addresses that the process shares; nil if none are configured, and nobody knows them.
	published []cluster.GatewayAddress
	// trouble is why sockets are not bound.
	trouble map[table.Socket]error
	// now is when certificates are looked at, whether they have expired.
	now time.Time
	// features are those of GatewayClasses.
	features []string
	// bundle is the version of Gateway API that the cluster has; nil until it is known whether it can be read.
	bundle *Bundle
}

// wanted is what the status of an object is to say, but for times and what others wrote.
type wanted struct {
	ref        cluster.Ref
	generation int64
	conditions []cluster.Condition // but of routes
	features   []string            // of a GatewayClass
	addresses  []cluster.GatewayAddress
	listeners  []wantedListener
	sets       int32
	parents    []compile.ParentVerdict
	// balancers are the addresses of an Ingress; nil if its status is to stay as it is.
	balancers []cluster.LoadBalancerIngress
	// problems are what users must see although no status says it, or it is easily missed.
	problems []problem
}

type wantedListener struct {
	name       string
	kinds      []cluster.GroupKind
	attached   int32
	conditions []cluster.Condition
}

// problem is what an Event reports: a word, and a sentence.
type problem struct{ reason, note string }

// The types of conditions (Gateway API v1) that are set here, or whose meaning matters here.
const (
	accepted         = "Accepted"
	programmed       = "Programmed"
	supportedVersion = "SupportedVersion"
	conflicted       = "Conflicted"
	resolvedRefs     = "ResolvedRefs"
)

// judge returns what the status of an object is to say; nil if nothing is to be written to it.
func (a *surroundings) judge(s *subject) *wanted {
	switch o := s.object.(type) {
	case *cluster.GatewayClass:
		if s.class != nil && a.bundle != nil {
			return &wanted{
				ref: s.ref, generation: o.Generation, features: a.features,
				conditions: append(slices.Clip(s.class.Conditions), a.bundle.condition()),
			}
		}
	case *cluster.ListenerSet:
		if s.gateway != nil {
			return a.holder(s, o.Generation)
		}
	case *cluster.Route:
		if o.Spec != nil {
			return &wanted{ref: s.ref, generation: o.Spec.Generation, parents: s.parents}
		}
	case *cluster.BackendTLSPolicy:
		return &wanted{ref: s.ref, generation: o.Generation, parents: s.parents}
	case *cluster.BackendTrafficPolicy:
		return &wanted{ref: s.ref, generation: o.Generation, parents: s.parents}
	case *cluster.RoutePolicy:
		return &wanted{ref: s.ref, generation: o.Generation, parents: s.parents}
	case *cluster.Frontend:
		switch {
		case o.Gateway != nil && s.gateway != nil:
			return a.holder(s, o.Gateway.Generation)
		case o.Ingress != nil && s.ingress != nil:
			return a.frontend(s, o.Ingress)
		}
	}
	return nil
}

// frontend judges an Ingress. Its status stays as it is if it is not known where it is served.
func (a *surroundings) frontend(s *subject, i *cluster.IngressSpec) *wanted {
	w := &wanted{ref: s.ref, generation: i.Generation}
	for _, p := range s.ingress.Problems {
		w.problems = append(w.problems, problem{"NotServed", p.Field + ": " + p.Reason})
	}
	w.limit()
	if a.published == nil || s.ingress.Unclear {
		return w
	}
	w.balancers = []cluster.LoadBalancerIngress{}
	for _, addr := range a.published {
		if addr.Type == cluster.AddressIP {
			w.balancers = append(w.balancers, cluster.LoadBalancerIngress{IP: addr.Value})
		} else {
			w.balancers = append(w.balancers, cluster.LoadBalancerIngress{Hostname: addr.Value})
		}
	}
	return w
}

// holder judges a Gateway or ListenerSet.
func (a *surroundings) holder(s *subject, generation int64) *wanted {
	w := &wanted{ref: s.ref, generation: generation, sets: s.gateway.ListenerSets}
	if s.ref.Kind == cluster.KindGateway {
		w.addresses = a.addresses(s.gateway)
	}
	w.conditions = append(slices.Clip(s.gateway.Conditions), a.programmed(s))
	for i := range s.gateway.Listeners {
		l := &s.gateway.Listeners[i]
		w.listeners = append(w.listeners, wantedListener{
			l.Name, l.SupportedKinds, l.AttachedRoutes, append(a.refs(l), a.listener(l)),
		})
		if c := find(w.listeners[i].conditions, resolvedRefs); c != nil && c.Reason == certificateExpired {
			w.problems = append(w.problems, problem{c.Reason, "listener " + l.Name + ": " + c.Message})
		}
		if c := find(l.Conditions, conflicted); c != nil && c.Status == "True" {
			w.problems = append(w.problems, problem{c.Reason, "listener " + l.Name + ": " + c.Message})
		}
	}
	for i := range w.conditions {
		if c := &w.conditions[i]; isProblem(s.ref.Kind, c) {
			w.problems = append(w.problems, problem{c.Reason, c.Message})
		}
	}
	w.limit()
	return w
}

// isProblem reports whether an Event reports a condition of a Gateway or ListenerSet, which is not what another
// one reports already.
func isProblem(of cluster.Kind, c *cluster.Condition) bool {
	summary := []string{invalid, "ListenersNotValid", parentNotProgrammed}
	return c.Status == "False" && !slices.Contains(summary, c.Reason) &&
		(c.Type == programmed || c.Type == accepted && of == cluster.KindGateway)
}

// maxProblems is how many Events there are of an object at once.
const maxProblems = 8

// limit limits the problems.
func (w *wanted) limit() {
	if more := len(w.problems) - maxProblems; more > 0 {
		last := &w.problems[maxProblems-1]
		last.note = fmt.Sprintf("%s; and %d more problems", last.note, more)
		w.problems = w.problems[:maxProblems]
	}
}

// addresses returns those of a Gateway.
func (a *surroundings) addresses(v *compile.GatewayVerdict) (made []cluster.GatewayAddress) {
	for _, addr := range v.Addresses {
		switch {
		case addr.IsValid():
			made = append(made, ipAddress(addr))
		case v.Named == nil:
			made = append(made, a.published...)
		}
	}
	for _, addr := range v.Named {
		made = append(made, ipAddress(addr))
	}
	return made[:min(len(made), compile.MaxAddresses)]
}

func ipAddress(addr netip.Addr) cluster.GatewayAddress {
	return cluster.GatewayAddress{Type: cluster.AddressIP, Value: addr.String()}
}

// invalid is the reason of the condition Programmed of what is not accepted.
const invalid = "Invalid"

// programmed returns the condition Programmed of a Gateway or ListenerSet: it is true if all listeners that are
// valid are served, at addresses that are known.
func (a *surroundings) programmed(s *subject) cluster.Condition {
	v, gateway := s.gateway, s.ref.Kind == cluster.KindGateway
	c := find(v.Conditions, accepted)
	switch {
	case c != nil && c.Status != "True" && gateway:
		return no(invalid, "the Gateway is not accepted")
	case c != nil && c.Status != "True":
		return no(c.Reason, c.Message) // (conformance, ListenerSetAllowedNamespacesNone)
	case v.Unprogrammed != nil && (gateway || v.Unprogrammed.Reason == invalid):
		return *v.Unprogrammed
	case v.Unprogrammed != nil:
		return no(parentNotProgrammed, v.Unprogrammed.Message)
	case len(a.addresses(v)) == 0 && gateway:
		return no("AddressNotAssigned", noAddress)
	case len(a.addresses(v)) == 0:
		return no(parentNotProgrammed, noAddress)
	}
	for i := range v.Listeners {
		if err := a.unbound(&v.Listeners[i]); err != nil {
			return no("Pending", fmt.Sprintf("listener %s: %v", v.Listeners[i].Name, err))
		}
	}
	return yes(programmed, programmed, "")
}

// The reason of the condition Programmed of a ListenerSet if its Gateway's is not true, and why a Gateway has no
// address.
const (
	parentNotProgrammed = "ParentNotProgrammed"
	noAddress           = "the gateway knows no address of its own: see gateway.publish in its configuration"
)

// certificateExpired is the reason of the condition ResolvedRefs of a listener whose references are right, and have an
// expired certificate.
const certificateExpired = "CertificateExpired"

// refs returns the conditions of a listener, with ResolvedRefs false if a certificate has expired.
func (a *surroundings) refs(l *compile.ListenerVerdict) []cluster.Condition {
	conditions := slices.Clone(l.Conditions)
	if c := find(conditions, resolvedRefs); c != nil && c.Status == "True" && expired(l, a.now) {
		message := "a certificate has expired, and is still served: " + l.Expires.UTC().Format(time.RFC3339)
		*c = cluster.Condition{Type: resolvedRefs, Status: "False", Reason: certificateExpired, Message: message}
	}
	return conditions
}

// expired reports whether a certificate of a listener has expired.
func expired(l *compile.ListenerVerdict, now time.Time) bool {
	return !l.Expires.IsZero() && now.After(l.Expires)
}

// listener returns the condition Programmed of a listener.
func (a *surroundings) listener(l *compile.ListenerVerdict) cluster.Condition {
	if l.Unprogrammed != nil {
		return *l.Unprogrammed
	}
	if err := a.unbound(l); err != nil {
		return no("Pending", err.Error())
	}
	return yes(programmed, programmed, "")
}

// unbound returns why a socket of a listener is not bound; nil if all are.
func (a *surroundings) unbound(l *compile.ListenerVerdict) error {
	for _, at := range l.Sockets {
		if err := a.trouble[at]; err != nil {
			return err
		}
	}
	return nil
}

func find(all []cluster.Condition, of string) *cluster.Condition {
	if i := slices.IndexFunc(all, func(c cluster.Condition) bool { return c.Type == of }); i >= 0 {
		return &all[i]
	}
	return nil
}

func yes(condition, reason, message string) cluster.Condition {
	return cluster.Condition{Type: condition, Status: "True", Reason: reason, Message: message}
}

// no returns the condition Programmed as it is not true.
func no(reason, message string) cluster.Condition {
	return cluster.Condition{Type: programmed, Status: "False", Reason: reason, Message: message}
}
