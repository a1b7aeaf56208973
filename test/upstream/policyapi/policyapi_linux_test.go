package policyapi

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/test/upstream/cluster"
	"portolan.dev/portolan/test/upstream/cluster/clustertest"
	"portolan.dev/portolan/test/upstream/report"
	upstream "portolan.dev/portolan/test/upstream/suite"
)

// cases selects what go test runs by itself: two short tests.
var cases = flag.String("cases", "^CNP(AdminTierIngressNamedPort|BaselineTierEgressNodePeers)$",
	"regular expression of the names of the tests to run")

var record = flag.Bool("record", false, "run all tests, and write the results and the page with their table")

const (
	results = "../testdata/network-policy-api.json"
	page    = "../../../docs/policy-e2e.md"
	command = "make conformance-policy-api"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// TestConformance runs tests of the suite, with all features that it knows.
func TestConformance(t *testing.T) {
	c := startCluster(t)
	clusterClient, err := newClient(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	const patience = time.Minute // the machine may have other work
	s := suite.New(suite.Options{
		Client: clusterClient, ClientSet: c.Client(), KubeConfig: *c.RESTConfig(), EnableAllSupportedFeatures: true,
		TimeoutConfig: config.TimeoutConfig{PokeTimeout: patience, DeleteTimeout: patience},
	})
	s.Setup(t)
	outcomes := report.Outcomes{}
	for _, test := range selected(t) {
		outcome := report.Outcome{State: upstream.Passed, Attempts: 1}
		if !t.Run(test.ShortName, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Skipped() {
					outcome = report.Outcome{State: upstream.Skipped, Skipped: "the suite skips it"}
				}
			})
			test.Run(t, s)
		}) {
			outcome.State = upstream.Failed
		}
		outcomes[upstream.Spec(test.ShortName)] = outcome
	}
	if *record {
		write(t, outcomes)
	}
}

// startCluster starts a cluster, whose Pods have SCTP, until the test ends.
func startCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	programs, err := cluster.Prepared()
	if err != nil {
		t.Fatal(err)
	}
	const name = "agnhost"
	image := programs.Images[name]
	image.Program = filepath.Join(t.TempDir(), name)
	if err := cluster.Build(t.Context(), name, image.Program); err != nil {
		t.Fatal(err)
	}
	programs.Images[name] = image
	c, err := cluster.Start(t.Context(), cluster.Config{
		Programs: programs, Proxy: cluster.PortolanPolicies, Nodes: 2, Prepare: install,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// selected returns the tests that the flags select.
func selected(t *testing.T) []suite.ConformanceTest {
	t.Helper()
	names, err := regexp.Compile(*cases)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(tests.ConformanceTests), func(test suite.ConformanceTest) bool {
		return !*record && !names.MatchString(test.ShortName)
	})
}

// newClient returns a client that knows the types of the suite.
func newClient(c *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, policyv1alpha2.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(c, client.Options{Scheme: scheme})
}

// install creates the CustomResourceDefinition, of the experimental channel, and waits until the API server
// serves it.
func install(ctx context.Context, c *rest.Config) error {
	apiClient, err := newClient(c)
	if err != nil {
		return err
	}
	const module = "sigs.k8s.io/network-policy-api"
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return err
	}
	const file = "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
	if err != nil {
		return err
	}
	definition := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.Unmarshal(text, definition); err != nil {
		return err
	}
	if err := apiClient.Create(ctx, definition); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			return apiClient.List(ctx, new(policyv1alpha2.ClusterNetworkPolicyList)) == nil, nil
		})
}

// write writes the outcomes, and the page with their table.
func write(t *testing.T, outcomes report.Outcomes) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	table := report.Table(report.Column{Name: "Portolan", Outcomes: outcomes})
	written, err := report.Insert(string(text), command, table)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(outcomes.Write(results), os.WriteFile(page, []byte(written), 0o644)); err != nil {
		t.Fatal(err)
	}
}
