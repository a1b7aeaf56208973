package lint_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/lint"
)

const docsFile = "../../../docs/rules.md"

var update = flag.Bool("update", false, "write the rules and their examples into docs/rules.md")

const intro = `# Rules

What ` + "`portolan check`" + ` looks for. Each rule has an ID that stays the same, and a severity: an **error** is a name that does not resolve, or leads to nothing; a **warning** may be one, or is one for some; a **note** works, and may surprise. The status of the command is 1 when there is an error; ` + "`--fail-on warning`" + ` and ` + "`--fail-on note`" + ` are stricter, whatever ` + "`--severity`" + ` prints.

It looks at a cluster, or at files and directories, which together are one cluster; ` + "`-`" + ` is standard input. ` + "`--exclude`" + ` leaves out files and directories by their name, or by their path below the directory, with the patterns of shells; a template of Helm has to be rendered first:

` + "```sh" + `
portolan check base overlay/extra.yaml --exclude 'test-*'
helm template shop ./chart | portolan check -
` + "```" + `

Documents that are rejected are errors of the rule ` + "`manifest-rejected`" + `; other problems of documents, such as unknown fields, kinds with a slip, and templates that can't be read, are warnings of the rule ` + "`manifest-warning`" + `. Documents that are no Kubernetes objects (they lack a kind or an apiVersion, and a name: values, charts, settings) and objects of kinds that don't matter for names are passed over, and counted.

What needs objects that are not there to be read (Pods, where the account may not list them) is not judged. What is wrong with a workload's template is told of the workload, not of each of its Pods again. Rules with a mark under *alone* can be judged from the one object, before it is in the cluster.

What is meant as it is can say so, in manifests, with an annotation of the object or of its Pods' template; in a cluster that is read from the API, annotations are not looked at:

` + "```yaml" + `
metadata:
  annotations:
    portolan.dev/ignore-rules: namespace-is-tld, service-port-unnamed
` + "```" + `

In a workflow of GitHub, findings become annotations, or alerts of code scanning, which GitHub takes of files only and not of a running cluster. What no file declares, such as a Namespace that objects are in, is told where the first of them stands:

` + "```sh" + `
portolan check deploy -o github --severity warning
portolan check deploy -o sarif > portolan.sarif
portolan check deploy --skip namespace-is-tld --skip service-port-unnamed
` + "```" + `

A test makes this page of the rules and their examples (` + "`internal/pod/lint/testdata`" + `), and runs these: ` + "`go test ./internal/pod/lint -run Docs -update`" + `. Another puts them to a real API server, and finds the same there.

`

// TestDocs: docs/rules.md is what the rules and their examples make of it.
func TestDocs(t *testing.T) {
	page := docs(t)
	if *update {
		if err := os.WriteFile(docsFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	written, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page {
		t.Errorf("%s is out of date; run go test ./internal/pod/lint -run Docs -update", docsFile)
	}
}

// TestExampleFiles: each example is of a rule.
func TestExampleFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range lint.Rules() {
		ids = append(ids, r.ID)
	}
	for _, f := range files {
		if id := strings.TrimSuffix(filepath.Base(f), ".txtar"); !slices.Contains(ids, id) {
			t.Errorf("%s is of no rule", f)
		}
	}
}

func docs(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(intro + "| rule | severity | alone | what is found |\n|---|---|---|---|\n")
	for _, r := range lint.Rules() {
		alone := ""
		if r.Admission {
			alone = "✓"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", r.ID, r.ID, r.Severity, alone, r.Title)
	}
	for _, r := range lint.Rules() {
		section(t, &b, &r)
	}
	return b.String()
}

// section is a rule's: what and why, its example, what is found in it, and the
// documents of the cure that are not in it.
func section(t *testing.T, b *strings.Builder, r *lint.Rule) {
	t.Helper()
	e := readExample(t, r.ID)
	fmt.Fprintf(b, "\n## %s\n\n%s: %s. %s\n\nSource: %s.\n\n", r.ID, title(r.Severity.String()), r.Title, r.Description, r.Source)
	if settings := strings.TrimSpace(e.comment); settings != "" {
		fmt.Fprintf(b, "With the kubelet's settings %s:\n\n", strings.ReplaceAll(settings, "\n", ", "))
	}
	fmt.Fprintf(b, "```yaml\n%s```\n\n", e.before)
	for _, f := range e.found {
		where := f.Object.String()
		if f.Field != "" {
			where += ": " + f.Field
		}
		fmt.Fprintf(b, "> %s: %s: %s; %s\n\n", f.Severity, where, f.Message, f.Fix)
	}
	had := strings.Split(e.before, "---\n")
	cure := slices.DeleteFunc(strings.Split(e.after, "---\n"), func(doc string) bool { return slices.Contains(had, doc) })
	fmt.Fprintf(b, "The cure:\n\n```yaml\n%s```\n", strings.Join(cure, "---\n"))
}

// title has a capital.
func title(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
