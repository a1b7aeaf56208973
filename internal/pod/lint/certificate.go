package lint

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/suggest"
)

// secretOfTLS is the type of Secrets with a certificate and its key.
const secretOfTLS = "kubernetes.io/tls"

// certificate checks the Secret that a field names, and returns its certificate; nil if it has none, or if that is
// not known.
func (j *reporter) certificate(field string, key cluster.Key) *x509.Certificate {
	if !j.loaded(cluster.KindSecret) || j.unread(cluster.KindSecret, key.Namespace) {
		return nil
	}
	s := cluster.Secrets.Get(j.View, key)
	if s == nil {
		j.noSecret(field, key)
		return nil
	}
	if s.Type != secretOfTLS {
		j.add(TLSSecretInvalid, field, "create the Secret with this type: kubectl create secret tls",
			"Secret %s is of type %s, not %s", key, s.Type, secretOfTLS)
		return nil
	}
	if !j.Observed && (len(s.Data["tls.crt"]) == 0 || len(s.Data["tls.key"]) == 0) {
		return nil // others may write them
	}
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	switch {
	case err != nil:
		j.add(TLSSecretInvalid, field, "write a certificate and its key to the Secret, as PEM",
			"Secret %s has no key pair in tls.crt and tls.key: %s", key, strings.TrimPrefix(err.Error(), "tls: "))
	case pair.Leaf == nil:
	case !j.Now.IsZero() && j.Now.After(pair.Leaf.NotAfter):
		j.add(TLSSecretInvalid, field, "renew the certificate", "the certificate in Secret %s expired on %s", key,
			pair.Leaf.NotAfter.UTC().Format("2006-01-02"))
	default:
		return pair.Leaf
	}
	return nil
}

// noSecret reports a Secret that does not exist, unless it may be in manifests that were not read.
func (j *reporter) noSecret(field string, key cluster.Key) {
	var names []string
	for s := range cluster.Secrets.All(j.View) {
		if s.Namespace == key.Namespace {
			names = append(names, s.Name)
		}
	}
	j.missing(TLSSecretMissing, field, "Secret", key, names, "there is no certificate for it")
}

// missing reports an object that does not exist, unless it may be in manifests that were not read. names are the
// objects of its kind in its namespace, and so is what comes of it.
func (j *reporter) missing(rule, field, kind string, key cluster.Key, names []string, so string) {
	slices.Sort(names)
	near := suggest.Closest(key.Name, names[:min(len(names), mostHints)])
	if near == "" && !j.Observed {
		return
	}
	fix := "create the " + kind + ", or correct the name"
	if near != "" {
		fix = "write " + near + ", or create the " + kind
	}
	j.add(rule, field, fix, "%s %s does not exist%s: %s", kind, key, didYouMean(near), so)
}

// authorities checks that the ConfigMaps exist which have the authorities for the certificates of clients.
func (j *reporter) authorities(field string, v *cluster.ClientValidation) {
	if v == nil || !j.loaded(cluster.KindConfigMap) {
		return
	}
	for i := range v.Authorities {
		ref := &v.Authorities[i]
		in := field + ".caCertificateRefs" + at(i)
		key, isConfigMap := ref.Core(cluster.KindConfigMap)
		if isConfigMap && !j.unread(cluster.KindConfigMap, key.Namespace) && !j.notGranted(in, ref) &&
			cluster.ConfigMaps.Get(j.View, key) == nil {
			j.noConfigMap(in+".name", key)
		}
	}
}

// noConfigMap reports a ConfigMap that does not exist, unless it may be in manifests that were not read.
func (j *reporter) noConfigMap(field string, key cluster.Key) {
	var names []string
	for m := range cluster.ConfigMaps.All(j.View) {
		if m.Namespace == key.Namespace {
			names = append(names, m.Name)
		}
	}
	j.missing(TLSAuthorityMissing, field, "ConfigMap", key, names,
		"clients with certificates of its authorities are refused, all if it is the only one")
}

// certificateFor checks that a certificate, which may be nil, has the names of hosts. A wildcard stands for one
// label, and an empty host for any.
func (j *reporter) certificateFor(field string, of *x509.Certificate, hosts ...string) {
	if of == nil {
		return
	}
	lacks := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return covered(host, of) })
	if len(lacks) > 0 {
		j.add(TLSCertificateNames, field, "use a certificate with "+firstFew(lacks),
			"the certificate is for %s, not for %s", cmp.Or(firstFew(of.DNSNames), "no name"), firstFew(lacks))
	}
}

// covered reports whether a certificate has a host.
func covered(host string, of ...*x509.Certificate) bool {
	if above, wild := strings.CutPrefix(host, "*."); wild {
		host = "label." + above // which only a wildcard has
	}
	return host == "" || slices.ContainsFunc(of, func(c *x509.Certificate) bool { return c.VerifyHostname(host) == nil })
}
