package compile

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// policy is what a BackendTLSPolicy is compiled into.
type policy struct {
	from *cluster.BackendTLSPolicy
	securing
	// verdicts are one for each Gateway whose routes send requests to a target.
	verdicts []ParentVerdict
}

// securing is how a policy has TLS be spoken.
type securing struct {
	tls            table.TLS
	accepted, refs cluster.Condition
}

// targetOf returns the target that is a Service.
func targetOf(service cluster.Key) cluster.ObjectRef {
	return cluster.ObjectRef{Kind: cluster.KindService.String(), Namespace: service.Namespace, Name: service.Name}
}

// policyOf returns the policy of a port of a Service: one for the port precedes one for the Service, and of these an
// older one (BackendTLSPolicySpec.targetRefs). It is nil without any.
func policyOf(v *cluster.View, service cluster.Key, port string) *cluster.BackendTLSPolicy {
	target := targetOf(service)
	var found []*cluster.BackendTLSPolicy
	for _, section := range []string{port, ""} {
		for _, p := range cluster.PoliciesByTarget.Get(v, target) {
			if slices.Contains(p.Targets, cluster.PolicyTarget{ObjectRef: target, Section: section}) {
				found = append(found, p)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	if len(found) == 0 {
		return nil
	}
	return slices.MinFunc(found, comparePolicies)
}

// comparePolicies is negative if a precedes b.
func comparePolicies(a, b *cluster.BackendTLSPolicy) int {
	return cmp.Or(a.Age.Compare(b.Age), alphabetical(a.Key, b.Key))
}

// secure has TLS be spoken with an upstream, if there is a policy for it. If the policy cannot be obeyed, problem says
// why: then no request is sent, least of all without TLS.
func secure(v *cluster.View, up table.Upstream, port string) (secured table.Upstream, problem string) {
	key := cluster.Key{Namespace: up.Namespace, Name: up.Service}
	p := policyOf(v, key, port)
	if p == nil {
		return up, ""
	}
	made := compilePolicy(v, p)
	if made.accepted.Status != "True" {
		return up, fmt.Sprintf("BackendTLSPolicy %s of Service %s: %s", p.Name, key, made.accepted.Message)
	}
	return up.Secured(made.tls), ""
}

// secureStream has TLS be spoken with an upstream where that of the clients ends here, if there is a policy for it.
// What is passed on as it came needs none, and is not affected by one that cannot be obeyed.
func secureStream(v *cluster.View, up table.Upstream, port string) table.Upstream {
	secured, problem := secure(v, up, port)
	if problem != "" {
		return up.Secured(table.TLS{Broken: problem})
	}
	return secured
}

// compilePolicy compiles a policy, but for what other policies exclude.
func compilePolicy(v *cluster.View, p *cluster.BackendTLSPolicy) securing {
	made := securing{
		tls:      table.TLS{ServerName: p.Hostname, Names: subjectNames(p.Names)},
		accepted: yes(accepted, "Accepted", ""), refs: yes(resolvedRefs, "ResolvedRefs", ""),
	}
	var valid strings.Builder
	for i := range p.Authorities {
		ref := &p.Authorities[i]
		text, reason, message := authority(v, ref)
		if reason == "" {
			valid.WriteString(text + "\n")
			continue
		}
		if made.refs.Status == "True" {
			made.refs = no(resolvedRefs, reason, message)
		}
	}
	made.tls.Authorities = valid.String()
	switch {
	case p.Hostname == "":
		made.accepted = no(accepted, "Invalid", "spec.validation.hostname is empty")
	case len(p.Authorities) > 0 && valid.Len() == 0:
		made.accepted = no(accepted, "NoValidCACertificate", made.refs.Message)
	case len(p.Authorities) == 0 && p.WellKnown != cluster.WellKnownSystem:
		const message = "spec.validation has neither caCertificateRefs nor wellKnownCACertificates System"
		made.accepted = no(accepted, "Invalid", message)
	}
	return made
}

// authority returns the certificates of a reference, or why it has none.
func authority(v *cluster.View, ref *cluster.ObjectRef) (pem, reason, message string) {
	key, ok := ref.Core(cluster.KindConfigMap)
	if !ok {
		return "", "InvalidKind", fmt.Sprintf("certificate %s is not in a ConfigMap, but of kind %s", ref.Name, kindText(ref))
	}
	const of = "ca.crt"
	m := cluster.ConfigMaps.Get(v, key)
	switch {
	case m == nil && v.Freshness(cluster.KindConfigMap) != cluster.Live:
		return "", "Pending", fmt.Sprintf("ConfigMap %s is not read yet", key)
	case m == nil:
		return "", "InvalidCACertificateRef", fmt.Sprintf("ConfigMap %s does not exist", key)
	case !x509.NewCertPool().AppendCertsFromPEM([]byte(m.Data[of])):
		return "", "InvalidCACertificateRef", fmt.Sprintf("ConfigMap %s has no certificate in %s", key, of)
	}
	return m.Data[of], "", ""
}

// subjectNames returns names as those of a table.TLS.
func subjectNames(all []cluster.SubjectName) string {
	var lines []string
	for _, n := range all {
		if n.Hostname != "" {
			lines = append(lines, "DNS "+n.Hostname)
		} else {
			lines = append(lines, "URI "+n.URI)
		}
	}
	return strings.Join(lines, "\n")
}

// policyChanged notes what depends on a policy, or on what it refers to.
func (c *Compiler) policyChanged(v *cluster.View, key cluster.Key, d *dirty) {
	was, is := c.policies[key], cluster.BackendTLSPolicies.Get(v, key)
	d.verdicts[cluster.Ref{Kind: cluster.KindBackendTLSPolicy, Key: key}] = struct{}{}
	var targets []cluster.PolicyTarget
	if was != nil {
		targets = was.from.Targets
	}
	if is != nil {
		if was != nil && samePolicy(was.from, is) && reflect.DeepEqual(was.securing, compilePolicy(v, is)) {
			was.from = is
			return
		}
		targets = append(slices.Clip(targets), is.Targets...)
	}
	d.policies[key] = struct{}{}
	for _, t := range targets {
		service, ok := t.Core(cluster.KindService)
		if !ok {
			continue
		}
		d.insertUsers(v, service)
		d.insertPolicies(v, t.ObjectRef)
	}
}

// samePolicy reports whether two policies differ in their status alone.
func samePolicy(a, b *cluster.BackendTLSPolicy) bool {
	x, y := *a, *b
	x.Ancestors, y.Ancestors = nil, nil
	return reflect.DeepEqual(x, y)
}

// insertPolicies has the policies of a target be judged again.
func (d *dirty) insertPolicies(v *cluster.View, target cluster.ObjectRef) {
	for _, p := range cluster.PoliciesByTarget.Get(v, target) {
		d.policies[p.Key] = struct{}{}
	}
}

// authoritiesRead notes the policies that lack a ConfigMap, which may be read now, or not be any more.
func (c *Compiler) authoritiesRead(v *cluster.View, d *dirty) {
	for key, p := range c.policies {
		if p.refs.Status != "True" {
			c.policyChanged(v, key, d)
		}
	}
}

// judgePolicies says what is said of policies, once their routes are compiled.
func (c *Compiler) judgePolicies(v *cluster.View, d *dirty) {
	for target := range d.backends {
		d.insertPolicies(v, target)
	}
	for key := range d.policies {
		p := cluster.BackendTLSPolicies.Get(v, key)
		if p == nil {
			delete(c.policies, key)
			continue
		}
		made := &policy{from: p, securing: compilePolicy(v, p)}
		condition := made.accepted
		if by := overruled(v, p); by != nil {
			message := fmt.Sprintf("BackendTLSPolicy %s, which is older, has the same target", by.Key)
			condition = no(accepted, "Conflicted", message)
		}
		for _, gw := range c.ancestors(v, p.Targets) {
			made.verdicts = append(made.verdicts, ParentVerdict{gw, []cluster.Condition{condition, made.refs}})
		}
		c.policies[key] = made
		d.verdicts[p.Ref()] = struct{}{}
	}
}

// insertBackends has the policies of what a route refers to be judged again; it may be nil.
func (d *dirty) insertBackends(r *route) {
	if r == nil {
		return
	}
	for _, target := range r.from.Spec.Backends() {
		d.backends[target] = struct{}{}
	}
}

// overruled returns a policy that precedes one at a target; nil if there is none.
func overruled(v *cluster.View, p *cluster.BackendTLSPolicy) *cluster.BackendTLSPolicy {
	for _, t := range p.Targets {
		for _, o := range cluster.PoliciesByTarget.Get(v, t.ObjectRef) {
			if o.Key != p.Key && slices.Contains(o.Targets, t) && comparePolicies(o, p) < 0 {
				return o
			}
		}
	}
	return nil
}

// ancestors returns the Gateways whose routes send requests to a target of policies, in order.
func (c *Compiler) ancestors(v *cluster.View, targets []cluster.PolicyTarget) (all []cluster.ParentRef) {
	found := make(map[cluster.Key]struct{})
	for _, t := range targets {
		for r := range cluster.RoutesByBackend.Get(v, t.ObjectRef) {
			made := c.routes[r.Ref()]
			if made == nil || r.Kind == cluster.KindTCPRoute || r.Kind == cluster.KindUDPRoute {
				continue
			}
			for _, a := range made.at {
				found[a.listener.gateway] = struct{}{}
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(found), cluster.Key.Compare) {
		all = append(all, gatewayRef(key))
	}
	return all
}

// gatewayRef returns a Gateway as an ancestor of policies.
func gatewayRef(key cluster.Key) cluster.ParentRef {
	return cluster.ParentRef{ObjectRef: cluster.ObjectRef{
		Group: gatewayGroup, Kind: cluster.KindGateway.String(), Namespace: key.Namespace, Name: key.Name,
	}}
}

// Policy returns what is said of a BackendTLSPolicy: its Parents are Gateways. It is nil if no route of ours needs it.
func (c *Compiler) Policy(key cluster.Key) []ParentVerdict {
	if p := c.policies[key]; p != nil {
		return p.verdicts
	}
	return nil
}
