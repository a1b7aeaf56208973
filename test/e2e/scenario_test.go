package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/cluster/snapshot"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/scenario"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
	"portolan.dev/portolan/test/e2e/manifests"
)

const scenarioDir = "../../testdata/scenarios"

// notForAPI are the scenarios that no API server can show, and why.
var notForAPI = map[string]string{
	"multicluster.txtar":        "the API server has no CustomResourceDefinition of ServiceImports",
	"external.txtar":            "the API server has no CustomResourceDefinitions of the Gateway API",
	"manifests-broken.txtar":    "it is about broken files",
	"transfer.txtar":            "it lists all records, and an API server has a Service of its own",
	"manifests-endpoints.txtar": "a controller mirrors Endpoints, by other rules than the manifest source, which has none beside it",
}

// unacceptable are the objects, by scenario, that this API server does not take
// as they are, and why.
var unacceptable = map[string]map[string]string{
	"cluster-ip-services.txtar": {
		"Service shop/portless": "a Service has a port",
		"Service shop/waiting":  "of several ports each has a name, and a Service gets an address at once",
		"Service shop/bare":     "a Service has a port, and gets an address at once",
	},
	"external-name.txtar": {
		"Service default/v6": "a target is a name, or looks like one",
	},
}

// TestScenarios replays the scenario files through a real API server.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob(%s) = %d files, %v", scenarioDir, len(files), err)
	}
	a := newApplier(t)
	readers := &readers{a.ControlPlane, make(map[string]string)}
	for _, file := range files {
		name := filepath.Base(file)
		s := parseFile(t, file)
		t.Run(name, func(t *testing.T) {
			err := replay(t, a, readers, name, s)
			reason, listed := notForAPI[name]
			switch {
			case listed && err == nil:
				t.Errorf("the API server shows it; take it off the table")
			case listed:
				t.Logf("not for the API: %s", reason)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

func parseFile(t *testing.T, file string) *scenario.Scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// replay says what is wrong when a scenario's objects are applied, read and
// asked for.
func replay(t *testing.T, a *applier, readers *readers, name string, s *scenario.Scenario) error {
	t.Helper()
	ctx := t.Context()
	defer func() {
		if err := a.clear(ctx); err != nil {
			t.Fatal(err)
		}
	}()
	objects, err := manifests.Read(s.Manifests)
	if err != nil {
		return err
	}
	if err := a.apply(ctx, objects, unacceptable[name]); err != nil {
		return err
	}
	within := await.Patience
	if notForAPI[name] != "" {
		within = time.Second
	}
	ask := serve(t, s, readers)
	return await.Within(within, func() error { return errors.Join(s.Check(ask)...) })
}

// serve reads the cluster and answers from it.
func serve(t *testing.T, s *scenario.Scenario, readers *readers) scenario.Responder {
	t.Helper()
	return scenario.Serve(t, s, func(cfg config.Config) *cluster.Store {
		wanted := []cluster.Kind{cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice}
		if cfg.DNS.Pods == string(kubezone.PodsVerified) {
			wanted = append(wanted, cluster.KindPod)
		}
		store := cluster.NewStore()
		if len(s.Freshness) > 0 {
			full := cluster.NewStore()
			readers.read(t, full, wanted, cluster.Kinds())
			recall(t, full, store, slices.Collect(maps.Keys(s.Freshness)))
		}
		readers.read(t, store, wanted, liveKinds(s))
		return store
	})
}

// liveKinds are those that are read from the API.
func liveKinds(s *scenario.Scenario) (kinds []cluster.Kind) {
	for _, k := range cluster.Kinds() {
		if _, aged := s.Freshness[k]; !aged && (s.Loaded == nil || slices.Contains(s.Loaded, k)) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// recall puts kinds of one store into another, by way of a snapshot file.
func recall(t *testing.T, from, to *cluster.Store, kinds []cluster.Kind) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := snapshot.Of(from, 1).WriteFile(file); err != nil {
		t.Fatal(err)
	}
	snap, err := snapshot.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	snap.Restore(to, kinds)
}

// readers are users that may read some kinds only.
type readers struct {
	plane       *controlplane.ControlPlane
	kubeconfigs map[string]string // by name
}

// read follows the kinds wanted until the test ends, as a user that may read only some.
// It returns when these are loaded and the others are refused.
func (r *readers) read(t *testing.T, store *cluster.Store, wanted, kinds []cluster.Kind) {
	t.Helper()
	source, err := api.New(api.Config{
		Kubeconfig: r.kubeconfig(t, kinds), Kinds: wanted, Detail: api.ForPodNames, QPS: 100, Burst: 100,
		Silence: await.Patience, Settle: time.Hour, Store: store,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want that it was canceled", err)
		}
	})
	await.NoError(t, func() error {
		for _, st := range source.Status() {
			switch may := slices.Contains(kinds, st.Kind); {
			case may && !st.Listed:
				return fmt.Errorf("%s is not loaded; its problem: %s", st.Kind, fmt.Sprint(st.Problem))
			case !may && !apierrors.IsForbidden(st.Problem):
				return fmt.Errorf("%s: problem %s, want that it is forbidden", st.Kind, fmt.Sprint(st.Problem))
			}
		}
		return nil
	})
}

func (r *readers) kubeconfig(t *testing.T, kinds []cluster.Kind) string {
	t.Helper()
	name := fmt.Sprintf("%v", kinds)
	if r.kubeconfigs[name] == "" {
		var rules []rbacv1.PolicyRule
		for _, k := range kinds {
			rules = append(rules, mayRead(k.String()))
		}
		user, err := r.plane.NewUser(t.Context(), "reader", rules...)
		if err != nil {
			t.Fatal(err)
		}
		r.kubeconfigs[name] = user.Kubeconfig
	}
	return r.kubeconfigs[name]
}

// mayRead is the rule that allows to read a kind.
func mayRead(kind string) rbacv1.PolicyRule {
	r := resources[kind]
	return rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"list", "watch"}}
}
