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

// CertificateRotator makes and renews the certificate, and has the API server trust it.
//
// A Secret holds the newest generation and the one before. It is there from the
// start, empty. All replicas read it and any may write it: its resourceVersion
// has one of them win. The CA bundles of the registrations hold the authorities
// of both, and what they held before until nobody serves that any more. A replica
// serves the newest when it has seen the registrations trust it for as long as
// API servers may take to notice, and until then the one before, or what it
// served.
type CertificateRotator struct {
	api     *API
	service ServiceName
	life    time.Duration
	now     func() time.Time
	log     *slog.Logger

	serving atomic.Pointer[generation]
	trusted atomic.Bool            // whether the registrations trust what is served, as last seen
	reads   atomic.Bool            // whether Namespaces could be read once
	problem atomic.Pointer[string] // why the last pass failed; nil if it did not

	newest *generation // that the registrations were seen to trust
	since  time.Time   // from when on
}

// NewCertificateRotator makes a CertificateRotator; now tells the time.
func NewCertificateRotator(cfg Config, api *API, now func() time.Time, log *slog.Logger) *CertificateRotator {
	return &CertificateRotator{api: api, service: cfg.Service, life: cfg.CertificateLife, now: now, log: log}
}

// Certificate gives the certificate for a handshake.
func (c *CertificateRotator) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if g := c.serving.Load(); g != nil {
		return &g.pair, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Until is when the certificate ends that is served; zero when there is none.
func (c *CertificateRotator) Until() time.Time {
	if g := c.serving.Load(); g != nil {
		return g.until()
	}
	return time.Time{}
}

// Ready says in words what is missing until the API server trusts what is
// served and Namespaces can be read, nothing when all is there; and what else is
// not as it should be.
func (c *CertificateRotator) Ready() (missing, remarks []string) {
	switch until := c.Until(); {
	case until.IsZero():
		missing = append(missing, "there is no certificate yet")
	case !c.now().Before(until):
		missing = append(missing, "the certificate has ended")
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

// How often a CertificateRotator looks, and how long API servers may take to notice a
// change of the CA bundle; both are less for certificates of short life.
const (
	lookTime   = 10 * time.Second
	retryTime  = 2 * time.Second // after a failure
	passTime   = 15 * time.Second
	settleTime = 30 * time.Second
)

// Run keeps the certificate until ctx is done, and returns ctx's error.
func (c *CertificateRotator) Run(ctx context.Context) error {
	for {
		wait := min(lookTime, c.life/60)
		if c.look(ctx) != nil {
			wait = min(wait, retryTime)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// look is Pass, with what came of it noted, and logged when it is new.
func (c *CertificateRotator) look(ctx context.Context) error {
	pass, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	err := c.Pass(pass)
	before := c.problem.Load()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		text := err.Error()
		c.problem.Store(&text)
		if before == nil || *before != text {
			c.log.Warn("the certificate can't be looked after", "err", err)
		}
	case before != nil:
		c.problem.Store(nil)
		c.log.Info("the certificate is looked after again")
	}
	return err
}

// Pass looks once at what the API server has, and sets right what is not.
// Passes must not be made at once.
func (c *CertificateRotator) Pass(ctx context.Context) error {
	const attempts = 5
	err := errChanged
	for n := 0; n < attempts && errors.Is(err, errChanged); n++ {
		err = c.pass(ctx)
	}
	return err
}

func (c *CertificateRotator) pass(ctx context.Context) error {
	// The registrations are read before the Secret: whoever has changed them had
	// the Secret that is read then, or one before it, so that an older bundle
	// never takes the place of a newer one.
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
	// Reviews read Namespaces: the right to do so is tried with its own.
	if _, err := c.api.Namespace(ctx, c.service.Namespace); err != nil {
		return fmt.Errorf("namespace %s: %w", c.service.Namespace, err)
	}
	c.reads.Store(true)
	return nil
}

// trust tells whether there are registrations, and all trust a generation.
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

// bundle holds the authorities of both generations; before may be nil. What the
// registrations trust besides stays until all replicas serve the newest: each has
// looked within a settling time, and settled within another.
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

// settle is how long API servers may take to notice a change of the CA bundle.
func (c *CertificateRotator) settle() time.Duration { return min(settleTime, c.life/20) }

// register has the registrations trust a bundle, and no more.
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
		return fmt.Errorf("no %s or %s %s has a webhook for the Service %s/%s", mutating, validating, c.service.Name, c.service.Namespace, c.service.Name)
	}
	return nil
}

// serve chooses between two generations that the registrations trust.
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
	keyBefore    = "before-" // of the generation before
)

// generations reads both, and renews the newest when it is due. The one before
// is nil when it is of no use any more.
func (c *CertificateRotator) generations(ctx context.Context) (newest, before *generation, err error) {
	secret, err := c.api.secret(ctx, c.service)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, errors.New("it does not exist, and is to be installed with the webhook")
	}
	now, host := c.now(), c.service.host()
	newest, before = c.useful(secret, ""), c.useful(secret, keyBefore)
	if newest != nil && newest.until().Sub(now) > c.life/3 {
		return newest, before, nil
	}
	switch {
	case newest != nil:
		before = newest
	case before == nil: // the Secret is new, or spoilt
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

// useful reads the generation whose keys have a prefix; nil when there is none
// that clients would take.
func (c *CertificateRotator) useful(s *corev1.Secret, prefix string) *generation {
	g, err := parseGeneration(s.Data[prefix+keyAuthority], s.Data[prefix+corev1.TLSCertKey], s.Data[prefix+corev1.TLSPrivateKeyKey])
	if err != nil || g.check(c.service.host(), c.now()) != nil {
		return nil
	}
	return g
}

// put puts a generation into a Secret, or takes away what is there when it is
// nil.
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
	s.Data[prefix+keyAuthority], s.Data[prefix+corev1.TLSCertKey], s.Data[prefix+corev1.TLSPrivateKeyKey] = g.authorityPEM, g.certificatePEM, g.keyPEM
}
