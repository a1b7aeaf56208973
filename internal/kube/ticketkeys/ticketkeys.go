// Package ticketkeys keeps the keys of TLS session tickets that several gateways share in a Secret (RFC 5077,
// section 5.5).
//
// The Secret is installed empty. Each of the gateways reads it, and the first to see that the newest key is old adds
// another one and removes those that no ticket needs any more; of concurrent writes only one succeeds, by
// resourceVersion. A key encrypts tickets when all gateways have had the time to read it. While the API is away, all
// keep the keys that they have.
package ticketkeys

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/internal/kube/api"
)

// Times of keys.
const (
	rotation = 8 * time.Hour  // how long a key is the newest
	kept     = 24 * time.Hour // how long tickets can be decrypted with a key that is not the newest any more
	interval = time.Minute    // between two readings
	retrying = 5 * time.Second
	settling = 2 * interval // after which all have read a key
	patience = 5 * time.Second
)

// most is how many keys there are at most: each ticket is compared with all.
const most = 16

// prefix begins the names of the Secret's data: the rest is when the key was made, in seconds since 1970.
const prefix = "key-"

// size is that of a key, in octets.
const size = 32

// Keeper reads and rotates the keys. It needs the rights to get and to update the Secret.
type Keeper struct {
	namespace, name string
	client          func() (rest.Interface, error)
	now             func() time.Time
	log             *slog.Logger
}

// New returns a Keeper of a Secret. It makes a client when it runs; now returns the time.
func New(client api.ClientConfig, namespace, name string, now func() time.Time, log *slog.Logger) *Keeper {
	client.Timeout = patience
	return &Keeper{namespace, name, func() (rest.Interface, error) { return api.NewRESTClient(client) }, now, log}
}

// Run calls set with the keys when they are read and when they change, that which encrypts first, until ctx is done. It
// returns ctx's error, or why there can be no client.
func (k *Keeper) Run(ctx context.Context, set func(keys [][size]byte)) error {
	client, err := k.client()
	if err != nil {
		return fmt.Errorf("keys of session tickets: %w", err)
	}
	var last [][size]byte
	problem := ""
	for {
		wait := interval
		keys, err := k.Pass(ctx, client)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			wait = retrying
			if text := err.Error(); text != problem {
				problem = text
				k.log.Warn("keys of session tickets are not shared, will retry", "err", err)
			}
		default:
			if problem = ""; !slices.Equal(keys, last) {
				last = keys
				set(keys)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Pass reads the Secret once, rotates its keys if they are due, and returns them as Run does.
func (k *Keeper) Pass(ctx context.Context, client rest.Interface) ([][size]byte, error) {
	const attempts = 5
	for range attempts {
		secret := new(corev1.Secret)
		err := client.Get().AbsPath("api", "v1").Namespace(k.namespace).Resource("secrets").Name(k.name).MaxRetries(0).
			Do(ctx).Into(secret)
		if err != nil {
			return nil, k.explain(err)
		}
		all, changed := k.rotate(secret)
		if !changed {
			return k.order(all), nil
		}
		err = client.Put().AbsPath("api", "v1").Namespace(k.namespace).Resource("secrets").Name(k.name).Body(secret).
			MaxRetries(0).Do(ctx).Error()
		if err == nil {
			k.log.Info("key of session tickets made", "secret", k.namespace+"/"+k.name, "keys", len(all))
			return k.order(all), nil
		}
		if !apierrors.IsConflict(err) {
			return nil, k.explain(err)
		}
	}
	return nil, errors.New("the Secret changes all the time")
}

func (k *Keeper) explain(err error) error {
	err = fmt.Errorf("secret %s/%s: %w", k.namespace, k.name, err)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w; make it, without data", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; allow get and update of it", err)
	}
	return err
}

// ticketKey is a key, and when it was made.
type ticketKey struct {
	made time.Time
	key  [size]byte
}

// rotate returns the keys of a Secret, the newest first, and whether it changed the Secret.
func (k *Keeper) rotate(s *corev1.Secret) (all []ticketKey, changed bool) {
	now := k.now()
	for name, value := range s.Data {
		made, ok := parse(name, value)
		if !ok || made.made.Sub(now) > rotation {
			continue // somebody else's, or of a clock that is ahead, which would be the newest for long
		}
		all = append(all, made)
	}
	slices.SortFunc(
		all,
		func(a, b ticketKey) int { return cmp.Or(b.made.Compare(a.made), slices.Compare(b.key[:], a.key[:])) },
	)
	if len(all) == 0 || now.Sub(all[0].made) >= rotation {
		made := ticketKey{made: now.Truncate(time.Second)}
		_, _ = rand.Read(made.key[:]) // never fails (crypto/rand)
		all, changed = slices.Insert(all, 0, made), true
	}
	// A key encrypts until the next one has settled.
	expired := func(i int) bool { return i > 0 && now.Sub(all[i-1].made) >= settling+kept }
	for len(all) > 1 && expired(len(all)-1) || len(all) > most {
		all, changed = all[:len(all)-1], true
	}
	if changed {
		maps.DeleteFunc(s.Data, func(name string, value []byte) bool { _, ours := parse(name, value); return ours })
		if s.Data == nil {
			s.Data = make(map[string][]byte)
		}
		for _, key := range all {
			s.Data[prefix+strconv.FormatInt(key.made.Unix(), 10)] = key.key[:]
		}
	}
	return all, changed
}

// parse returns the key of an element of a Secret's data.
func parse(name string, value []byte) (ticketKey, bool) {
	text, ours := strings.CutPrefix(name, prefix)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if !ours || err != nil || len(value) != size {
		return ticketKey{}, false
	}
	return ticketKey{time.Unix(seconds, 0), [size]byte(value)}, true
}

// order returns keys with that first which encrypts: the newest that all gateways have read, or else the oldest.
func (k *Keeper) order(newestFirst []ticketKey) (keys [][size]byte) {
	now := k.now()
	first := slices.IndexFunc(newestFirst, func(t ticketKey) bool { return now.Sub(t.made) >= settling })
	if first < 0 {
		first = len(newestFirst) - 1
	}
	keys = append(keys, newestFirst[first].key)
	for i, t := range newestFirst {
		if i != first {
			keys = append(keys, t.key)
		}
	}
	return keys
}
