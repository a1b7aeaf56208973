package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// CertificateRotator issues and renews the certificate and makes the API server trust
// it.
//
// A Secret, installed empty, holds the newest generation and the previous one. All
// replicas read it and any may write it; of concurrent writes only one succeeds, by
// resourceVersion. The CA bundles of the registrations hold the authorities of both
// generations, and older ones until no replica serves them any more. A replica serves
// the newest generation when the registrations have trusted it for as long as API
// servers may take to notice; until then it serves the previous one, or the one that it
// served before.
type CertificateRotator struct {
	api     *API
	service ServiceName
	life    time.Duration
	now     func() time.Time
	log     *slog.Logger

	serving atomic.Pointer[generation]
	trusted atomic.Bool            // the registrations, as last read, trust the served generation
	reads   atomic.Bool            // a Namespace was read successfully
	problem atomic.Pointer[string] // why the last pass failed; nil if it succeeded

	newest *generation // that the registrations trust
	since  time.Time   // since when newest is trusted
}

// NewCertificateRotator returns a CertificateRotator; now returns the time.
func NewCertificateRotator(cfg Config, api *API, now func() time.Time, log *slog.Logger) *CertificateRotator {
	return &CertificateRotator{api: api, service: cfg.Service, life: cfg.CertificateLife, now: now, log: log}
}

// Certificate returns the certificate for a TLS handshake.
func (c *CertificateRotator) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if g := c.serving.Load(); g != nil {
		return &g.pair, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Until returns when the served certificate expires; zero if there is none.
func (c *CertificateRotator) Until() time.Time {
	if g := c.serving.Load(); g != nil {
		return g.until()
	}
	return time.Time{}
}

// Ready returns, in words, what is missing until the API server trusts the served
// certificate and Namespaces can be read, and other problems as remarks.
func (c *CertificateRotator) Ready() (missing, remarks []string) {
	switch until := c.Until(); {
	case until.IsZero():
		missing = append(missing, "there is no certificate yet")
	case !c.now().Before(until):
		missing = append(missing, "the certificate has expired")
	case !c.trusted.Load():
		missing = append(missing, "the CA bundle lacks the certificate's authority")
	case !c.reads.Load():
		missing = append(missing, "Namespaces could not be read yet")
	}
	if problem := c.problem.Load(); problem != nil {
		remarks = append(remarks, *problem)
	}
	return missing, remarks
}

// Intervals of a CertificateRotator; the first and the last are shorter for
// certificates of short life.
const (
	passInterval  = 10 * time.Second
	retryInterval = 2 * time.Second  // after a failure
	passTimeout   = 15 * time.Second // of one pass
	settleTime    = 30 * time.Second // that API servers may take to notice a change of the CA bundle
)

// Run maintains the certificate until ctx is done, and returns ctx's error.
func (c *CertificateRotator) Run(ctx context.Context) error {
	for {
		wait := min(passInterval, c.life/60)
		if c.tryPass(ctx) != nil {
			wait = min(wait, retryInterval)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// tryPass is Pass; it also records the result, and logs it when it changes.
func (c *CertificateRotator) tryPass(ctx context.Context) error {
	pass, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	err := c.Pass(pass)
	before := c.problem.Load()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		text := err.Error()
		c.problem.Store(&text)
		if before == nil || *before != text {
			c.log.Warn("certificate rotation failed, will retry", "err", err)
		}
	case before != nil:
		c.problem.Store(nil)
		c.log.Info("certificate rotation works again")
	}
	return err
}

// Pass compares the Secret and the registrations with what they should be, once, and
// corrects them. It must not be called concurrently.
func (c *CertificateRotator) Pass(ctx context.Context) error {
	const attempts = 5
	err := errChanged
	for n := 0; n < attempts && errors.Is(err, errChanged); n++ {
		err = c.pass(ctx)
	}
	return err
}

func (c *CertificateRotator) pass(ctx context.Context) error {
	// Read the registrations before the Secret: the replica that changed them last had
	// this Secret or an older one, so that an older bundle never replaces a newer one.
	registered, err := c.api.registrations(ctx, c.service)
	if err != nil {
		return err
	}
	if c.newest != nil && !trust(registered, c.newest) {
		c.newest = nil
	}
	serving := c.serving.Load()
	c.trusted.Store(serving != nil && trust(registered, serving))
	newest, before, err := c.generations(ctx)
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", c.service.Namespace, c.service.Name, err)
	}
	if err := c.register(ctx, registered, c.bundle(registered, newest, before)); err != nil {
		return err
	}
	c.serve(newest, before)
	// Reviews read Namespaces: check the permission with the webhook's own Namespace.
	if _, err := c.api.Namespace(ctx, c.service.Namespace); err != nil {
		return fmt.Errorf("namespace %s: %w", c.service.Namespace, err)
	}
	c.reads.Store(true)
	return nil
}

// trust reports whether there are registrations and all of them trust a generation.
func trust(registered []*registration, g *generation) bool {
	entries := 0
	for _, r := range registered {
		for _, e := range r.entries {
			if entries++; !bytes.Contains(e.bundle, g.authorityPEM) {
				return false
			}
		}
	}
	return entries > 0
}

// bundle returns the authorities of both generations; before may be nil. Others that
// the registrations trust stay until all replicas serve the newest generation: each
// passes within one settle time and switches within another.
func (c *CertificateRotator) bundle(registered []*registration, newest, before *generation) []byte {
	made := bytes.Clone(newest.authorityPEM)
	if before != nil {
		made = append(made, before.authorityPEM...)
	}
	if newest.same(c.newest) && c.now().Sub(c.since) >= 2*c.settle() {
		return made
	}
	for _, r := range registered {
		for _, e := range r.entries {
			for _, authority := range authorities(e.bundle, c.now()) {
				if !bytes.Contains(made, authority) {
					made = append(made, authority...)
				}
			}
		}
	}
	return made
}

// settle returns how long API servers may take to notice a change of the CA bundle.
func (c *CertificateRotator) settle() time.Duration { return min(settleTime, c.life/20) }

// register sets the CA bundle of the registrations that have another one.
func (c *CertificateRotator) register(ctx context.Context, registered []*registration, bundle []byte) error {
	entries := 0
	for _, r := range registered {
		entries += len(r.entries)
		right := true
		for _, e := range r.entries {
			right = right && bytes.Equal(e.bundle, bundle)
		}
		if right {
			continue
		}
		if err := c.api.setBundle(ctx, r, bundle); err != nil {
			return fmt.Errorf("%s %s: %w", r.resource, r.name, err)
		}
		c.log.Info("CA bundle set", "resource", r.resource, "name", r.name)
	}
	if entries == 0 {
		return fmt.Errorf("no %s or %s %s has a webhook for the Service %s/%s", mutating, validating, c.service.Name,
			c.service.Namespace, c.service.Name)
	}
	return nil
}

// serve selects one of two generations that the registrations trust.
func (c *CertificateRotator) serve(newest, before *generation) {
	now := c.now()
	if !newest.same(c.newest) {
		c.newest, c.since = newest, now
	}
	next, serving, settle := newest, c.serving.Load(), c.settle()
	lasts := func(g *generation) bool { return g != nil && g.until().Sub(now) > settle }
	switch {
	case now.Sub(c.since) >= settle:
	case lasts(before):
		next = before
	case lasts(serving) && c.trusted.Load():
		next = serving
	}
	if !next.same(serving) {
		c.log.Info("certificate served", "until", next.until().UTC().Format(time.RFC3339))
	}
	c.serving.Store(next)
	c.trusted.Store(true)
}

// The keys of the Secret's data.
const (
	keyAuthority = "ca.crt"
	keyBefore    = "before-" // prefix for the previous generation
)

// generations reads both generations and renews the newest when it is due. The previous
// one is nil if it is not usable any more.
func (c *CertificateRotator) generations(ctx context.Context) (newest, before *generation, err error) {
	secret, err := c.api.secret(ctx, c.service)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, errors.New("it does not exist; install it with the webhook")
	}
	now, host := c.now(), c.service.host()
	newest, before = c.usable(secret, ""), c.usable(secret, keyBefore)
	if newest != nil && newest.until().Sub(now) > c.life/3 {
		return newest, before, nil
	}
	switch {
	case newest != nil:
		before = newest
	case before == nil: // the Secret is new or corrupt
		if serving := c.serving.Load(); serving != nil && serving.check(host, now) == nil {
			before = serving
		}
	}
	if newest, err = newGeneration(host, now, c.life); err != nil {
		return nil, nil, err
	}
	put(secret, "", newest)
	put(secret, keyBefore, before)
	if err := c.api.writeSecret(ctx, secret); err != nil {
		return nil, nil, err
	}
	c.log.Info("certificate made", "until", newest.until().UTC().Format(time.RFC3339))
	return newest, before, nil
}

// usable returns the generation whose keys have a prefix; nil if there is none that
// clients would accept.
func (c *CertificateRotator) usable(s *corev1.Secret, prefix string) *generation {
	g, err := parseGeneration(s.Data[prefix+keyAuthority], s.Data[prefix+corev1.TLSCertKey],
		s.Data[prefix+corev1.TLSPrivateKeyKey])
	if err != nil || g.check(c.service.host(), c.now()) != nil {
		return nil
	}
	return g
}

// put stores a generation in a Secret; nil removes the one that is there.
func put(s *corev1.Secret, prefix string, g *generation) {
	if s.Data == nil {
		s.Data = make(map[string][]byte)
	}
	if g == nil {
		for _, key := range []string{keyAuthority, corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			delete(s.Data, prefix+key)
		}
		return
	}
	s.Data[prefix+keyAuthority] = g.authorityPEM
	s.Data[prefix+corev1.TLSCertKey] = g.certificatePEM
	s.Data[prefix+corev1.TLSPrivateKeyKey] = g.keyPEM
}
