package lint_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/pod/lint"
)

const docsFile = "../../../docs/rules.md"

var update = flag.Bool("update", false, "write docs/rules.md and the findings in the examples")

const intro = `# Rules

The problems that ` + "`portolan check`" + ` finds, with names and with the requests that Ingresses and HTTPRoutes are to serve. Each rule has an ID that never changes and a severity: an **error** is a name that does not resolve, or at whose address nothing answers, or an object that serves no requests; a **warning** may be one, or is one for some clients; a **note** works, but may surprise. The exit status is 1 if there is an error; ` + "`--fail-on warning`" + ` and ` + "`--fail-on note`" + ` are stricter, whatever ` + "`--severity`" + ` prints. Manifests without any Kubernetes object are an error with exit status 2: what should have rendered them has failed.

` + "`portolan check --explain RULE`" + ` describes a rule: why it matters, its source, and an example with its cure.

The command checks a cluster, or files and directories that together describe one cluster; ` + "`-`" + ` is standard input. ` + "`--exclude`" + ` skips files and directories by name, or by path below the directory, with shell patterns. Render Helm templates first:

` + "```sh" + `
portolan check base overlay/extra.yaml --exclude 'test-*'
helm template shop ./chart | portolan check -
` + "```" + `

Rejected documents are errors of the rule ` + "`manifest-rejected`" + `. Other problems of documents, such as unknown fields, misspelled kinds and templates that cannot be parsed, are warnings of the rule ` + "`manifest-warning`" + `. Documents that are not Kubernetes objects (without a kind or an apiVersion, and a name: values, charts, settings) and objects of kinds that names do not depend on are ignored and counted.

A rule does not apply if it needs objects that could not be read, such as Pods or Secrets where the account may not list them; each such kind is reported once. Of Secrets only those are read that Ingresses, Gateways and RoutePolicies refer to. Rules about Ingresses and Gateway API hold for all controllers, with what the APIs say of all; what is up to the controller is judged for the classes of ` + "`portolan gateway`" + ` only, and ` + "[`portolan explain URL`](explain.md#who-serves-this-url-and-whose-404-is-it)" + ` says what becomes of a single request. A problem of a workload's template is reported for the workload, not again for each of its Pods. Rules marked under *object alone* need only the object itself, so the [admission webhook](webhook.md) can apply them.

To ignore a rule for an object in manifests, annotate the object or its Pod template. In a cluster that is read from the API, annotations are not used:

` + "```yaml" + `
metadata:
  annotations:
    portolan.dev/ignore-rules: namespace-is-tld, service-port-unnamed
` + "```" + `

In a GitHub workflow, findings become annotations, or code scanning alerts, which GitHub accepts for files only and not for a running cluster. A finding about an object that no file declares, such as the namespace of other objects, is reported at the first object of that namespace:

` + "```sh" + `
portolan check deploy -o github --severity warning
portolan check deploy -o sarif > portolan.sarif
portolan check deploy --skip namespace-is-tld --skip service-port-unnamed
` + "```" + `

Tests generate this page (` + "`go test ./internal/pod/lint -run Docs -update`" + `), run the examples (` + "`internal/pod/lint/examples`" + `), and apply them to a real API server, where they expect the same findings.

`

// TestDocs verifies that docs/rules.md and the findings in the examples are what the
// rules generate.
func TestDocs(t *testing.T) {
	t.Parallel()
	compareFile(t, docsFile, docs())
	for _, r := range lint.Rules() {
		e := readExample(t, r.ID)
		if e.findings == e.findingLines() {
			continue
		}
		archive := *e.archive
		archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name == findings })
		archive.Files = append(archive.Files, txtar.File{Name: findings, Data: []byte(e.findingLines())})
		compareFile(t, exampleFile(r.ID), string(txtar.Format(&archive)))
	}
}

// compareFile verifies that a file has the given content, or writes it with -update.
func compareFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date; run go test ./internal/pod/lint -run Docs -update", path)
	}
}

// TestExplanation verifies that the explanation of a rule has its texts, and its example
// if it is a rule of the model.
func TestExplanation(t *testing.T) {
	t.Parallel()
	for _, r := range lint.Rules() {
		got, err := r.Explanation()
		if err != nil {
			t.Errorf("Explanation of %s: %v", r.ID, err)
		}
		for _, want := range []string{r.ID, r.Title, "Cure: ", "Source: ", "\nExample", "    apiVersion: ", "portolan check reports:", "Cured:"} {
			if !strings.Contains(got, want) {
				t.Errorf("Explanation of %s lacks %q:\n%s", r.ID, want, got)
			}
		}
	}
	for _, r := range lint.ManifestRules() {
		if got, err := r.Explanation(); err != nil || !strings.Contains(got, r.Title) || strings.Contains(got, "Example") {
			t.Errorf("Explanation of %s = %q, %v, want its texts without an example", r.ID, got, err)
		}
	}
}

// TestExampleFiles verifies that each example belongs to a rule.
func TestExampleFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(exampleFile("*"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range lint.Rules() {
		ids = append(ids, r.ID)
	}
	for _, f := range files {
		if id := strings.TrimSuffix(filepath.Base(f), ".txtar"); !slices.Contains(ids, id) {
			t.Errorf("%s belongs to no rule", f)
		}
	}
}

// docs returns docs/rules.md.
func docs() string {
	var b strings.Builder
	b.WriteString(intro + "| rule | severity | object alone | finds | cure |\n|---|---|---|---|---|\n")
	for _, r := range append(lint.Rules(), lint.ManifestRules()...) {
		alone := ""
		if r.Admission {
			alone = "✓"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.ID, r.Severity, alone, r.Title, r.Cure)
	}
	return b.String()
}
