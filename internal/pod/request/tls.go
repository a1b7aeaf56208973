package request

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// TLS is what a client meets before it can ask for anything.
type TLS struct {
	// Listener is whose certificate the client gets, or whose endpoint has it. Names are those of the certificate, and
	// Until its end; empty if it is not the gateway's, or could not be read.
	Listener string     `json:"listener,omitempty"`
	Names    []string   `json:"names,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	// Passed: the gateway passes the handshake on, and the endpoint answers it.
	Passed bool `json:"passed,omitempty"`
	// Demand says which certificate the client must have; empty if none.
	Demand string `json:"demand,omitempty"`
	// Refused is why the client cannot ask; empty if it can, as far as is known.
	Refused string `json:"refused,omitempty"`
	// Status is that of the gateway's answer to a client that is refused; 0 if it gets none.
	Status int `json:"status,omitempty"`
	// Alert is that with which the gateway ends the handshake; empty if it does not.
	Alert string `json:"alert,omitempty"`
}

// UnrecognizedName is the alert of a gateway that has no certificate for the server name (RFC 6066, section 3).
const UnrecognizedName = "unrecognized_name"

// tls returns what the client meets at a port; nil if neither speaks TLS, or if the port takes anything.
func (x *explainer) tls(p *table.Port) *TLS {
	withTLS := x.Message.Scheme == "https"
	switch {
	case p.Opening() == table.Raw, !withTLS && !p.TLS():
		return nil
	case !p.TLS():
		x.add("protocol", "use http://, or a port of a listener with the protocol HTTPS", "port %d is served without TLS",
			x.Message.Port)
		return &TLS{Refused: "the port does not speak TLS"}
	case !withTLS:
		x.add("protocol", "use https://", "port %d is served with TLS only", x.Message.Port)
		return &TLS{Status: 400, Refused: "HTTP instead of a TLS handshake"}
	}
	owner, _ := p.Host(x.Message.serverName())
	if owner == nil {
		return &TLS{Refused: noListenerForTLS, Alert: UnrecognizedName}
	}
	t := &TLS{Listener: owner.Name, Passed: owner.Mode == table.Passthrough}
	if t.Passed {
		return t
	}
	t.Refused = x.certificate(t, p)
	if t.Refused == "" {
		t.Refused = x.refusesAll(owner)
	}
	if demand := owner.Demand(new(tls.Config)); demand.ClientAuth >= tls.RequireAnyClientCert {
		t.Demand = "a certificate of an authority that the listener trusts"
	}
	return t
}

// certificate sets what is known of the certificate for the host of the URL, and returns why the client refuses it;
// empty if it does not. Whether it trusts the issuer is not judged.
func (x *explainer) certificate(t *TLS, p *table.Port) (refused string) {
	if x.noSecrets {
		return ""
	}
	owner, certificate := p.Certificate(&tls.ClientHelloInfo{
		ServerName: x.Message.serverName(), SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12},
		SignatureSchemes: []tls.SignatureScheme{
			tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512, tls.Ed25519,
			tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512, tls.PKCS1WithSHA256,
		},
	})
	switch {
	case certificate == nil && owner.Name == ingresses && x.cfg.DefaultCertificate:
		return ""
	case certificate == nil:
		x.add("certificate", x.cureOfCertificate(owner), "%s has no certificate for %s%s",
			owner.Name, x.Message.Name, x.whyNoCertificate(owner))
		t.Alert = UnrecognizedName
		return "there is no certificate"
	case certificate.Leaf == nil:
		return ""
	}
	leaf := certificate.Leaf
	t.Names, t.Until = slices.Clone(leaf.DNSNames), &leaf.NotAfter
	switch {
	case !x.Now.IsZero() && x.Now.After(leaf.NotAfter):
		x.add("certificate", "renew the certificate"+x.secretsOf(owner), "the certificate of %s expired on %s", owner.Name,
			leaf.NotAfter.UTC().Format(clock))
	case !x.Now.IsZero() && x.Now.Before(leaf.NotBefore):
		x.add("certificate", "use another certificate until then"+x.secretsOf(owner),
			"the certificate of %s is not valid before %s", owner.Name, leaf.NotBefore.UTC().Format(clock))
	case leaf.VerifyHostname(x.Message.Name) != nil:
		x.add("certificate", fmt.Sprintf("have a certificate with the name %s issued%s", x.Message.Name, x.secretsOf(owner)),
			"the certificate of %s is for %s, not for %s", owner.Name, few(leaf.DNSNames), x.Message.Name)
	default:
		return ""
	}
	return refusedCertificate
}

// clock is how a time is printed.
const clock = time.DateTime + " UTC"

// secretsOf returns which Secrets have the certificates of a listener, as the end of a cure; empty if none is known.
func (x *explainer) secretsOf(owner *table.Listener) string {
	l := x.listeners[owner.Name]
	if l == nil || l.spec.TLS == nil {
		return ""
	}
	var names []string
	for i := range l.spec.TLS.Certificates {
		ref := &l.spec.TLS.Certificates[i]
		names = append(names, ref.Namespace+"/"+ref.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return " in Secret " + few(names)
}

// cureOfCertificate returns how a listener gets a certificate that has none.
func (x *explainer) cureOfCertificate(owner *table.Listener) string {
	const usual = "name a Secret of type kubernetes.io/tls that exists"
	l := x.listeners[owner.Name]
	if l == nil || l.spec.TLS == nil {
		return usual
	}
	for i := range l.spec.TLS.Certificates {
		ref := &l.spec.TLS.Certificates[i]
		key, ok := ref.Core(cluster.KindSecret)
		granted := slices.ContainsFunc(cluster.GrantsByNamespace.Get(x.view, key.Namespace),
			func(g *cluster.ReferenceGrant) bool {
				return g.Allows(cluster.GroupKind{Group: gatewayGroup, Kind: l.owner.Kind.String()}, l.owner.Key.Namespace, ref)
			})
		switch {
		case !ok:
		case key.Namespace != l.owner.Key.Namespace && !granted:
			return fmt.Sprintf("create a ReferenceGrant in namespace %s from %ss of namespace %s to Secret %s", key.Namespace,
				l.owner.Kind, l.owner.Key.Namespace, key.Name)
		case cluster.Secrets.Get(x.view, key) == nil:
			return fmt.Sprintf("create the Secret, or correct the name: kubectl create secret tls %s --namespace %s --cert "+
				"FILE --key FILE", key.Name, key.Namespace)
		default:
			return fmt.Sprintf("create Secret %s again, with the type kubernetes.io/tls, and a certificate and its key in PEM",
				key)
		}
	}
	return usual
}

// noListenerForTLS is why the gateway ends a handshake for a server name that is no listener's, or for none.
const noListenerForTLS = "no listener has the host, and the gateway ends the TLS handshake"

// EndsHandshake reports whether the gateway ends the TLS handshake as no listener has the host, so that nothing can be
// asked.
func (a *Answer) EndsHandshake() bool {
	return a.Listener == "" && a.TLS != nil && a.TLS.Alert != ""
}

const refusedCertificate = "clients refuse the certificate"

// refusesAll returns why a listener refuses all clients, which it does while it is served and not accepted: it has no
// authority for their certificates. It is empty if it does not.
func (x *explainer) refusesAll(owner *table.Listener) string {
	l := x.listeners[owner.Name]
	if l == nil {
		return ""
	}
	why := l.conflict()
	if why == "" {
		return ""
	}
	x.add("listener-refuses", l.cure(), "%s refuses all clients: %s", l.name(), why)
	return "the listener refuses all clients"
}

// whyNoCertificate returns what is said of a listener's certificates.
func (x *explainer) whyNoCertificate(owner *table.Listener) string {
	l := x.listeners[owner.Name]
	if l == nil || l.verdict == nil {
		return ""
	}
	for _, c := range l.verdict.Conditions {
		if c.Type == "ResolvedRefs" && c.Status != "True" {
			return ": " + c.Message
		}
	}
	return ""
}

// outcome says what a client gets that is refused.
func (t *TLS) outcome() string {
	if t.Status != 0 {
		return fmt.Sprintf("%d from the gateway: %s", t.Status, t.Refused)
	}
	return "no answer: " + t.Refused
}

// stream says where a connection goes that the gateway passes on, whatever is asked on it.
func (x *explainer) stream(a *Answer, p *table.Port) {
	a.Stream = true
	l, rule := p.Stream(x.Message.serverName())
	if rule == nil {
		a.Reason = "no route has the connection"
		x.add("no-host", "attach a route to it", "%s has no route for %s", l.Name, x.Message.Name)
		return
	}
	r := newRule(&table.Route{Rule: rule})
	r.Match = "any connection"
	a.Rules = []Rule{r}
	if rule.Status != 0 {
		a.Reason = string(rule.Reason)
		x.ruleProblem(&r)
		return
	}
	x.backends(a, &r)
}
