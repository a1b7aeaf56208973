package conformance_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/test/conformance/world"
)

const page = "../../docs/gateway-conformance.md"

// files are the report, in the format of the suite, and the list of features of a channel.
func files(channel world.Channel) (report, features string) {
	suffix := ""
	if channel != world.Standard {
		suffix = "-" + string(channel)
	}
	return "testdata/report" + suffix + ".yaml", "../../internal/gateway/status/features" + suffix + ".txt"
}

// implementation says in reports what was tested.
func implementation(t *testing.T, w *world.World) confv1.Implementation {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), w.Portolan(), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "portolan version "), ",")
	const url = "https://portolan.dev/portolan"
	return confv1.Implementation{
		Organization: "portolan", Project: "portolan", URL: url, Version: version, Contact: []string{url},
	}
}

// write writes the report, the page with the table, and the features that the tests prove. If these are others than
// those that the GatewayClass listed, the report is not that of the tree any more.
func write(t *testing.T, s *suite.ConformanceTestSuite, o *outcomes) {
	t.Helper()
	of := world.Channel(*channel)
	reportFile, featuresFile := files(of)
	report, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(report.ProfileReports, func(a, b confv1.ProfileReport) int { return cmp.Compare(a.Name, b.Name) })
	text, err := yaml.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	after, err := insert(string(before), of, table(t, report, o))
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := os.ReadFile(featuresFile)
	if err != nil {
		t.Fatal(err)
	}
	proved := proved(s.SupportedFeatures, o)
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(reportFile), 0o755), os.WriteFile(reportFile, text, 0o644),
		os.WriteFile(page, []byte(after), 0o644), os.WriteFile(featuresFile, []byte(proved), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	if string(claimed) != proved {
		t.Errorf("%s has changed: run again", featuresFile)
	}
}

// proved lists those of the features whose tests all passed, and of which there is a test: one a line, sorted.
func proved(claimed suite.FeaturesSet, o *outcomes) string {
	proved := map[features.FeatureName]bool{}
	for _, test := range tests.ConformanceTests {
		if !ofProfile(test) {
			continue
		}
		for _, f := range test.Features {
			before, known := proved[f]
			proved[f] = (before || !known) && (o.of[test.ShortName] == passed || !claimed.HasAll(test.Features...))
		}
	}
	var names []string
	for f, ok := range proved {
		if ok && claimed.Has(f) {
			names = append(names, string(f)+"\n")
		}
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// table renders the results as Markdown: of other channels than the standard one only those of tests whose features are
// not claimed without them.
func table(t *testing.T, report *confv1.ConformanceReport, o *outcomes) string {
	t.Helper()
	_, featuresFile := files(world.Standard)
	always, err := os.ReadFile(featuresFile)
	if err != nil {
		t.Fatal(err)
	}
	claimed := strings.Fields(string(always))
	more := func(f features.FeatureName) bool { return !slices.Contains(claimed, string(f)) }
	var text strings.Builder
	fmt.Fprintf(&text, "Gateway API %s, %s channel, with the definitions and the suite of that release.\n\n",
		report.GatewayAPIVersion, report.GatewayAPIChannel)
	text.WriteString("| tests | passed | failed | skipped |\n|---|---|---|---|\n")
	for _, p := range report.ProfileReports {
		fmt.Fprintf(&text, "| %s, core | %d | %d | %d |\n", p.Name, p.Core.Passed, p.Core.Failed,
			p.Core.Skipped)
		if p.Extended != nil {
			fmt.Fprintf(&text, "| %s, extended | %d | %d | %d |\n", p.Name, p.Extended.Passed,
				p.Extended.Failed, p.Extended.Skipped)
		}
	}
	text.WriteString("\n| test | extended features | result |\n|---|---|---|\n")
	extended := extendedFeatures()
	for _, test := range tests.ConformanceTests {
		if !ofProfile(test) || world.Channel(*channel) != world.Standard && !slices.ContainsFunc(test.Features, more) {
			continue
		}
		var needs []string
		for _, f := range test.Features {
			if extended.Has(f) {
				needs = append(needs, string(f))
			}
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", test.ShortName, strings.Join(needs, ", "), o.of[test.ShortName])
	}
	return text.String()
}

// insert returns the page with another table of a channel.
func insert(page string, of world.Channel, table string) (string, error) {
	begin := "<!-- table of the " + string(of) + " channel: make conformance-gateway -->\n"
	const end = "<!-- end of the table -->\n"
	before, rest, ok := strings.Cut(page, begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return "", errors.New("the page has no place for the table")
	}
	return before + begin + "\n" + table + "\n" + end + after, nil
}
