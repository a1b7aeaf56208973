package ticketkeys

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/apitest"
)

// keepers are Keepers of one Secret.
type keepers struct {
	*testing.T
	server *apitest.Server
	config api.ClientConfig
	now    time.Time
}

func newKeepers(t *testing.T) *keepers {
	t.Helper()
	k := &keepers{T: t, server: apitest.New(t), now: time.Unix(1_000_000, 0)}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	apitest.WriteKubeconfig(t, path, k.server.URL())
	k.config = api.ClientConfig{Kubeconfig: path, QPS: 1e6, Burst: 1e6}
	return k
}

func (k *keepers) keeper() *Keeper {
	return New(k.config, "edge", "tickets", func() time.Time { return k.now }, slog.New(slog.DiscardHandler))
}

// pass has a Keeper pass.
func (k *keepers) pass() ([][size]byte, error) {
	k.Helper()
	of := k.keeper()
	client, err := of.client()
	if err != nil {
		k.Fatal(err)
	}
	return of.Pass(k.Context(), client)
}

func (k *keepers) mustPass() [][size]byte {
	k.Helper()
	keys, err := k.pass()
	if err != nil {
		k.Fatal(err)
	}
	return keys
}

func secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "tickets"}, Data: data}
}

// TestRotation lets two days pass: all Keepers have the same keys, a new key encrypts when all know it, and each stays
// for a day after it was replaced.
func TestRotation(t *testing.T) {
	t.Parallel()
	k := newKeepers(t)
	k.server.Put(secret(map[string][]byte{"note": []byte("of somebody else")}))
	encrypted := make(map[[size]byte]time.Time) // when each key encrypted last
	end := k.now.Add(48 * time.Hour)
	known := k.mustPass()
	for ; k.now.Before(end); k.now = k.now.Add(interval) {
		keys, others := k.mustPass(), k.mustPass()
		if !slices.Equal(keys, others) {
			t.Fatalf("%s: two Keepers have different keys", k.now)
		}
		if !slices.Contains(known, keys[0]) {
			t.Fatalf("%s: a key encrypts that Keepers which read a minute ago do not know", k.now)
		}
		encrypted[keys[0]] = k.now
		for key, at := range encrypted {
			if k.now.Sub(at) < kept && !slices.Contains(keys, key) {
				t.Fatalf("%s: a key that encrypted until %s is gone", k.now, at)
			}
		}
		if len(keys) > 5 {
			t.Fatalf("%s: %d keys", k.now, len(keys))
		}
		known = keys
	}
	if n := len(encrypted); n != 6 {
		t.Errorf("%d keys encrypted in 48 h, want 6", n)
	}
	var stored corev1.Secret
	if k.server.Get("edge", "tickets", &stored); string(stored.Data["note"]) != "of somebody else" {
		t.Error("what somebody else put into the Secret is gone")
	}
}

// TestForeignKeys: neither a key of a clock that is ahead nor a heap of keys keeps keys from being rotated.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	name := func(made time.Time) string { return prefix + strconv.FormatInt(made.Unix(), 10) }
	heap := make(map[string][]byte)
	for i := range 1000 {
		heap[name(now.Add(-rotation-time.Duration(i)*time.Second))] = make([]byte, size)
	}
	for claim, data := range map[string]map[string][]byte{
		"a year ahead":        {name(now.Add(365 * 24 * time.Hour)): make([]byte, size)},
		"as far as there are": {prefix + "9223372036854775807": make([]byte, size)},
		"many":                heap,
	} {
		k := newKeepers(t)
		k.now = now
		k.server.Put(secret(data))
		keys := k.mustPass()
		var stored corev1.Secret
		k.server.Get("edge", "tickets", &stored)
		if _, made := stored.Data[name(now)]; !made || len(keys) > most || len(stored.Data) > most {
			t.Errorf("%s: %d keys, %d stored, a new one: %t", claim, len(keys), len(stored.Data), made)
		}
		k.now = now.Add(settling)
		if keys := k.mustPass(); string(keys[0][:]) != string(stored.Data[name(now)]) {
			t.Errorf("%s: another key than the new one encrypts", claim)
		}
	}
}

// TestConcurrent has many Keepers make the first key at once: all have the same one.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	k := newKeepers(t)
	k.server.Put(secret(nil))
	const n = 8
	got := make(chan [][size]byte, n)
	for range n {
		go func() {
			keys, err := k.pass()
			if err != nil {
				t.Error(err)
			}
			got <- keys
		}()
	}
	first := <-got
	for range n - 1 {
		if keys := <-got; !slices.Equal(keys, first) {
			t.Errorf("keys %x and %x", keys, first)
		}
	}
}

// TestProblems: what keeps keys from being shared is said, and the keys that there are stay.
func TestProblems(t *testing.T) {
	t.Parallel()
	k := newKeepers(t)
	if _, err := k.pass(); err == nil || !strings.Contains(err.Error(), "secret edge/tickets: ") || !strings.Contains(err.Error(), "make it, without data") {
		t.Errorf("without the Secret: %v", err)
	}
	k.server.Put(secret(map[string][]byte{"key-12": []byte("too short"), "key-x": make([]byte, size)}))
	if keys := k.mustPass(); len(keys) != 1 {
		t.Errorf("%d keys beside two that are none", len(keys))
	}
	k.server.Misbehave(apitest.Fault{Status: 403})
	if _, err := k.pass(); err == nil || !strings.Contains(err.Error(), "allow get and update") {
		t.Errorf("without rights: %v", err)
	}
}

// TestRun calls set when keys are read, and ends with ctx.
func TestRun(t *testing.T) {
	t.Parallel()
	k := newKeepers(t)
	k.server.Put(secret(nil))
	ctx, stop := context.WithCancel(t.Context())
	got, ended := make(chan [][size]byte), make(chan error)
	go func() { ended <- k.keeper().Run(ctx, func(keys [][size]byte) { got <- keys }) }()
	if keys := <-got; len(keys) != 1 {
		t.Errorf("%d keys", len(keys))
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}
