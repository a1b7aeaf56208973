package lint

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/support/suggest"
)

// CheckGateway checks the class of a Gateway, and its listeners.
func (c *Linter) CheckGateway(f *cluster.Frontend) []Finding {
	j := c.reporterFor(f.Kind, f.Key)
	if f.Gateway == nil || !j.loaded(routeKinds...) {
		return nil
	}
	j.gatewayClass(f.Gateway.Class)
	verdict := c.routing().any.Gateways[f.Key]
	if own := c.routing().own.Gateways[f.Key]; own != nil {
		verdict = own
	}
	j.listeners(f.Gateway.Listeners, verdict)
	j.authorities("spec.tls.frontend.default.validation", f.Gateway.ClientValidation)
	for i := range f.Gateway.ClientValidationOf {
		of := &f.Gateway.ClientValidationOf[i]
		j.authorities("spec.tls.frontend.perPort"+at(i)+".tls.validation", of.Validation)
	}
	return j.found()
}

// CheckListenerSet checks that the Gateway of a ListenerSet allows it, and its listeners.
func (c *Linter) CheckListenerSet(s *cluster.ListenerSet) []Finding {
	j := c.reporterFor(cluster.KindListenerSet, s.Key)
	if !j.loaded(routeKinds...) || s.Parent.Group != gatewayGroup || s.Parent.Kind != cluster.KindGateway.String() {
		return nil
	}
	key := cluster.Key{Namespace: s.Parent.Namespace, Name: s.Parent.Name}
	gw := cluster.Gateways.Get(c.View, key)
	if gw == nil {
		if j.Observed && !j.unread(cluster.KindGateway, key.Namespace) {
			j.add(ListenerSetNotAllowed, "spec.parentRef", "name a Gateway that exists", "Gateway %s does not exist", key)
		}
		return j.found()
	}
	verdict := c.routing().any.Sets[s.Key]
	if own := c.routing().own.Sets[s.Key]; own != nil {
		verdict = own
	}
	if verdict != nil && verdict.Conditions[0].Reason == "NotAllowed" {
		j.add(ListenerSetNotAllowed, "spec.parentRef", "let spec.allowedListeners of the Gateway select the namespace",
			"Gateway %s allows no ListenerSets from namespace %s: its listeners are not served", key, s.Namespace)
		return j.found()
	}
	j.listeners(s.Listeners, verdict)
	return j.found()
}

// gatewayClass checks that there is a GatewayClass, and that a controller accepted it.
func (j *reporter) gatewayClass(name string) {
	const field = "spec.gatewayClassName"
	class := cluster.GatewayClasses.Get(j.View, cluster.Key{Name: name})
	if class == nil {
		var names []string
		for other := range cluster.GatewayClasses.All(j.View) {
			names = append(names, other.Name)
		}
		slices.Sort(names)
		near := suggest.Closest(name, names)
		severity := Error
		switch {
		case near != "" || j.Observed:
		case len(names) == 0: // it is not in these manifests, as are the others
			return
		default:
			severity = Warning
		}
		fix := "name a GatewayClass that exists, or create it"
		if near != "" {
			fix = "write " + near + ", or create the GatewayClass"
		}
		j.addAs(
			severity,
			GatewayClassUnserved,
			field,
			fix,
			"GatewayClass %s does not exist%s: nobody serves the Gateway",
			name,
			didYouMean(near),
		)
		return
	}
	accepted := slices.ContainsFunc(class.Conditions, func(c cluster.StatusCondition) bool {
		return c.Type == "Accepted" && c.Status == "True"
	})
	if j.Observed && !accepted {
		j.addAs(Warning, GatewayClassUnserved, field, "check that the controller is installed, and its log",
			"no controller has accepted GatewayClass %s, whose controllerName is %s", name, class.Controller)
	}
}

// listeners checks the listeners of a Gateway or ListenerSet.
func (j *reporter) listeners(all []cluster.Listener, verdict *compile.GatewayVerdict) {
	for i := range all {
		field := "spec.listeners" + at(i)
		if verdict != nil && i < len(verdict.Listeners) {
			for _, c := range verdict.Listeners[i].Conditions {
				if c.Type == "Conflicted" && c.Status == "True" {
					j.add(ListenerConflict, field, "give it another port or hostname", "%s: it is not served", c.Message)
				}
			}
		}
		j.listenerCertificates(field, &all[i])
	}
}

// listenerCertificates checks the certificates of a listener.
func (j *reporter) listenerCertificates(field string, l *cluster.Listener) {
	if l.TLS == nil || l.TLS.Mode == cluster.TLSPassthrough {
		return
	}
	complete := true
	var has []*x509.Certificate
	for i := range l.TLS.Certificates {
		ref := &l.TLS.Certificates[i]
		in := field + ".tls.certificateRefs" + at(i)
		key, isSecret := ref.Core(cluster.KindSecret)
		if !isSecret {
			complete = false
			continue
		}
		if j.notGranted(in, ref) {
			continue
		}
		of := j.certificate(in+".name", key)
		if of == nil {
			complete = false
			continue
		}
		has = append(has, of)
	}
	if complete && len(has) > 0 && !covered(l.Hostname, has...) {
		j.certificateFor(field+".hostname", has[0], l.Hostname)
	}
}

// notGranted reports a reference to another namespace that no ReferenceGrant allows. In manifests, the grant may
// be with the object if that is not among them.
func (j *reporter) notGranted(field string, ref *cluster.ObjectRef) bool {
	if ref.Namespace == j.object.Namespace || !j.loaded(cluster.KindReferenceGrant) ||
		j.unread(cluster.KindReferenceGrant, ref.Namespace) {
		return false
	}
	from := cluster.GroupKind{Group: gatewayGroup, Kind: j.object.Kind.String()}
	for _, g := range cluster.GrantsByNamespace.Get(j.View, ref.Namespace) {
		if g.Allows(from, j.object.Namespace, ref) {
			return false
		}
	}
	kind, known := cluster.KindOf(ref.Kind)
	key := cluster.Key{Namespace: ref.Namespace, Name: ref.Name}
	if !j.Observed && (!known || j.View.Object(kind, key) == nil) {
		return false
	}
	what := map[string]string{"Secret": "there is no certificate for it"}[ref.Kind]
	if what == "" {
		what = "its share of the requests is answered with 500"
	}
	fix := fmt.Sprintf("create a ReferenceGrant in namespace %s: from %s (%s) in namespace %s, to %s %s", ref.Namespace,
		from.Kind, from.Group, j.object.Namespace, ref.Kind, ref.Name)
	j.add(
		ReferenceGrantMissing,
		field,
		fix,
		"no ReferenceGrant in namespace %s allows %s of namespace %s to refer to %s %s: %s",
		ref.Namespace,
		j.object.Kind.Plural(),
		j.object.Namespace,
		ref.Kind,
		ref.Name,
		what,
	)
	return true
}

// haveInCommon reports whether a listener and a route have names in common (Gateway API, HTTPRouteSpec.hostnames).
func haveInCommon(listener, route string) bool {
	covers := func(wildcard, name string) bool {
		above, ok := strings.CutPrefix(wildcard, "*")
		return ok && strings.HasSuffix(name, above) && name != above
	}
	return listener == "" || route == "" || listener == route || covers(listener, route) || covers(route, listener)
}
