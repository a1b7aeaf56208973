package deploy

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	deployDir = "../../deploy"
	chartDir  = deployDir + "/helm/portolan"
)

// object is one API object, as its document spells it.
type object map[string]any

// objects are those that one way of deploying renders, by Kind/name.
type objects map[string]object

// variants are the ways of deploying that we ship.
func variants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize/base":   kustomized(t, "base"),
		"kustomize/beside": kustomized(t, "beside"),
		"helm":             rendered(t, nil),
		"helm/beside":      rendered(t, beside(t)),
	}
}

// kustomized builds one of deploy/kustomize.
func kustomized(t *testing.T, name string) objects {
	t.Helper()
	return kustomizedIn(t, filepath.Join(deployDir, "kustomize", name))
}

// kustomizedIn builds a directory.
func kustomizedIn(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	all.read(t, string(text))
	return all
}

// rendered is what helm template gives for a release portolan in kube-system.
func rendered(t *testing.T, values map[string]any) objects {
	t.Helper()
	all, err := render(t, values)
	if err != nil {
		t.Fatalf("helm template with %v: %v", values, err)
	}
	return all
}

func render(t *testing.T, values map[string]any) (objects, error) {
	t.Helper()
	return renderIn(t, "kube-system", values)
}

func renderIn(t *testing.T, namespace string, values map[string]any) (objects, error) {
	t.Helper()
	all, _, err := renderChart(t, loaded(t), namespace, values, clusterOf("v1.36.0"))
	return all, err
}

// loaded is the chart as it is shipped.
func loaded(t *testing.T) *v2.Chart {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatalf("chart: %v", err)
	}
	if err := chart.Validate(); err != nil {
		t.Fatalf("chart: %v", err)
	}
	return chart
}

// clusterOf is a cluster of a version of Kubernetes.
func clusterOf(version string) *common.Capabilities {
	cluster := *common.DefaultCapabilities
	cluster.KubeVersion = common.KubeVersion{Version: version}
	return &cluster
}

// renderChart gives the objects of a chart, and its notes.
func renderChart(t *testing.T, chart *v2.Chart, namespace string, values map[string]any, cluster *common.Capabilities) (all objects, notes string, err error) {
	t.Helper()
	release := common.ReleaseOptions{Name: "portolan", Namespace: namespace, Revision: 1, IsInstall: true}
	given, err := util.ToRenderValues(chart, values, release, cluster)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, given)
	if err != nil {
		return nil, "", err
	}
	all = objects{}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".txt") {
			texts = append(texts, files[name])
			continue
		}
		all.read(t, files[name])
	}
	return all, strings.Join(texts, ""), nil
}

// beside are the values of values-beside.yaml.
func beside(t *testing.T) map[string]any {
	t.Helper()
	return valuesOf(t, readFile(t, filepath.Join(chartDir, "values-beside.yaml")))
}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// read adds the objects of a stream of documents.
func (all objects) read(t *testing.T, text string) {
	t.Helper()
	for docs := kyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := yaml.UnmarshalStrict(doc, &o); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		if len(o) == 0 { // comments only
			continue
		}
		if _, twice := all[o.key()]; twice {
			t.Fatalf("%s is rendered twice", o.key())
		}
		all[o.key()] = o
	}
}

func (o object) key() string { return o["kind"].(string) + "/" + o.name() }

func (o object) name() string {
	name, _ := o["metadata"].(map[string]any)["name"].(string)
	return name
}

// as decodes the only object of a kind into the API's type; a field that the
// type has not is an error.
func as[T any](t *testing.T, all objects, kind string) T {
	t.Helper()
	var typed T
	var found []string
	for key, o := range all {
		if o["kind"] != kind {
			continue
		}
		found = append(found, key)
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &typed); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	if len(found) != 1 {
		t.Fatalf("objects of kind %s: %v, want one", kind, found)
	}
	return typed
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
