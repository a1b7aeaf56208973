package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// idle is a control plane that makes nothing.
type idle struct{}

func (idle) Complete(*cluster.Tx) []cluster.Refusal { return nil }

// TestKustomizations: with a control plane a directory that is to be rendered
// first is told, as long as it is one, and without it is not.
func TestKustomizations(t *testing.T) {
	for claim, test := range map[string]struct {
		file, text string
		want       bool
	}{
		"yaml":                     {"kustomization.yaml", "patches: [{path: patch.yaml}]\n", true},
		"yaml, with what it is":    {"kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", true},
		"yml":                      {"kustomization.yml", "resources: []\n", true},
		"without an extension":     {"Kustomization", "resources: []\n", true},
		"of a directory below":     {"overlays/test/Kustomization", "resources: []\n", true},
		"a like name":              {"my-kustomization.yaml", "resources: []\n", false},
		"a like name, no manifest": {"kustomization", "resources: []\n", false},
	} {
		w := newWorld(t)
		w.source.cfg.ControlPlane = idle{}
		w.write("a.yaml", service("web", "10.0.0.1"))
		w.load()
		w.write(test.file, test.text)
		report := w.load()
		path := filepath.Join(w.dir, test.file)
		if !test.want {
			if len(report.Problems) > 0 {
				t.Errorf("%s: problems %q, want none", claim, w.texts(report.Problems))
			}
			continue
		}
		if p := report.New; len(p) != 1 || p[0].File != path || p[0].Line != 1 || p[0].Rejected ||
			!strings.Contains(p[0].Error(), "kubectl kustomize "+filepath.Dir(path)+" |") {
			t.Errorf("%s: new problems %q, want a warning of %s", claim, w.texts(p), path)
		}
		w.wantServices(claim, "shop/web [10.0.0.1]")
		if again := w.load(); len(again.New) > 0 || len(again.Problems) != 1 {
			t.Errorf("%s: loading again tells %q anew, of %q; want nothing, of one", claim, w.texts(again.New), w.texts(again.Problems))
		}
		w.must(os.Remove(path))
		if gone := w.load(); len(gone.Problems) > 0 || len(gone.Mended) != 1 {
			t.Errorf("%s: problems %q when it is gone, %q mended; want none, and one", claim, w.texts(gone.Problems), w.texts(gone.Mended))
		}
	}
	w := newWorld(t)
	w.source.cfg.Whole = true
	w.write("Kustomization", "resources: []\n")
	w.write("kustomization.yaml", "resources: []\n")
	if r := w.load(); len(r.Problems) > 0 {
		t.Errorf("without a control plane: problems %q, want none", w.texts(r.Problems))
	}
}

// TestMirrorOfATakenName: a declared slice counts, whatever a mirror would be
// called.
func TestMirrorOfATakenName(t *testing.T) {
	const mirror = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: shop}\nsubsets: [{addresses: [{ip: 10.0.0.1}]}, {addresses: [{ip: 10.0.0.2}]}]\n"
	const declared = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-mirror-0-ipv4, namespace: shop, labels: {kubernetes.io/service-name: other}}\naddressType: IPv4\nports: []\nendpoints: []\n"
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.96.0.1")+"---\n"+mirror+declared)
	w.load()
	of := make(map[string]string)
	w.store.View(func(v *cluster.View) {
		for s := range v.EndpointSlices() {
			of[s.Name] = s.Service
		}
	})
	if len(of) != 2 || of["web-mirror-0-ipv4"] != "other" || of["web-mirror-1-ipv4"] != "web" {
		t.Errorf("slices and their Services = %v, want the declared one of other, and the second mirror of web", of)
	}
}
