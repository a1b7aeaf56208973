package compile

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// certificates are the key pairs of Secrets, and those that listeners have.
type certificates struct {
	pairs map[cluster.Key]*keyPair
	// of are those of the listeners that terminate TLS, by name.
	of map[string]*certified
	// hosts are those of Ingresses, by host.
	hosts map[string]map[cluster.Key]hostCertificate
	// clients are those that Gateways show to backends, of Gateways that name one.
	clients map[cluster.Key]*clientCertificate
}

// keyPair is the certificate of a Secret.
type keyPair struct {
	secret *cluster.Secret
	// certificate is the last one that the Secret had; nil if it had none.
	certificate *tls.Certificate
	// problem is why the Secret has none now; nil if it has one.
	problem error
	// unstapled is why the Secret's OCSP response is not used; empty if it is, or there is none.
	unstapled string
}

// certified is the certificates of a listener.
type certified struct {
	certificates []*tls.Certificate
	// refs is the condition ResolvedRefs if a reference does not lead to a key pair, or with something to say; nil if all
	// is well.
	refs *cluster.Condition
	// unread: a Secret is not read yet.
	unread bool
}

// hostCertificate is the certificate that an Ingress has for a host.
type hostCertificate struct {
	age         cluster.Age
	certificate *tls.Certificate
}

func newCertificates() certificates {
	return certificates{
		make(map[cluster.Key]*keyPair), make(map[string]*certified), make(map[string]map[cluster.Key]hostCertificate),
		make(map[cluster.Key]*clientCertificate),
	}
}

// errNoSecret: the Secret does not exist. errUnread: it may exist, it is not read yet.
var (
	errNoSecret = errors.New("does not exist")
	errUnread   = errors.New("is not read yet")
)

// pair returns the certificate of a Secret. A Secret that was changed into one without a key pair keeps the
// certificate that it had: problem says so. One that is deleted does not.
func (c *certificates) pair(v *cluster.View, key cluster.Key) (certificate *tls.Certificate, problem error) {
	secret := cluster.Secrets.Get(v, key)
	if secret == nil {
		delete(c.pairs, key)
		if v.Freshness(cluster.KindSecret) != cluster.Live {
			return nil, errUnread
		}
		return nil, errNoSecret
	}
	was := c.pairs[key]
	if was == nil || was.secret != secret {
		pair := &keyPair{secret: secret}
		if pair.certificate, pair.problem = parsePair(secret); pair.problem != nil && was != nil {
			pair.certificate = was.certificate
		} else if pair.problem == nil {
			pair.staple()
		}
		c.pairs[key], was = pair, pair
	}
	if was.problem != nil && was.certificate != nil {
		return was.certificate, fmt.Errorf("%w; the certificate that it had is still served", was.problem)
	}
	return was.certificate, was.problem
}

// forget drops the certificates of Secrets that do not exist any more.
func (c *certificates) forget(v *cluster.View) {
	for key := range c.pairs {
		if cluster.Secrets.Get(v, key) == nil {
			delete(c.pairs, key)
		}
	}
}

// list returns the certificates of a listener.
func (c *certificates) list(listener string) []*tls.Certificate {
	if of := c.of[listener]; of != nil {
		return of.certificates
	}
	return nil
}

// parsePair returns the key pair of a Secret.
func parsePair(s *cluster.Secret) (*tls.Certificate, error) {
	const of = "kubernetes.io/tls"
	if s.Type != of {
		return nil, fmt.Errorf("is of type %q, not %s", s.Type, of)
	}
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		return nil, fmt.Errorf("has no key pair in tls.crt and tls.key: %s", strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// terminates reports whether a listener terminates TLS.
func (l *listener) terminates() bool {
	return l.opening() == table.Handshake && (l.spec.TLS == nil || l.spec.TLS.Mode != cluster.TLSPassthrough)
}

// certify returns the certificates of a listener. While one of its Secrets is not read, it has those that it
// had, unless it may not use one of them.
func (c *certificates) certify(v *cluster.View, l *listener) *certified {
	made := new(certified)
	if l.spec.TLS == nil {
		return made
	}
	unread, refused, unstapled := false, false, ""
	for i := range l.spec.TLS.Certificates {
		ref := &l.spec.TLS.Certificates[i]
		key, isSecret := ref.Core(cluster.KindSecret)
		switch {
		case !isSecret:
			made.lack("InvalidCertificateRef", "certificate %s is not a Secret, but of kind %s", ref.Name, kindText(ref))
			continue
		case !l.mayUse(v, ref):
			made.lack("RefNotPermitted", "no ReferenceGrant in namespace %s allows %ss of namespace %s to refer to Secret %s",
				ref.Namespace, l.owner.Kind, l.owner.Key.Namespace, ref.Name)
			refused = true
			continue
		}
		pair, err := c.pair(v, key)
		if err != nil {
			made.lack("InvalidCertificateRef", "Secret %s %s", key, err)
		}
		if pair != nil {
			made.certificates = append(made.certificates, pair)
		}
		unread = unread || errors.Is(err, errUnread)
		if has := c.pairs[key]; has != nil && has.unstapled != "" {
			unstapled = fmt.Sprintf("Secret %s: tls.ocsp-staple is not used: %s", key, has.unstapled)
		}
	}
	if unstapled != "" && made.refs == nil {
		made.refs = new(yes(resolvedRefs, "ResolvedRefs", unstapled))
	}
	if made.unread = unread; unread && !refused {
		made.refs = &cluster.Condition{Type: resolvedRefs, Status: "Unknown", Reason: "Pending", Message: made.refs.Message}
		if was := c.of[l.name()]; was != nil {
			made.certificates = was.certificates
		}
	}
	return made
}

// kindText returns the kind that a reference is to, for people.
func kindText(ref *cluster.ObjectRef) string {
	if ref.Group == "" {
		return ref.Kind
	}
	return ref.Kind + " of group " + ref.Group
}

// lacking reports whether a listener that needs certificates has none; one that needs none is nil.
func (c *certified) lacking() bool { return c != nil && len(c.certificates) == 0 }

// expires returns when the first certificate expires; zero without any.
func (c *certified) expires() (first time.Time) {
	for _, has := range c.certificates {
		if leaf := has.Leaf; leaf != nil && (first.IsZero() || leaf.NotAfter.Before(first)) {
			first = leaf.NotAfter
		}
	}
	return first
}

// lack keeps the first reason why a reference does not lead to a key pair.
func (c *certified) lack(reason, format string, args ...any) {
	if c.refs == nil {
		c.refs = new(no(resolvedRefs, reason, fmt.Sprintf(format, args...)))
	}
}

// mayUse reports whether a listener may refer to a Secret.
func (l *listener) mayUse(v *cluster.View, ref *cluster.ObjectRef) bool {
	from := cluster.GroupKind{Group: gatewayGroup, Kind: l.owner.Kind.String()}
	return ref.Namespace == l.owner.Key.Namespace || granted(v, from, l.owner.Key.Namespace, ref)
}

// certifyAll finds the certificates of all listeners, and adds those that have others than before.
func (c *Compiler) certifyAll(v *cluster.View, d *dirty) {
	was := c.certificates.of
	c.certificates.of = make(map[string]*certified)
	maps.DeleteFunc(c.certificates.clients, func(gw cluster.Key, _ *clientCertificate) bool {
		return c.gateways.holders[cluster.Ref{Kind: cluster.KindGateway, Key: gw}] == nil
	})
	for ref := range c.gateways.holders {
		for _, l := range c.gateways.holders[ref].listeners {
			if before := was[l.name()]; before != nil {
				c.certificates.of[l.name()] = before
			}
		}
		c.certifyHolder(v, ref, d, func(*listener) bool { return true })
	}
}

// certifyHolder finds the certificates of some listeners of a Gateway or ListenerSet.
func (c *Compiler) certifyHolder(v *cluster.View, of cluster.Ref, d *dirty, some func(*listener) bool) {
	h := c.gateways.holders[of]
	if h == nil {
		return
	}
	for _, l := range h.listeners {
		if !some(l) {
			continue
		}
		if !l.terminates() {
			delete(c.certificates.of, l.name())
			continue
		}
		made := c.certificates.certify(v, l)
		was := c.certificates.of[l.name()]
		if was == nil || !slices.Equal(was.certificates, made.certificates) {
			d.listeners[l.name()] = struct{}{}
			d.holders(of, h, h)
		} else if !reflect.DeepEqual(was.refs, made.refs) {
			d.verdicts[of] = struct{}{}
		}
		c.certificates.of[l.name()] = made
	}
	c.putClientCertificate(v, h, d)
}

// secretChanged finds the certificates of what refers to a Secret.
func (c *Compiler) secretChanged(v *cluster.View, ref cluster.Ref, d *dirty) {
	if cluster.Secrets.Get(v, ref.Key) == nil {
		delete(c.certificates.pairs, ref.Key)
	}
	refers := func(l *listener) bool {
		return l.refers(func(r *cluster.ObjectRef) bool { return r.Namespace == ref.Key.Namespace && r.Name == ref.Key.Name })
	}
	for _, gw := range cluster.GatewaysByReference.Get(v, ref) {
		c.certifyHolder(v, gw.Ref(), d, refers)
	}
	for _, set := range cluster.ListenerSetsByReference.Get(v, ref) {
		c.certifyHolder(v, set.Ref(), d, refers)
	}
	for _, i := range cluster.IngressesByReference.Get(v, ref) {
		d.ingresses[i.Key] = struct{}{}
	}
	for _, p := range cluster.RoutePoliciesByReference.Get(v, ref) {
		c.routePolicyChanged(v, p.Key, d)
	}
}

// grantChanged finds the certificates of listeners that refer to a namespace from others.
func (c *Compiler) grantChanged(v *cluster.View, namespace string, d *dirty) {
	for of := range c.gateways.holders {
		if of.Key.Namespace != namespace {
			c.certifyHolder(v, of, d, func(l *listener) bool {
				return l.refers(func(r *cluster.ObjectRef) bool { return r.Namespace == namespace })
			})
		}
	}
}

// refers reports whether a listener refers to some certificate.
func (l *listener) refers(some func(*cluster.ObjectRef) bool) bool {
	if !l.terminates() || l.spec.TLS == nil {
		return false
	}
	for i := range l.spec.TLS.Certificates {
		if some(&l.spec.TLS.Certificates[i]) {
			return true
		}
	}
	return false
}

// secretsRead finds the certificates of what waits for Secrets that are not read.
func (c *Compiler) secretsRead(v *cluster.View, d *dirty) {
	for of := range c.gateways.holders {
		c.certifyHolder(v, of, d, func(l *listener) bool {
			has := c.certificates.of[l.name()]
			return has != nil && has.unread
		})
	}
	for key, i := range c.ingresses {
		if i.unread {
			d.ingresses[key] = struct{}{}
		}
	}
}

// certifyIngress finds the certificates that an Ingress has for hosts (IngressSpec.tls). Before is the Ingress
// as it was, nil if it was not ours.
func (c *Compiler) certifyIngress(v *cluster.View, f *cluster.Frontend, made, before *ingress) {
	for i := range f.Ingress.TLS {
		t := &f.Ingress.TLS[i]
		problem := func(field, format string, args ...any) {
			at := fmt.Sprintf("spec.tls[%d].%s", i, field)
			made.Problems = append(made.Problems, Problem{at, fmt.Sprintf(format, args...)})
		}
		if t.Secret == "" {
			if !c.cfg.DefaultCertificate {
				problem("secretName", "is empty, and the gateway has no default certificate")
			}
			continue
		}
		key := cluster.Key{Namespace: f.Namespace, Name: t.Secret}
		pair, err := c.certificates.pair(v, key)
		unread := errors.Is(err, errUnread)
		made.unread = made.unread || unread
		if err != nil && !unread {
			problem("secretName", "Secret %s %s", key, err)
		}
		for _, host := range tlsHosts(f.Ingress, t) {
			if !servesHost(f.Ingress, host) {
				problem("hosts", "no rule has the host %s", host)
				continue
			}
			if unread && before != nil {
				pair = before.certificates[host]
			}
			if _, taken := made.certificates[host]; pair != nil && !taken {
				made.certificates[host] = pair
			}
		}
	}
}

// tlsHosts returns the hosts of an element of tls: without any, those of the rules.
func tlsHosts(i *cluster.IngressSpec, t *cluster.IngressTLS) (all []string) {
	if len(t.Hosts) > 0 {
		return t.Hosts
	}
	for n := range i.Rules {
		all = append(all, i.Rules[n].Host)
	}
	return all
}

// servesHost reports whether an Ingress serves requests for a host of tls.
func servesHost(i *cluster.IngressSpec, host string) bool {
	return i.Default != nil || slices.ContainsFunc(i.Rules, func(r cluster.IngressRule) bool {
		return r.Host == "" || r.Host == host || coversLabel(r.Host, host) || coversLabel(host, r.Host)
	})
}

// coversLabel reports whether a wildcard, whose star is one label, stands for a host (IngressRule.host).
func coversLabel(wildcard, host string) bool {
	above, ok := strings.CutPrefix(wildcard, "*.")
	_, rest, _ := strings.Cut(host, ".")
	return ok && rest == above
}

// putHostCertificates replaces the certificates that an Ingress has for hosts.
func (c *Compiler) putHostCertificates(key cluster.Key, was, made *ingress, d *dirty) {
	hosts := c.certificates.hosts
	if was != nil {
		for host := range was.certificates {
			if delete(hosts[host], key); len(hosts[host]) == 0 {
				delete(hosts, host)
			}
			d.serverNames[host] = struct{}{}
		}
	}
	if made != nil {
		for host, certificate := range made.certificates {
			if hosts[host] == nil {
				hosts[host] = make(map[cluster.Key]hostCertificate)
			}
			hosts[host][key] = hostCertificate{made.age, certificate}
			d.serverNames[host] = struct{}{}
		}
	}
}

// host returns the certificate of a host: that of the oldest Ingress; nil if there is none.
func (c *certificates) host(name string) *tls.Certificate {
	of := c.hosts[name]
	keys := slices.SortedFunc(maps.Keys(of), func(a, b cluster.Key) int {
		return cmp.Or(of[a].age.Compare(of[b].age), alphabetical(a, b))
	})
	if len(keys) == 0 {
		return nil
	}
	return of[keys[0]].certificate
}

// withHostCertificates returns the listener of Ingresses with the certificates that it is to have.
func (c *Compiler) withHostCertificates(l *table.Listener, d *dirty) *table.Listener {
	differ := make(map[string]*tls.Certificate)
	if c.listeners[ingresses] == nil { // it has none
		for host := range c.certificates.hosts {
			differ[host] = c.certificates.host(host)
		}
	} else {
		for host := range d.serverNames {
			differ[host] = c.certificates.host(host)
		}
	}
	return l.WithHostCertificates(differ)
}

// findOverlaps has listeners say that they terminate TLS for names of which another one at the socket is for
// some, with certificates of its own (ListenerConditionOverlappingTLSConfig).
func findOverlaps(order []*holder) {
	at := make(map[table.Socket]map[string]*listener)
	for l := range terminating(order) {
		for _, s := range l.sockets {
			if at[s] == nil {
				at[s] = make(map[string]*listener)
			}
			at[s][l.spec.Hostname] = l
		}
	}
	with := make(map[*listener]*listener) // the first
	for l := range terminating(order) {
		for _, s := range l.sockets {
			for wildcard := range wildcardsAbove(l.spec.Hostname) {
				if other := at[s][wildcard]; other != nil {
					with[l], with[other] = cmp.Or(with[l], other), cmp.Or(with[other], l)
				}
			}
		}
	}
	for l := range terminating(order) {
		if other := with[l]; other != nil {
			l.conditions = append(l.conditions, yes(
				overlappingTLSConfig, "OverlappingHostnames", "the hostname overlaps with that of "+other.name(),
			))
		}
	}
}

// terminating yields the listeners that serve and terminate TLS.
func terminating(order []*holder) iter.Seq[*listener] {
	return func(yield func(*listener) bool) {
		for _, h := range order {
			for _, l := range h.listeners {
				if l.valid && l.terminates() && !yield(l) {
					return
				}
			}
		}
	}
}

// wildcardsAbove yields the hostnames that stand for all that another one stands for, and more: the nearest
// wildcard first, and "" last.
func wildcardsAbove(hostname string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if hostname == "" {
			return
		}
		for rest := strings.TrimPrefix(hostname, "*."); ; {
			_, above, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if !yield("*." + above) {
				return
			}
			rest = above
		}
		yield("")
	}
}
