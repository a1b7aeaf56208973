package proxyplan

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/proxy-evidence.md")

// page is the list of kube-proxy's test cases.
const page = "../../../docs/proxy-evidence.md"

// comparison is what kube-proxy and ours do in one case of kube-proxy's tests.
type comparison struct{ test, name, kubeProxy, ours string }

// differences has why ours does something else, by test and name of the case.
var differences = map[[2]string]string{
	{"TestCategorizeEndpoints/PreferSameNode_falls_back_to_same-zone_when_feature_gate_disabled", "inside"}: "Portolan has " +
		"no feature gates, and follows the hints for nodes, as kube-proxy does by default",
}

// elsewhere has the tests of the same files that have no packets or choices to replay, and what
// ours has in their place.
var elsewhere = map[string]string{
	"TestOverallNFTablesRules": "The text of kube-proxy's rules. Portolan's are others; `TestPackets` of internal/proxy/nft " +
		"has the kernel decide on packets by them.",
	"TestBuildServiceMapAddRemove": trackers, "TestBuildServiceMapServiceHeadless": trackers,
	"TestBuildServiceMapServiceTypeExternalName": trackers, "TestBuildServiceMapServiceUpdate": trackers,
	"TestUpdateEndpointsMap": trackers,
	"TestHealthCheckNodePortWhenTerminating": "`TestChoiceEqualsKubeProxy` compares the numbers of endpoints that load balancers " +
		"are told, and test/e2e/healthcheck the responses.",
	"TestSyncProxyRulesRepeated": "The transactions of kube-proxy. `TestIncrementalEqualsFull` of internal/proxy/plan and " +
		"`TestChurn` of internal/proxy/nft test those of Portolan.",
	"TestSyncProxyRulesStartup":             "The same at a start; `TestRepair` of internal/proxy/nft.",
	"TestNoEndpointsMetric":                 "`TestWithoutLocal` of internal/proxy/plan counts the same ports.",
	"TestLoadBalancerIngressRouteTypeProxy": "`ipMode` is among what `TestChoiceEqualsKubeProxy` varies.",
	"Test_servicePortChainNameBase":         chainNames, "Test_servicePortEndpointChainNameBase": chainNames,
	"TestProxier_OnServiceCIDRsChanged": "`TestServiceCIDR` of internal/kube/object; here packets to `172.30.0.0/16`.",
	"TestBadIPs": "Different: Portolan reads no address with leading zeros, which programs take for decimal or for octal " +
		"numbers; it logs the object. The API server has refused them in new objects since 1.36 (StrictIPCIDRValidation, KEP-4858).",
}

const (
	trackers   = "kube-proxy's intermediate tables; `TestChoiceEqualsKubeProxy` compares what follows from them for random Services."
	chainNames = "The names of kube-proxy's chains, of which Portolan has none."
)

// head is the beginning of the page.
const head = `# Service proxy: kube-proxy's test cases

What Portolan does in the cases of kube-proxy's own tests (Kubernetes 1.36.3). [test/e2e/proxyplan](../test/e2e/proxyplan) runs these tests with a recorder, compiles the same Services and EndpointSlices for the same node, and compares: the verdict on each packet by the evaluator that is also compared with the kernel (` + "`TestEvaluator`" + ` of internal/proxy/nft), and the choice of endpoints. This page is made by ` + "`cd test/e2e && go test ./proxyplan -run Evidence -update`" + `, and a test fails if it is out of date, or if a test is added to these files that it does not list.

Beside these cases, ` + "`TestChoiceEqualsKubeProxy`" + ` compares the addresses, endpoints, verdicts, source ranges and health checks of random Services, 30,000 in each run, with kube-proxy's code. 1,000,000 were compared on 2026-11-23, by ` + "`cd test/e2e && PORTOLAN_PROXY_SETS=1000000 go test ./proxyplan -run TestChoiceEqualsKubeProxy -timeout 30m -v`" + `, without a difference: 1,780,743 addresses with endpoints, 284,745 with endpoints on the node, and 1,210,811 without any.

Those of connection tracking (pkg/proxy/conntrack/cleanup_test.go) are in internal/proxy/conntrack, ` + "`TestAsKubeProxy`" + `, with two differences: entries of SCTP are deleted, too, and those of a Service without endpoints, as kube-proxy has done since 1.37. For health checks (pkg/proxy/healthcheck), test/e2e/healthcheck runs kube-proxy's servers beside Portolan's through the same history and compares the responses octet for octet.
`

// TestEvidence compares all cases, and the page that lists them.
func TestEvidence(t *testing.T) {
	packets, chosen := flows(t), choices(t)
	var text strings.Builder
	text.WriteString(head)
	write := func(title, file, of string, cases []comparison) {
		fmt.Fprintf(&text, "\n## %s\n\n%s, %d cases.\n\n| test | %s | kube-proxy | Portolan |\n|---|---|---|---|\n", title, file, len(cases), of)
		for _, c := range cases {
			fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", strings.TrimPrefix(c.test, "Test"), c.name, c.kubeProxy, c.verdict(t))
		}
	}
	write("Packets", "pkg/proxy/nftables/proxier_test.go", "packet", packets)
	write("Choice of endpoints", "pkg/proxy/topology_test.go", "client", chosen)
	text.WriteString("\n## Other tests of these files\n\n| test | |\n|---|---|\n")
	for _, name := range unreplayed(t, append(packets, chosen...)) {
		fmt.Fprintf(&text, "| %s | %s |\n", strings.TrimPrefix(name, "Test"), elsewhere[name])
	}
	if *update {
		if err := os.WriteFile(page, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text.String(), string(have)); diff != "" {
		t.Errorf("%s is out of date (-cases +file); run with -update:\n%s", page, diff)
	}
	if len(packets) < 200 || len(chosen) < 30 {
		t.Errorf("%d packets and %d choices were recorded, want at least 200 and 30", len(packets), len(chosen))
	}
}

// verdict returns whether both do the same, or what ours does, and why.
func (c *comparison) verdict(t *testing.T) string {
	t.Helper()
	why, differs := differences[[2]string{c.test, c.name}]
	switch {
	case differs != (c.kubeProxy != c.ours):
		t.Errorf("%s, %s: kube-proxy: %s, ours: %s, a reason for a difference: %q", c.test, c.name, c.kubeProxy, c.ours, why)
		fallthrough
	case differs:
		return fmt.Sprintf("%s: %s", c.ours, why)
	}
	return "same"
}

// unreplayed returns the tests without a case, in the order of the files. Each has an entry in
// elsewhere, which has no others.
func unreplayed(t *testing.T, cases []comparison) (names []string) {
	t.Helper()
	replayed := make(map[string]bool)
	for _, c := range cases {
		name, _, _ := strings.Cut(c.test, "/")
		replayed[name] = true
	}
	for _, of := range []struct{ pkg, file string }{{"proxy/nftables", "proxier_test.go"}, {"proxy", "topology_test.go"}} {
		dir := goList(t, "{{.Dir}}", "k8s.io/kubernetes/pkg/"+of.pkg)
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, of.file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") || replayed[f.Name.Name] {
				continue
			}
			if names = append(names, f.Name.Name); elsewhere[f.Name.Name] == "" {
				t.Errorf("%s of %s has no case that was replayed, and no entry that says why", f.Name.Name, of.file)
			}
		}
	}
	for name := range elsewhere {
		if !slices.Contains(names, name) {
			t.Errorf("%s has an entry, but cases of it were replayed, or there is no such test", name)
		}
	}
	return names
}
