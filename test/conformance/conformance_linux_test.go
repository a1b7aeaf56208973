package conformance_test

import (
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/conformance/world"
)

// cases selects what go test runs by itself: some short tests, of statuses and of requests.
var cases = flag.String("cases", "^(HTTPRouteSimpleSameNamespace|HTTPRouteMatching|HTTPRouteHeaderMatching|"+
	"HTTPRouteMethodMatching|HTTPRouteRedirectPath|GatewayInvalidRouteKind)$",
	"regular expression of the names of the tests to run")

var (
	record    = flag.Bool("record", false, "run all tests of the profiles, and write the report and the page with their table")
	unclaimed = flag.Bool("unclaimed", false, "run tests of features, too, that the GatewayClass does not list")
	channel   = flag.String("channel", string(world.Standard), "channel of the definitions, standard or experimental")
)

// profiles are what is tested.
func profiles() []suite.ConformanceProfile {
	return []suite.ConformanceProfile{
		suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile, suite.GatewayTLSConformanceProfile,
		suite.GatewayTCPConformanceProfile, suite.GatewayUDPConformanceProfile,
	}
}

// names are those of the profiles.
func names() (all []suite.ConformanceProfileName) {
	for _, p := range profiles() {
		all = append(all, p.Name)
	}
	return all
}

// coreFeatures and extendedFeatures are those of all profiles.
func coreFeatures() suite.FeaturesSet {
	all := make(suite.FeaturesSet)
	for _, p := range profiles() {
		all = all.Union(p.CoreFeatures)
	}
	return all
}

func extendedFeatures() suite.FeaturesSet {
	all := make(suite.FeaturesSet)
	for _, p := range profiles() {
		all = all.Union(p.ExtendedFeatures)
	}
	return all.Difference(coreFeatures())
}

func TestMain(m *testing.M) { world.Main(m) }

// TestConformance runs tests of the suite. By the features of a test, the suite skips what the GatewayClass does not
// list.
func TestConformance(t *testing.T) {
	ctrllog.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) // the client's, which else complains once that it is not set
	w := world.Start(t, world.Channel(*channel))
	w.StartGateway(t)
	awaitFeatures(t, w)
	outcomes := newOutcomes()
	s, err := suite.NewConformanceTestSuite(options(t, w, outcomes))
	if err != nil {
		t.Fatal(err)
	}
	chosen := selected(t)
	s.Setup(t, chosen)
	t.Run("suite", func(t *testing.T) { // which ends when all tests have, those that run at once too
		if err := s.Run(t, chosen); err != nil {
			t.Error(err)
		}
	})
	switch {
	case *record:
		write(t, s, outcomes)
	case len(outcomes.are(passed))+len(outcomes.are(failed)) != len(chosen):
		t.Errorf("the suite skips %q: the GatewayClass does not list their features", outcomes.are(skipped))
	}
}

// awaitFeatures waits until the gateway lists what it supports.
func awaitFeatures(t *testing.T, w *world.World) {
	t.Helper()
	class := new(gatewayv1.GatewayClass)
	await.NoError(t, func() error {
		if err := w.API.Get(t.Context(), client.ObjectKey{Name: world.Class}, class); err != nil {
			return err
		}
		if len(class.Status.SupportedFeatures) == 0 && !*unclaimed {
			return errors.New("the GatewayClass lists no features")
		}
		return nil
	})
}

// selected returns the tests that the flags select: of the profiles' tests, all that are recorded.
func selected(t *testing.T) []suite.ConformanceTest {
	t.Helper()
	chosen, err := regexp.Compile(*cases)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(tests.ConformanceTests), func(test suite.ConformanceTest) bool {
		return !ofProfile(test) || !*record && !chosen.MatchString(test.ShortName)
	})
}

// ofProfile reports whether the test needs no features but those of one of the profiles.
func ofProfile(test suite.ConformanceTest) bool {
	return len(test.Features) > 0 && slices.ContainsFunc(profiles(), func(p suite.ConformanceProfile) bool {
		return p.CoreFeatures.Union(p.ExtendedFeatures).HasAll(test.Features...)
	})
}

// options are those of the suite.
func options(t *testing.T, w *world.World, o *outcomes) suite.ConformanceOptions {
	t.Helper()
	address := gatewayv1.IPAddressType
	out := suite.ConformanceOptions{
		Client: w.API, ClientOptions: client.Options{Scheme: w.API.Scheme()}, Clientset: w.Client(), RestConfig: w.RESTConfig(),
		ManifestFS: []fs.FS{&conformance.Manifests}, Hook: o.note,
	}
	out.GatewayClassName = world.Class
	out.CleanupTestResources = true
	out.DisableParallelTests = true // one of them grants what another one must not have
	out.ConformanceProfiles = names()
	out.Implementation = implementation(t, w)
	out.UsableNetworkAddresses = []gatewayv1.GatewaySpecAddress{{Type: &address, Value: world.Usable}}
	out.UnusableNetworkAddresses = []gatewayv1.GatewaySpecAddress{{Type: &address, Value: world.Unusable}}
	if *unclaimed {
		out.SupportedFeatures = coreFeatures().Union(extendedFeatures()).UnsortedList()
	}
	return out
}

// outcome is what became of a test.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "not claimed" // the suite skips it
)

// outcomes are those of tests by their names.
type outcomes struct {
	mu sync.Mutex
	of map[string]outcome
}

func newOutcomes() *outcomes { return &outcomes{of: make(map[string]outcome)} }

// note is called by the suite at the end of a test, and by several tests at once.
func (o *outcomes) note(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case t.Failed():
		o.of[test.ShortName] = failed
	case t.Skipped():
		o.of[test.ShortName] = skipped
	default:
		o.of[test.ShortName] = passed
	}
}

// are returns the names of the tests with an outcome, sorted.
func (o *outcomes) are(want outcome) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, outcome := range o.of {
		if outcome == want {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
