package scenario_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/policy/semantics"
)

const (
	policyDir          = "../../testdata/policy"
	policyCoverageFile = "../../docs/policy-coverage.md"
)

// namedAddr is the address of all domain names in connections.
var namedAddr = netip.MustParseAddr("203.0.113.53")

// policyScenario is a file of testdata/policy: policies that are added to testdata/policy/cluster.yaml,
// and connections with the verdicts on them.
//
//	cites: ID ...                    statements of docs/policy-coverage.md
//	-- policies.yaml --
//	-- connections --
//	from END to END:PORT[/udp|/sctp]: VERDICT
//	-- problems --                   what is reported about policies.yaml, one a line; none without it
//
// An END is NS/POD, an address, or a domain name, which is at 203.0.113.53. A VERDICT is "allowed" or
// "denied", then " by" with each direction and what decided on it: the NetworkPolicies that apply, the rule
// of a ClusterNetworkPolicy as NAME[INDEX], or why none applies. Directions that nothing restricts are left
// out, and for "denied" those that allow. What audit would have denied follows after "; would be denied by".
type policyScenario struct {
	name        string
	cites       []string
	policies    []byte
	connections []string
	problems    []string
}

func parsePolicyScenario(t *testing.T, file string) policyScenario {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := policyScenario{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
	for line := range strings.Lines(string(archive.Comment)) {
		if ids, ok := strings.CutPrefix(line, "cites: "); ok {
			s.cites = append(s.cites, strings.Fields(ids)...)
		}
	}
	lines := func(text []byte) (all []string) {
		for line := range strings.Lines(string(text)) {
			all = append(all, strings.TrimSpace(line))
		}
		return all
	}
	for _, f := range archive.Files {
		switch f.Name {
		case "policies.yaml":
			s.policies = f.Data
		case "connections":
			s.connections = lines(f.Data)
		case "problems":
			s.problems = lines(f.Data)
		default:
			t.Fatalf("%s: unknown file %s", file, f.Name)
		}
	}
	if len(s.cites) == 0 || len(s.connections) == 0 {
		t.Fatalf("%s: cites %v and has %d connections, want some", file, s.cites, len(s.connections))
	}
	return s
}

func policyScenarios(t *testing.T) (all []policyScenario) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(policyDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all = append(all, parsePolicyScenario(t, file))
	}
	return all
}

// load reads the cluster with the policies of a scenario.
func (s *policyScenario) load(t *testing.T) *cluster.Store {
	t.Helper()
	base, err := os.ReadFile(filepath.Join(policyDir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, store := t.TempDir(), cluster.NewStore()
	for name, text := range map[string][]byte{"cluster.yaml": base, "policies.yaml": s.policies} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := manifest.New(manifest.Config{Path: dir, AllKinds: true, Store: store, Log: slog.New(slog.DiscardHandler)})
	report, err := source.Load()
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	for _, p := range report.Problems {
		problems = append(problems, strings.TrimPrefix(p.Error(), dir+"/"))
	}
	if d := cmp.Diff(s.problems, problems); d != "" {
		t.Errorf("problems (-want +got)\n%s", d)
	}
	return store
}

// TestPolicies checks the verdicts of the scenarios in testdata/policy.
func TestPolicies(t *testing.T) {
	t.Parallel()
	scenarios := policyScenarios(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.load(t).View(func(v *cluster.View) {
				for _, line := range s.connections {
					connection, want, ok := strings.Cut(line, ": ")
					if !ok {
						t.Errorf("%q has no verdict", line)
						continue
					}
					if got, err := verdictOn(v, connection); err != nil || got != want {
						t.Errorf("%s: %s, %v; want %s", connection, got, err, want)
					}
				}
			})
		})
	}
	const promised = 60
	if len(scenarios) < promised {
		t.Errorf("%d scenarios, want at least %d", len(scenarios), promised)
	}
}

// verdictOn returns the verdict on a connection as scenarios write it.
func verdictOn(v *cluster.View, connection string) (string, error) {
	words := strings.Fields(connection)
	if len(words) != 4 || words[0] != "from" || words[2] != "to" {
		return "", fmt.Errorf("%q is not \"from END to END:PORT\"", connection)
	}
	target, protocol, _ := strings.Cut(words[3], "/udp")
	port := cluster.Port{Protocol: cluster.TCP}
	switch {
	case target != words[3] && protocol == "":
		port.Protocol = cluster.UDP
	case strings.HasSuffix(target, "/sctp"):
		target, port.Protocol = strings.TrimSuffix(target, "/sctp"), cluster.SCTP
	}
	colon := strings.LastIndexByte(target, ':')
	number, err := strconv.ParseUint(target[colon+1:], 10, 16)
	if colon < 0 || err != nil {
		return "", fmt.Errorf("%q has no port", target)
	}
	port.Number = uint16(number)
	from, err := endOf(v, words[1])
	if err != nil {
		return "", err
	}
	to, err := endOf(v, target[:colon])
	if err != nil {
		return "", err
	}
	set := semantics.NewSet(v)
	verdicts := map[string]semantics.Verdict{"egress": {Allowed: true}, "ingress": {Allowed: true}}
	if from.Namespace != "" {
		verdicts["egress"] = set.Egress(from, to, port)
	}
	if to.Namespace != "" {
		verdicts["ingress"] = set.Ingress(to, from, port)
	}
	return textOf(verdicts), nil
}

// endOf returns the end that a word of a connection names.
func endOf(v *cluster.View, word string) (*semantics.End, error) {
	word = strings.Trim(word, "[]")
	if addr, err := netip.ParseAddr(word); err == nil {
		return semantics.NewEnds(v).At(addr), nil
	}
	namespace, name, isPod := strings.Cut(word, "/")
	if !isPod {
		return &semantics.End{Names: []string{word}, Addrs: []netip.Addr{namedAddr}}, nil
	}
	pod := v.Pod(cluster.Key{Namespace: namespace, Name: name})
	if pod == nil {
		return nil, fmt.Errorf("there is no Pod %s", word)
	}
	return semantics.EndOf(pod), nil
}

// textOf returns verdicts by direction as scenarios write them.
func textOf(verdicts map[string]semantics.Verdict) string {
	allowed := verdicts["egress"].Allowed && verdicts["ingress"].Allowed
	var by, audit []string
	for _, direction := range []string{"egress", "ingress"} {
		v := verdicts[direction]
		decider := deciderText(v.Decider, v.Policies)
		switch v.Exception {
		case semantics.HostNetwork:
			decider = "hostNetwork"
		case semantics.OwnNode:
			decider = "the own node"
		case semantics.Itself:
			decider = "itself"
		case semantics.NoException:
		}
		if decider != "" && v.Allowed == allowed {
			by = append(by, direction+" "+decider)
		}
		for _, d := range v.Audit {
			audit = append(audit, direction+" "+deciderText(d.Decider, d.Policies))
		}
	}
	text := "denied"
	if allowed {
		text = "allowed"
	}
	if len(by) > 0 {
		text += " by " + strings.Join(by, ", ")
	}
	if len(audit) > 0 {
		text += "; would be denied by " + strings.Join(audit, ", ")
	}
	return text
}

func deciderText(rule semantics.TierRule, policies []*cluster.NetworkPolicy) string {
	if rule.Policy != nil {
		return fmt.Sprintf("%s[%d]", rule.Policy.Name, rule.Rule)
	}
	return strings.Join(semantics.PolicyNames(policies), " and ")
}

// TestPolicyCoverage checks that a scenario cites each statement of docs/policy-coverage.md, and that each
// citation is of a statement.
func TestPolicyCoverage(t *testing.T) {
	cited := make(map[string][]string)
	for _, s := range policyScenarios(t) {
		for _, id := range s.cites {
			cited[id] = append(cited[id], s.name)
		}
	}
	checkCoverage(t, policyCoverageFile, cited)
}

// checkCoverage checks that scenarios cite the statements of a file, and that it lists the scenarios. With
// -update it writes the lists.
func checkCoverage(t *testing.T, file string, cited map[string][]string) {
	t.Helper()
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written, statements := withScenarios(string(table), cited)
	for id := range cited {
		if !slices.Contains(statements, id) {
			t.Errorf("%v cite %s, which is not in %s", cited[id], id, file)
		}
	}
	for _, id := range statements {
		if len(cited[id]) == 0 {
			t.Errorf("no scenario proves %s", id)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != string(table) {
		t.Errorf("%s is out of date; run go test ./internal/scenario -run Coverage -update", file)
	}
}
