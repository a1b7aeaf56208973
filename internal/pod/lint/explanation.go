package lint

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// examples has an archive for each rule, examples/ID.txtar. Its comment has the
// kubelet's settings that the example needs, such as "cluster-dns: none". Its files are
// before.yaml, which breaks the rule and no other one, after.yaml, which breaks none, and
// findings, which a test generates.
//
//go:embed examples/*.txtar
var examples embed.FS

// explanationWidth is the maximum width of a line of text, in characters.
const explanationWidth = 80

// Explanation returns a description of the rule for a terminal: what it finds and why
// it matters, the cure, the source, and an example with the findings and the cured
// manifests. A rule about manifests themselves has no example.
func (r *Rule) Explanation() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s\n", r.ID, r.Severity, r.Title)
	for _, paragraph := range []string{r.Description, "Cure: " + r.Cure + ".", "Source: " + r.Source + "."} {
		b.WriteString("\n")
		wrap(&b, "", paragraph)
	}
	data, err := examples.ReadFile("examples/" + r.ID + ".txtar")
	if errors.Is(err, fs.ErrNotExist) {
		return b.String(), nil
	}
	if err != nil {
		return "", err
	}
	archive := txtar.Parse(data)
	files := make(map[string]string)
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	b.WriteString("\nExample")
	if settings := strings.TrimSpace(string(archive.Comment)); settings != "" {
		fmt.Fprintf(&b, " (with the kubelet's settings %s)", strings.ReplaceAll(settings, "\n", ", "))
	}
	b.WriteString(":\n\n" + indent(files["before.yaml"]) + "\nportolan check reports:\n\n")
	for finding := range strings.Lines(files["findings"]) {
		wrap(&b, "    ", finding)
	}
	b.WriteString("\nCured:\n\n" + indent(changedDocuments(files["before.yaml"], files["after.yaml"])))
	return b.String(), nil
}

// changedDocuments returns the YAML documents of after that before does not have.
func changedDocuments(before, after string) string {
	const separator = "---\n"
	unchanged := strings.Split(before, separator)
	return strings.Join(slices.DeleteFunc(strings.Split(after, separator), func(document string) bool {
		return slices.Contains(unchanged, document)
	}), separator)
}

// indent indents each line by four spaces.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// wrap writes a paragraph in lines of at most explanationWidth characters, if its words
// fit, each with the prefix.
func wrap(b *strings.Builder, prefix, paragraph string) {
	width := 0
	for word := range strings.FieldsSeq(paragraph) {
		switch n := len([]rune(word)); {
		case width == 0:
			b.WriteString(prefix + word)
			width = len(prefix) + n
		case width+1+n > explanationWidth:
			b.WriteString("\n" + prefix + word)
			width = len(prefix) + n
		default:
			b.WriteString(" " + word)
			width += 1 + n
		}
	}
	b.WriteString("\n")
}
