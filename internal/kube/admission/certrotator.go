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

// Keeper makes and renews the certificate, and has the API server trust it.
//
// A Secret holds the newest generation and the one before. It is there from the
// start, empty. All replicas read it and any may write it: its resourceVersion
// has one of them win. The CA bundles of the registrations hold the authorities
// of both, and what they held before until nobody serves that any more. A replica
// serves the newest when it has seen the registrations trust it for as long as
// API servers may take to notice, and until then the one before, or what it
// served.
type Keeper struct {
	api     *API
	service Service
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

// NewKeeper makes a Keeper; now tells the time.
func NewKeeper(cfg Config, api *API, now func() time.Time, log *slog.Logger) *Keeper {
	return &Keeper{api: api, service: cfg.Service, life: cfg.CertificateLife, now: now, log: log}
}

// Certificate gives the certificate for a handshake.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if g := k.serving.Load(); g != nil {
		return &g.pair, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Until is when the certificate ends that is served; zero when there is none.
func (k *Keeper) Until() time.Time {
	if g := k.serving.Load(); g != nil {
		return g.until()
	}
	return time.Time{}
}

// Ready says in words what is missing until the API server trusts what is
// served and Namespaces can be read, nothing when all is there; and what else is
// not as it should be.
func (k *Keeper) Ready() (missing, remarks []string) {
	switch until := k.Until(); {
	case until.IsZero():
		missing = append(missing, "there is no certificate yet")
	case !k.now().Before(until):
		missing = append(missing, "the certificate has ended")
	case !k.trusted.Load():
		missing = append(missing, "the CA bundle lacks the certificate's authority")
	case !k.reads.Load():
		missing = append(missing, "Namespaces could not be read yet")
	}
	if problem := k.problem.Load(); problem != nil {
		remarks = append(remarks, *problem)
	}
	return missing, remarks
}

// How often a Keeper looks, and how long API servers may take to notice a
// change of the CA bundle; both are less for certificates of short life.
const (
	lookTime   = 10 * time.Second
	retryTime  = 2 * time.Second // after a failure
	passTime   = 15 * time.Second
	settleTime = 30 * time.Second
)

// Run keeps the certificate until ctx is done, and returns ctx's error.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		wait := min(lookTime, k.life/60)
		if k.look(ctx) != nil {
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
func (k *Keeper) look(ctx context.Context) error {
	pass, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	err := k.Pass(pass)
	before := k.problem.Load()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		text := err.Error()
		k.problem.Store(&text)
		if before == nil || *before != text {
			k.log.Warn("the certificate can't be looked after", "err", err)
		}
	case before != nil:
		k.problem.Store(nil)
		k.log.Info("the certificate is looked after again")
	}
	return err
}

// Pass looks once at what the API server has, and sets right what is not.
// Passes must not be made at once.
func (k *Keeper) Pass(ctx context.Context) error {
	const attempts = 5
	err := errChanged
	for n := 0; n < attempts && errors.Is(err, errChanged); n++ {
		err = k.pass(ctx)
	}
	return err
}

func (k *Keeper) pass(ctx context.Context) error {
	// The registrations are read before the Secret: whoever has changed them had
	// the Secret that is read then, or one before it, so that an older bundle
	// never takes the place of a newer one.
	registered, err := k.api.registrations(ctx, k.service)
	if err != nil {
		return err
	}
	if k.newest != nil && !trust(registered, k.newest) {
		k.newest = nil
	}
	serving := k.serving.Load()
	k.trusted.Store(serving != nil && trust(registered, serving))
	newest, before, err := k.generations(ctx)
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", k.service.Namespace, k.service.Name, err)
	}
	if err := k.register(ctx, registered, k.bundle(registered, newest, before)); err != nil {
		return err
	}
	k.serve(newest, before)
	// Reviews read Namespaces: the right to do so is tried with its own.
	if _, err := k.api.Namespace(ctx, k.service.Namespace); err != nil {
		return fmt.Errorf("namespace %s: %w", k.service.Namespace, err)
	}
	k.reads.Store(true)
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
func (k *Keeper) bundle(registered []*registration, newest, before *generation) []byte {
	made := bytes.Clone(newest.authorityPEM)
	if before != nil {
		made = append(made, before.authorityPEM...)
	}
	if newest.same(k.newest) && k.now().Sub(k.since) >= 2*k.settle() {
		return made
	}
	for _, r := range registered {
		for _, e := range r.entries {
			for _, authority := range authorities(e.bundle, k.now()) {
				if !bytes.Contains(made, authority) {
					made = append(made, authority...)
				}
			}
		}
	}
	return made
}

// settle is how long API servers may take to notice a change of the CA bundle.
func (k *Keeper) settle() time.Duration { return min(settleTime, k.life/20) }

// register has the registrations trust a bundle, and no more.
func (k *Keeper) register(ctx context.Context, registered []*registration, bundle []byte) error {
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
		if err := k.api.setBundle(ctx, r, bundle); err != nil {
			return fmt.Errorf("%s %s: %w", r.resource, r.name, err)
		}
		k.log.Info("CA bundle set", "resource", r.resource, "name", r.name)
	}
	if entries == 0 {
		return fmt.Errorf("no %s or %s %s has a webhook for the Service %s/%s", mutating, validating, k.service.Name, k.service.Namespace, k.service.Name)
	}
	return nil
}

// serve chooses between two generations that the registrations trust.
func (k *Keeper) serve(newest, before *generation) {
	now := k.now()
	if !newest.same(k.newest) {
		k.newest, k.since = newest, now
	}
	next, serving, settle := newest, k.serving.Load(), k.settle()
	lasts := func(g *generation) bool { return g != nil && g.until().Sub(now) > settle }
	switch {
	case now.Sub(k.since) >= settle:
	case lasts(before):
		next = before
	case lasts(serving) && k.trusted.Load():
		next = serving
	}
	if !next.same(serving) {
		k.log.Info("certificate served", "until", next.until().UTC().Format(time.RFC3339))
	}
	k.serving.Store(next)
	k.trusted.Store(true)
}

// The keys of the Secret's data.
const (
	keyAuthority = "ca.crt"
	keyBefore    = "before-" // of the generation before
)

// generations reads both, and renews the newest when it is due. The one before
// is nil when it is of no use any more.
func (k *Keeper) generations(ctx context.Context) (newest, before *generation, err error) {
	secret, err := k.api.secret(ctx, k.service)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, errors.New("it does not exist, and is to be installed with the webhook")
	}
	now, host := k.now(), k.service.host()
	newest, before = k.useful(secret, ""), k.useful(secret, keyBefore)
	if newest != nil && newest.until().Sub(now) > k.life/3 {
		return newest, before, nil
	}
	switch {
	case newest != nil:
		before = newest
	case before == nil: // the Secret is new, or spoilt
		if serving := k.serving.Load(); serving != nil && serving.check(host, now) == nil {
			before = serving
		}
	}
	if newest, err = newGeneration(host, now, k.life); err != nil {
		return nil, nil, err
	}
	put(secret, "", newest)
	put(secret, keyBefore, before)
	if err := k.api.writeSecret(ctx, secret); err != nil {
		return nil, nil, err
	}
	k.log.Info("certificate made", "until", newest.until().UTC().Format(time.RFC3339))
	return newest, before, nil
}

// useful reads the generation whose keys have a prefix; nil when there is none
// that clients would take.
func (k *Keeper) useful(s *corev1.Secret, prefix string) *generation {
	g, err := parseGeneration(s.Data[prefix+keyAuthority], s.Data[prefix+corev1.TLSCertKey], s.Data[prefix+corev1.TLSPrivateKeyKey])
	if err != nil || g.check(k.service.host(), k.now()) != nil {
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
