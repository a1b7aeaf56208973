package object

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
)

// BackendTLSPolicy converts a BackendTLSPolicy.
func BackendTLSPolicy(p *gatewayv1.BackendTLSPolicy) (*cluster.BackendTLSPolicy, field.ErrorList) {
	k, errs := key(&p.ObjectMeta, validation.IsDNS1123Subdomain)
	of := &p.Spec.Validation
	made := &cluster.BackendTLSPolicy{
		Key: k, Meta: meta(&p.ObjectMeta), Hostname: host(string(of.Hostname)),
		WellKnown: string(or(of.WellKnownCACertificates, "")), Options: texts(p.Spec.Options),
	}
	for i := range p.Spec.TargetRefs {
		t := &p.Spec.TargetRefs[i]
		made.Targets = append(made.Targets, cluster.PolicyTarget{
			ObjectRef: cluster.ObjectRef{
				Group: string(t.Group), Kind: string(t.Kind), Namespace: k.Namespace, Name: string(t.Name),
			},
			Section: string(or(t.SectionName, "")),
		})
	}
	for i := range of.CACertificateRefs {
		r := &of.CACertificateRefs[i]
		made.Authorities = append(made.Authorities, cluster.ObjectRef{
			Group: string(r.Group), Kind: string(r.Kind), Namespace: k.Namespace, Name: string(r.Name),
		})
	}
	if len(made.Authorities) > 0 && made.WellKnown != "" {
		bad := nowhere(field.Forbidden(nil, "may not be set with caCertificateRefs"))
		errs = append(errs, in(bad, "spec", "validation", "wellKnownCACertificates")...)
	}
	for i := range of.SubjectAltNames {
		name, bad := subjectName(&of.SubjectAltNames[i])
		made.Names, errs = append(made.Names, name), append(errs, in(bad, "spec", "validation", "subjectAltNames", i)...)
	}
	for i := range p.Status.Ancestors {
		a := &p.Status.Ancestors[i]
		made.Ancestors = append(made.Ancestors,
			parentStatus(&a.AncestorRef, string(a.ControllerName), a.Conditions, k.Namespace))
	}
	return made, errs
}

func subjectName(n *gatewayv1.SubjectAltName) (made cluster.SubjectName, errs field.ErrorList) {
	switch n.Type {
	case gatewayv1.HostnameSubjectAltNameType:
		made.Hostname = host(string(n.Hostname))
	case gatewayv1.URISubjectAltNameType:
		made.URI = string(n.URI)
	default:
		return made, in(nowhere(field.NotSupported(nil, n.Type, []string{"Hostname", "URI"})), "type")
	}
	if made == (cluster.SubjectName{}) {
		return made, nowhere(field.Required(nil, "must have the name that its type says"))
	}
	return made, nil
}
