package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// chartValue is a value of the chart, as values.yaml describes it.
type chartValue struct {
	path, text, description string
	section                 bool
}

// schemaNode is a part of values.schema.json.
type schemaNode struct {
	Properties map[string]*schemaNode `json:"properties"`
	// AdditionalProperties is false where Properties are all that there are.
	AdditionalProperties json.RawMessage `json:"additionalProperties"`
}

func (n *schemaNode) closed() bool { return n != nil && string(n.AdditionalProperties) == "false" }

// chartValues are the values in the order of values.yaml. What the schema leaves open,
// such as config, is one value.
func chartValues(t *testing.T) (values []chartValue, schema *schemaNode) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(chartDir, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(chartDir, "values.yaml"))), &document); err != nil {
		t.Fatal(err)
	}
	return valuesBelow(t, document.Content[0], schema, ""), schema
}

func valuesBelow(t *testing.T, mapping *yaml.Node, schema *schemaNode, prefix string) (values []chartValue) {
	t.Helper()
	for pair := range slices.Chunk(mapping.Content, 2) {
		key, value := pair[0], pair[1]
		v := chartValue{path: prefix + key.Value, description: describe(key.HeadComment, key.LineComment, value.LineComment)}
		part := schema.Properties[key.Value]
		if v.section = value.Kind == yaml.MappingNode && part.closed(); v.section {
			values = append(values, v)
			values = append(values, valuesBelow(t, value, part, v.path+".")...)
			continue
		}
		v.text = defaultText(t, value)
		values = append(values, v)
	}
	return values
}

// describe joins comments to a sentence or more.
func describe(comments ...string) string {
	var words []string
	for _, comment := range comments {
		words = append(words, strings.Fields(strings.ReplaceAll(comment, "#", ""))...)
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// defaultText is a default in one cell of a table.
func defaultText(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var value any
	if err := node.Decode(&value); err != nil {
		t.Fatal(err)
	}
	if text, is := value.(string); is && text != "" {
		return "`" + text + "`"
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	const widest = 60
	if len(text) > widest {
		return "[values.yaml](values.yaml)"
	}
	return "`" + string(text) + "`"
}

// chartTable begins the part of the chart's README.md that is made of values.yaml.
const chartTable = "<!-- From here on: go test ./test/deploy -run TestChartReadme -update, from values.yaml. -->\n"

// TestChartReadme: README.md of the chart has every value of values.yaml, with its
// default and its comment.
func TestChartReadme(t *testing.T) {
	t.Parallel()
	values, _ := chartValues(t)
	var b strings.Builder
	b.WriteString("\n| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values {
		if v.description == "" {
			t.Errorf("values.yaml: %s has no comment", v.path)
		}
		name := "`" + v.path + "`"
		if v.section {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, v.text, v.description)
	}
	file := filepath.Join(chartDir, "README.md")
	page := readFile(t, file)
	intro, _, found := strings.Cut(page, chartTable)
	if !found {
		t.Fatalf("%s has no line %q", file, chartTable)
	}
	want := intro + chartTable + b.String()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("%s (-values.yaml +file), run with -update:\n%s", file, diff)
	}
}

// TestChartSchema: the schema has the values of values.yaml, no fewer and no others.
func TestChartSchema(t *testing.T) {
	t.Parallel()
	values, schema := chartValues(t)
	var given []string
	for _, v := range values {
		given = append(given, v.path)
	}
	known := schemaPaths(schema, "")
	slices.Sort(given)
	slices.Sort(known)
	if diff := cmp.Diff(given, known); diff != "" {
		t.Errorf("values (-values.yaml +values.schema.json):\n%s", diff)
	}
}

func schemaPaths(schema *schemaNode, prefix string) (paths []string) {
	for name, part := range schema.Properties {
		if prefix+name == "global" { // of Helm
			continue
		}
		paths = append(paths, prefix+name)
		if part.closed() {
			paths = append(paths, schemaPaths(part, prefix+name+".")...)
		}
	}
	return paths
}
