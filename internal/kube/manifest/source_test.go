package manifest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// world is a directory of manifests, and the Store that they are read into.
type world struct {
	t      *testing.T
	dir    string
	store  *cluster.Store
	source *Source
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), store: cluster.NewStore()}
	w.source = New(Config{Path: w.dir, Store: w.store, Log: slog.New(slog.DiscardHandler)})
	return w
}

// write writes a file, with its directory, in one step.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) load() Report {
	w.t.Helper()
	r, err := w.source.Load()
	w.must(err)
	return r
}

// services are those in the Store with their first addresses, such as
// "shop/web 10.0.0.1", sorted.
func (w *world) services() []string {
	found := []string{}
	w.store.View(func(v *cluster.View) {
		for s := range v.Services() {
			found = append(found, fmt.Sprintf("%s %v", s.Key, s.ClusterIPs))
		}
	})
	slices.Sort(found)
	return found
}

func (w *world) wantServices(claim string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), w.services()); diff != "" {
		w.t.Errorf("services after %s (-want +got):\n%s", claim, diff)
	}
}

// texts are problems without their directory.
func (w *world) texts(problems []Problem) []string {
	texts := []string{}
	for _, p := range problems {
		texts = append(texts, strings.ReplaceAll(p.Error(), w.dir+string(filepath.Separator), ""))
	}
	return texts
}

func service(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {clusterIP: %s}\n", name, ip)
}

func TestLastGoodVersionStays(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.0.0.1")+"---\n"+service("db", "10.0.0.2"))
	w.load()
	w.wantServices("loading", "shop/db [10.0.0.2]", "shop/web [10.0.0.1]")

	w.write("a.yaml", service("web", "10.0.0.x")+"---\n"+service("db", "10.0.0.3"))
	broken := w.load()
	w.wantServices("breaking a value", "shop/db [10.0.0.3]", "shop/web [10.0.0.1]")
	if got := w.texts(broken.New); len(got) != 1 || !strings.HasPrefix(got[0], "a.yaml:4: service shop/web: spec.clusterIP: ") {
		t.Errorf("problems of a broken value = %q, want one of a.yaml:4", got)
	}
	if again := w.load(); len(again.New) != 0 || len(again.Problems) != 1 {
		t.Errorf("loading again tells %q anew, of %q; want nothing, of one", again.New, again.Problems)
	}

	w.write("a.yaml", service("web", "10.0.0.1")+"---\nnot: [closed\n")
	w.load()
	w.wantServices("a document that can't be read, which may be either", "shop/db [10.0.0.3]", "shop/web [10.0.0.1]")

	w.write("a.yaml", service("web", "10.0.0.1"))
	if mended := w.load(); len(mended.Problems) != 0 || len(mended.Mended) != 1 {
		t.Errorf("problems after mending = %q, of which %q are mended; want none, and one", mended.Problems, mended.Mended)
	}
	w.wantServices("mending", "shop/web [10.0.0.1]")

	w.write("a.yaml", service("web", "10.0.0.x"))
	if broken := w.load(); len(broken.New) != 1 {
		t.Errorf("breaking anew tells %q, want one problem", broken.New)
	}
	w.must(os.Remove(filepath.Join(w.dir, "a.yaml")))
	w.load()
	w.wantServices("removing the file")
}

func TestPresentDeclarationReplacesLastValidOne(t *testing.T) {
	w := newWorld(t)
	w.write("z.yaml", service("web", "10.0.0.5"))
	w.load()
	w.write("z.yaml", service("web", "10.0.0.x"))
	w.write("a.yaml", service("web", "10.0.0.9"))
	w.load()
	w.wantServices("moving a Service out of a file that broke", "shop/web [10.0.0.9]")
}

func TestDuplicateDeclarations(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.0.0.1"))
	w.write("b.yaml", service("web", "10.0.0.2")+"---\n"+service("web", "10.0.0.3"))
	want := []string{
		"b.yaml:6: service shop/web: declared before, in b.yaml:1; this one counts",
		"b.yaml:6: service shop/web: declared before, in a.yaml:1; this one counts",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.texts(w.load().Problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	w.wantServices("declaring one three times", "shop/web [10.0.0.3]")
}

// TestProblems checks that each problem is one line with its place and reason, and that
// other objects are loaded.
func TestProblems(t *testing.T) {
	good := service("good", "10.0.0.1") + "---\n"
	for claim, c := range map[string]struct{ text, want string }{
		"a value in the second document":    {good + service("bad", "x"), `f.yaml:9: service shop/bad: spec.clusterIP: Invalid value: "x"`},
		"a name that is no label":           {good + service("Bad", "10.0.0.2"), `f.yaml:8: service shop/Bad: metadata.name: Invalid value`},
		"no name":                           {good + "apiVersion: v1\nkind: Service\n", `f.yaml:6: metadata.name: Required value`},
		"no kind":                           {good + "apiVersion: v1\n", `f.yaml:6: kind: missing`},
		"no apiVersion":                     {good + "kind: Service\n", `f.yaml:6: apiVersion: missing`},
		"not an object":                     {good + "just text\n", `f.yaml:6: `},
		"a list of numbers as List":         {good + "apiVersion: v1\nkind: List\nitems: 7\n", `f.yaml:8: items: must be a list`},
		"an unknown field":                  {good + "apiVersion: v1\nkind: Service\nmetadata:\n  name: w\n  nam: x\n", `f.yaml:10: service default/w: metadata.nam: unknown field`},
		"a duplicate key":                   {good + "apiVersion: v1\nkind: Service\nmetadata: {name: w}\nspec:\n  clusterIP: 10.0.0.2\n  clusterIP: 10.0.0.3\n", `f.yaml:11: service default/w: mapping key "clusterIP" already defined at line 10`},
		"a wrong type in a list":            {good + "apiVersion: v1\nkind: Service\nmetadata: {name: w}\nspec:\n  ports:\n  - port: 80\n  - port: http\n", `f.yaml:12: service default/w: spec.ports[1].port: wrong type: string where int32 is wanted`},
		"a wrong type at a key with dots":   {good + "apiVersion: v1\nkind: Service\nmetadata:\n  name: w\n  annotations:\n    a: b\n    example.com/x: true\n", `f.yaml:12: service default/w: metadata.annotations[example.com/x]: wrong type: bool where string is wanted`},
		"an item of a list":                 {good + "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: w}\n- metadata: {name: v}\n  spec: {clusterIP: x}\n", `f.yaml:11: service default/v: spec.clusterIP: Invalid value`},
		"a syntax error":                    {good + "kind: Service\nmetadata: {name: [w}\n", `f.yaml:7: did not find expected ',' or ']'`},
		"CRLF":                              {strings.ReplaceAll(good+service("bad", "x"), "\n", "\r\n"), `f.yaml:9: service shop/bad: spec.clusterIP: Invalid value`},
		"a family that ipFamilies excludes": {good + "apiVersion: v1\nkind: Service\nmetadata: {name: w}\nspec: {clusterIP: 10.0.0.9, ipFamilies: [IPv6]}\n", `f.yaml:9: service default/w: spec.clusterIP: Invalid value: "10.0.0.9"`},
		"one address of two Services":       {good + service("second", "10.0.0.1"), `f.yaml:6: service shop/second: cluster IP 10.0.0.1 is that of service shop/good too`},
	} {
		w := newWorld(t)
		w.write("f.yaml", c.text)
		got := w.texts(w.load().Problems)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) || strings.Contains(got[0], "\n") {
			t.Errorf("%s: problems = %q, want one line: %s", claim, got, c.want)
		}
		if s := w.services(); !slices.Contains(s, "shop/good [10.0.0.1]") {
			t.Errorf("%s: services = %q, want shop/good among them", claim, s)
		}
	}
}

// TestFilesThatAreNotManifests checks that documents that are not Kubernetes objects are
// ignored when directories are read as a whole, and that templates and incomplete
// objects are reported.
func TestFilesThatAreNotManifests(t *testing.T) {
	good := service("good", "10.0.0.1") + "---\n"
	const template = "looks like a Helm template, and can't be read as it is: render it first (helm template)"
	for claim, c := range map[string]struct {
		text       string
		notObjects int
		want       []string
	}{
		"values":                         {good + "replicas: 3\n", 1, nil},
		"a chart":                        {good + "apiVersion: v2\nname: shop\n", 1, nil},
		"a list":                         {good + "- 7\n", 1, nil},
		"a text":                         {good + "just text\n", 1, nil},
		"an object without kind":         {good + "apiVersion: v1\nmetadata: {name: web}\n", 0, []string{"f.yaml:6: kind: missing; each document is one Kubernetes object"}},
		"an object without apiVersion":   {good + "kind: Service\nmetadata: {namespace: web}\n", 0, []string{"f.yaml:6: apiVersion: missing; each document is one Kubernetes object"}},
		"a template":                     {good + "kind: Service\nmetadata:\n  name: {{ .Release.Name }}\n---\n{{- if .Values.web }}\nkind: Service\n{{- end }}\n", 0, []string{"f.yaml:8: " + template}},
		"a template in quotes":           {good + "apiVersion: v1\nkind: Service\nmetadata:\n  name: \"{{ .Release.Name }}\"\n", 0, []string{"f.yaml:9: " + template}},
		"an error beside an action":      {good + "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {a: \"{{ .a }}\"}}\nspec: {clusterIP: x}\n", 0, []string{`f.yaml:9: service default/web: spec.clusterIP: Invalid value: "x": must be an IPv4 or IPv6 address, such as 10.9.8.7 or 2001:db8::ffff`}},
		"a key that is a mapping":        {good + "a: {{b: c}: d}\n", 0, []string{"f.yaml:6: a key is a mapping or a list"}},
		"a kind with a slip":             {good + "apiVersion: v1\nkind: Servce\nmetadata: {name: web}\n", 0, []string{"f.yaml:7: servce default/web: kind: Servce is not known for v1, passed over; did you mean Service"}},
		"a kind with a slip, of a group": {good + "apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: web}\n", 0, []string{"f.yaml:7: deploymnet default/web: kind: Deploymnet is not known for apps/v1, passed over; did you mean Deployment"}},
		"a kind in capitals":             {good + "apiVersion: apps/v1\nkind: deployment\nmetadata: {name: web}\n", 0, []string{"f.yaml:7: deployment default/web: kind: deployment is not known for apps/v1, passed over; did you mean Deployment"}},
		"an old version":                 {good + "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: web}\n", 0, []string{"f.yaml:6: deployment default/web: apiVersion: apps/v1beta1 is not known for this kind, passed over"}},
		"a kind of another group":        {good + "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web}\n", 0, nil},
		"other kinds":                    {good + "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\n---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\n", 0, nil},
	} {
		w := newWorld(t)
		w.source.cfg.Whole = true
		w.write("f.yaml", c.text)
		r := w.load()
		if got := w.texts(r.Problems); !slices.Equal(got, c.want) || r.NotObjects != c.notObjects {
			t.Errorf("%s: problems = %q, %d documents are no objects; want %q, %d", claim, got, r.NotObjects, c.want, c.notObjects)
		}
		if s := w.services(); !slices.Contains(s, "shop/good [10.0.0.1]") {
			t.Errorf("%s: services = %q, want shop/good among them", claim, s)
		}
	}
}

// TestExclude checks that files and directories are excluded by name, or by path below
// the root.
func TestExclude(t *testing.T) {
	w := newWorld(t)
	w.source.cfg.Exclude = []string{"templates", "b/*.yml"}
	w.write("a/templates/f.yaml", service("a", "10.0.0.1"))
	w.write("b/f.yml", service("b", "10.0.0.2"))
	w.write("b/f.yaml", service("c", "10.0.0.3"))
	w.load()
	w.wantServices("excluding two files", "shop/c [10.0.0.3]")
}

// TestSeveralPaths checks that files, directories and standard input are one cluster.
func TestSeveralPaths(t *testing.T) {
	w := newWorld(t)
	w.write("a/f.yaml", service("a", "10.0.0.1"))
	w.write("b.yaml", service("b", "10.0.0.2"))
	w.write("c/f.yaml", service("c", "10.0.0.3"))
	w.source.cfg.Path = filepath.Join(w.dir, "a")
	w.source.cfg.Also = []string{filepath.Join(w.dir, "b.yaml"), "-"}
	w.source.cfg.Stdin = strings.NewReader(service("d", "10.0.0.4") + "---\napiVersion: v1\nmetadata: {name: x}\n")
	for _, claim := range []string{"reading", "reading again"} {
		if got, want := w.texts(w.load().Problems), []string{"<stdin>:6: kind: missing; each document is one Kubernetes object"}; !slices.Equal(got, want) {
			t.Errorf("%s: problems = %q, want %q", claim, got, want)
		}
		w.wantServices(claim, "shop/a [10.0.0.1]", "shop/b [10.0.0.2]", "shop/d [10.0.0.4]")
	}
}

func TestProblemsInJSON(t *testing.T) {
	w := newWorld(t)
	w.write("f.json", `{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "good"}, "spec": {"clusterIP": "10.0.0.1"}},
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "typed"},
		"spec": {"ports": [{"port": 80}, {"port": "http"}]}},
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "twice"}, "spec": {"clusterIP": "10.0.0.2", "clusterIP": "10.0.0.3"}}
]}
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "second"}, "spec": {"clusterIP": "10.0.0.4"}}
{"apiVersion": "v1",, }`)
	got := w.texts(w.load().Problems)
	want := []string{
		"f.json:4: service default/typed: spec.ports[1].port: wrong type: string where int32 is wanted",
		"f.json:5: service default/twice: spec.clusterIP: key given twice",
		"f.json:8: invalid character ',' looking for beginning of object key string",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	w.wantServices("loading JSON", "default/good [10.0.0.1]", "default/second [10.0.0.4]")
}

// TestFormatsOfFiles checks the forms of YAML documents and lists in which objects can
// be declared.
func TestFormatsOfFiles(t *testing.T) {
	for claim, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                         {"", nil},
		"only comments":                   {"# nothing\n---\n# here\n", nil},
		"a comment before":                {"# web\n" + service("web", "10.0.0.1"), []string{"shop/web [10.0.0.1]"}},
		"empty documents":                 {"---\n---\n" + service("web", "10.0.0.1") + "---\n", []string{"shop/web [10.0.0.1]"}},
		"a byte order mark":               {"\ufeff" + service("web", "10.0.0.1"), []string{"shop/web [10.0.0.1]"}},
		"a directive":                     {"%YAML 1.1\n---\n" + service("web", "10.0.0.1"), []string{"shop/web [10.0.0.1]"}},
		"an end marker":                   {service("web", "10.0.0.1") + "...\n" + service("db", "10.0.0.2"), []string{"shop/db [10.0.0.2]", "shop/web [10.0.0.1]"}},
		"a document on its marker's line": {"--- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.1}}\n", []string{"shop/web [10.0.0.1]"}},
		"JSON behind markers":             {`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}` + "\n---\n" + `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}}`, []string{"default/a []", "default/b []"}},
		"an anchor in the name":           {"apiVersion: v1\nkind: Service\nmetadata: {labels: {app: &app web}, name: *app}\n---\napiVersion: v1\nkind: Service\nmetadata: {labels: {app: &app db}, name: *app}\n", []string{"default/db []", "default/web []"}},
		"a merged namespace":              {"apiVersion: v1\nkind: Service\nmetadata: {<<: {namespace: shop}, name: web}\n", []string{"shop/web []"}},
		"a date as a label":               {"apiVersion: v1\nkind: Service\nmetadata: {name: web, labels: {since: 2024-01-31}}\n", []string{"default/web []"}},
		"a number as a key":               {"apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {1: x}}\n", []string{"default/web []"}},
		"a block that holds a marker":     {"apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    text: |\n      a\n      ---\n      b\n", []string{"default/web []"}},
	} {
		w := newWorld(t)
		w.write("f.yaml", c.text)
		if r := w.load(); len(r.Problems) > 0 {
			t.Errorf("%s: problems = %q, want none", claim, r.Problems)
		}
		w.wantServices(claim, c.want...)
	}
}

// TestRecalledObjectsAreDeleted checks that objects of a snapshot that no manifest
// declares are deleted when the manifests are loaded.
func TestRecalledObjectsAreDeleted(t *testing.T) {
	w := newWorld(t)
	shop := cluster.Key{Namespace: "shop", Name: "gone"}
	w.store.Update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "old"})
		tx.Put(&cluster.Service{Key: shop})
		tx.Put(&cluster.EndpointSlice{Key: shop, Service: "gone"})
		tx.Put(&cluster.Pod{Key: shop})
		tx.Put(&cluster.Node{Name: "old"})
		tx.Put(&cluster.Workload{Kind: cluster.KindJob, Key: shop})
		tx.Put(&cluster.NetworkPolicy{Key: shop})
		tx.SetFreshness(cluster.Recalled, cluster.Kinds()...)
	})
	w.source.cfg.Whole = true
	w.write("f.yaml", service("web", "10.0.0.1"))
	w.load()
	w.store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			want := 0
			if k == cluster.KindService || k == cluster.KindNamespace {
				want = 1
			}
			if n := v.Len(k); n != want {
				t.Errorf("%d objects of kind %s, want %d", n, k, want)
			}
		}
	})
	w.wantServices("a snapshot", "shop/web [10.0.0.1]")
}

// TestReadWholeObjects checks that workloads and NetworkPolicies are read, with the line
// of each field, if whole objects are requested, and ignored otherwise.
func TestReadWholeObjects(t *testing.T) {
	const text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec:\n  ports:\n  - port: 80\n  selector:\n    app: web\n" +
		"---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: web, namespace: shop}\n  spec:\n    template:\n      spec:\n        subdomain: web\n" +
		"- apiVersion: networking.k8s.io/v1\n  kind: NetworkPolicy\n  metadata: {name: none, namespace: shop}\n"
	w := newWorld(t)
	w.write("f.yaml", text)
	if report := w.load(); report.PassedOver != 2 {
		t.Errorf("%d documents are passed over, want 2", report.PassedOver)
	}
	if _, _, ok := w.source.Where(cluster.KindService, cluster.Key{Namespace: "shop", Name: "web"}, ""); ok {
		t.Error("Where knows a Service, though nobody was to ask")
	}

	all := newWorld(t)
	all.source.cfg.AllKinds = true
	all.write("f.yaml", text)
	if report := all.load(); report.PassedOver != 0 {
		t.Errorf("of all kinds, %d documents are passed over, want 0", report.PassedOver)
	}
	if _, _, ok := all.source.Where(cluster.KindService, cluster.Key{Namespace: "shop", Name: "web"}, ""); ok {
		t.Error("Where knows a Service of all kinds, though nobody was to ask")
	}

	whole := newWorld(t)
	whole.source.cfg.Whole = true
	whole.write("f.yaml", text)
	if report := whole.load(); report.PassedOver != 0 || len(report.Problems) > 0 {
		t.Errorf("%d documents are passed over, problems %v; want none", report.PassedOver, report.Problems)
	}
	web := cluster.Key{Namespace: "shop", Name: "web"}
	for _, test := range []struct {
		kind  cluster.Kind
		key   cluster.Key
		field string
		line  int
	}{
		{cluster.KindService, web, "", 1},
		{cluster.KindService, web, "spec.selector", 7},
		{cluster.KindService, web, "spec.ports[0].port", 6},
		{cluster.KindService, web, "spec.ports[0].name", 6},
		{cluster.KindService, web, "spec.externalName", 4},
		{cluster.KindDeployment, web, "", 13},
		{cluster.KindDeployment, web, "spec.template.spec.subdomain", 19},
		{cluster.KindNetworkPolicy, cluster.Key{Namespace: "shop", Name: "none"}, "metadata", 22},
	} {
		_, line, ok := whole.source.Where(test.kind, test.key, test.field)
		if !ok || line != test.line {
			t.Errorf("%s %s, %q: line %d (%v), want %d", test.kind, test.key, test.field, line, ok, test.line)
		}
	}
	whole.write("f.yaml", "")
	whole.load()
	whole.store.View(func(v *cluster.View) {
		if n := v.Len(cluster.KindDeployment) + v.Len(cluster.KindNetworkPolicy); n != 0 {
			t.Errorf("%d are there after they were taken out, want none", n)
		}
	})
}

// TestUnreadableFile checks that a file or directory that cannot be read keeps its last
// content, and that others are not affected.
func TestUnreadableFile(t *testing.T) {
	w := newWorld(t)
	w.write("sub/a.yaml", service("a", "10.0.0.1"))
	w.write("b.yaml", service("b", "10.0.0.2"))
	w.load()
	w.must(os.Symlink("loop.yaml", filepath.Join(w.dir, "loop.yaml")))
	w.must(os.Rename(filepath.Join(w.dir, "sub"), filepath.Join(w.dir, ".gone")))
	w.must(os.Symlink("sub", filepath.Join(w.dir, "sub")))
	w.write("b.yaml", service("b", "10.0.0.3"))
	if r := w.load(); len(r.Problems) != 2 {
		t.Errorf("problems = %q, want one each of loop.yaml and sub", r.Problems)
	}
	w.wantServices("links that lead to themselves", "shop/a [10.0.0.1]", "shop/b [10.0.0.3]")
}

func TestMissingRoot(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.0.0.1"))
	w.load()
	w.must(os.RemoveAll(w.dir))
	if _, err := w.source.Load(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load without its directory = %v, want %v", err, os.ErrNotExist)
	}
	w.wantServices("removing the directory", "shop/web [10.0.0.1]")
}

// follow runs the source beside the test, and gives what waits for the
// services to be as wanted, and the time that took.
func (w *world) follow() (await func(claim string, want ...string)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	loaded := make(chan struct{})
	var once sync.Once
	running.Go(func() {
		if err := w.source.Run(ctx, func(Report) { once.Do(func() { close(loaded) }) }); !errors.Is(err, context.Canceled) {
			w.t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-loaded
	return func(claim string, want ...string) {
		w.t.Helper()
		feed := w.store.Subscribe()
		defer feed.Close()
		start := time.Now()
		deadline, stop := context.WithTimeout(ctx, 1500*time.Millisecond) // less than rescan
		defer stop()
		for !slices.Equal(append([]string{}, want...), w.services()) {
			if _, err := feed.Next(deadline); err != nil {
				w.wantServices(claim+", which was not seen in time", want...)
				return
			}
		}
		w.t.Logf("%s was seen after %s", claim, time.Since(start).Round(time.Millisecond))
	}
}

func TestFollow(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.0.0.1"))
	await := w.follow()
	path := func(name string) string { return filepath.Join(w.dir, name) }

	w.write("a.yaml", service("web", "10.0.0.2"))
	await("writing a file", "shop/web [10.0.0.2]")
	w.write("a.yaml.tmp", service("web", "10.0.0.3"))
	w.must(os.Rename(path("a.yaml.tmp"), path("a.yaml")))
	await("renaming over a file", "shop/web [10.0.0.3]")
	w.write("deep/er/b.yaml", service("db", "10.0.0.4"))
	await("a directory that is new", "shop/db [10.0.0.4]", "shop/web [10.0.0.3]")
	w.write("deep/er/b.yaml", service("db", "10.0.0.5"))
	await("a change in the new directory", "shop/db [10.0.0.5]", "shop/web [10.0.0.3]")
	w.must(os.Remove(path("a.yaml")))
	await("removing a file", "shop/db [10.0.0.5]")
	w.write("a.yaml", service("web", "10.0.0.6"))
	await("its return", "shop/db [10.0.0.5]", "shop/web [10.0.0.6]")
	w.must(os.RemoveAll(path("deep")))
	await("removing a directory", "shop/web [10.0.0.6]")
	w.must(os.Rename(w.dir, w.dir+".away"))
	w.must(os.Mkdir(w.dir, 0o700))
	w.write("a.yaml", service("web", "10.0.0.7"))
	await("another directory of that name", "shop/web [10.0.0.7]")
	w.write("a.yaml", service("web", "10.0.0.8"))
	await("a change in it", "shop/web [10.0.0.8]")
}

// TestFollowConfigMap checks that all files of a mounted ConfigMap change at once, when
// the link ..data is replaced.
func TestFollowConfigMap(t *testing.T) {
	w := newWorld(t)
	path := func(name string) string { return filepath.Join(w.dir, name) }
	w.write("..1/a.yaml", service("web", "10.0.0.1"))
	w.must(os.Symlink("..1", path("..data")))
	w.must(os.Symlink(filepath.Join("..data", "a.yaml"), path("a.yaml")))
	await := w.follow()
	for i := 2; i < 5; i++ {
		version := fmt.Sprintf("..%d", i)
		w.write(version+"/a.yaml", service("web", fmt.Sprintf("10.0.0.%d", i)))
		w.must(os.Symlink(version, path("..data_tmp")))
		w.must(os.Rename(path("..data_tmp"), path("..data")))
		await("swapping ..data", fmt.Sprintf("shop/web [10.0.0.%d]", i))
	}
}

// TestFollowLinks checks changes of each symbolic link on the path to manifests, and of
// their targets.
func TestFollowLinks(t *testing.T) {
	base := t.TempDir()
	w := newWorld(t)
	path := func(name string) string { return filepath.Join(base, name) }
	write := func(name, text string) {
		w.must(os.MkdirAll(filepath.Dir(path(name)), 0o700))
		w.must(os.WriteFile(path(name), []byte(text), 0o600))
	}
	write("one/k8s/a.yaml", service("a", "10.0.0.1"))
	write("two/k8s/a.yaml", service("a", "10.0.0.2"))
	write("shared.yaml", service("s", "10.0.0.3"))
	for _, version := range []string{"one", "two"} {
		w.must(os.Symlink(path("shared.yaml"), path(version+"/k8s/s.yaml")))
	}
	w.must(os.Symlink("one", path("current")))
	w.source = New(Config{Path: path("current/k8s"), Store: w.store, Log: slog.New(slog.DiscardHandler)})
	await := w.follow()
	await("loading through a link", "shop/a [10.0.0.1]", "shop/s [10.0.0.3]")
	w.must(os.Symlink("two", path("next")))
	w.must(os.Rename(path("next"), path("current")))
	await("swapping a link above the tree", "shop/a [10.0.0.2]", "shop/s [10.0.0.3]")
	write("shared.yaml", service("s", "10.0.0.4"))
	await("a change of what a link in the tree leads to", "shop/a [10.0.0.2]", "shop/s [10.0.0.4]")
}

// TestLinkedDirectories checks that directories that link each other are read once each: the
// paths through them are too many.
func TestLinkedDirectories(t *testing.T) {
	const directories = 15
	w := newWorld(t)
	var want []string
	for i := range directories {
		dir := fmt.Sprintf("d%d", i)
		w.write(dir+"/a.yaml", service(fmt.Sprintf("s%02d", i), fmt.Sprintf("10.0.0.%d", i)))
		want = append(want, fmt.Sprintf("shop/s%02d [10.0.0.%d]", i, i))
		for j := range directories {
			w.must(os.Symlink(fmt.Sprintf("../d%d", j), filepath.Join(w.dir, dir, fmt.Sprintf("to-%d", j))))
		}
	}
	if problems := w.texts(w.load().New); len(problems) > 0 {
		t.Errorf("problems %q, want none", problems)
	}
	w.wantServices("loading", want...)
}

// TestAliases checks that a document whose aliases expand to too much is refused before it
// is decoded, and that others are not affected.
func TestAliases(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9)+fmt.Sprintf("*a%d", i))
	}
	const itself = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: itself}\ndata: &a {b: *a}\n"
	const good = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: &l {app: web}}\n" +
		"spec: {clusterIP: 10.0.0.1, selector: *l}\n"
	w := newWorld(t)
	w.write("a.yaml", bomb.String()+"---\n"+itself+"---\n"+good)
	got := w.texts(w.load().New)
	want := []string{
		"a.yaml:1: configmap default/bomb: its aliases expand to more than 4 MiB; write the values out",
		"a.yaml:15: configmap default/itself: its aliases expand to more than 4 MiB; write the values out",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	w.wantServices("loading", "shop/web [10.0.0.1]")
}

func TestFollowOneFile(t *testing.T) {
	w := newWorld(t)
	w.write("real/a.yaml", service("web", "10.0.0.1"))
	link := filepath.Join(w.dir, "link.yaml")
	w.must(os.Symlink(filepath.Join("real", "a.yaml"), link))
	w.source = New(Config{Path: link, Store: w.store, Log: slog.New(slog.DiscardHandler)})
	await := w.follow()
	w.write("real/a.yaml", service("web", "10.0.0.2"))
	await("a change of the file behind a link", "shop/web [10.0.0.2]")
}

func TestFollowTheWorkingDirectory(t *testing.T) {
	w := newWorld(t)
	w.write("a.yaml", service("web", "10.0.0.1"))
	t.Chdir(w.dir)
	w.source = New(Config{Path: ".", Store: w.store, Log: slog.New(slog.DiscardHandler)})
	await := w.follow()
	w.write("a.yaml", service("web", "10.0.0.2"))
	await("a change in the working directory", "shop/web [10.0.0.2]")
}

// describe is what a file says, but for values.
func describe(d *decoded) []string {
	lines := []string{fmt.Sprint(d.broken, d.namespaces, d.unreadable, d.passedOver)}
	for _, o := range d.objects {
		lines = append(lines, fmt.Sprintf("%s:%d %s", o.file, o.line, o.id))
	}
	for _, p := range d.problems {
		lines = append(lines, p.Error())
	}
	return lines
}

// TestUnchangedDocumentsAreNotDecoded checks that unchanged documents are not decoded
// again, even if they have moved within their file.
func TestUnchangedDocumentsAreNotDecoded(t *testing.T) {
	web := service("web", "10.0.0.1")
	first := decodeFile("f", []byte("---\n"+web+"---\n"+service("db", "10.0.0.2")), nil, kindsOfNames)
	second := decodeFile("f", []byte("# moved\n---\n"+service("new", "10.0.0.3")+"---\n"+web), first.chunks, kindsOfNames)
	if len(second.objects) != 2 || second.objects[1].value != first.objects[0].value {
		t.Errorf("objects = %+v, want the known shop/web as it was", second.objects)
	}
	fresh := decodeFile("f", []byte("# moved\n---\n"+service("new", "10.0.0.3")+"---\n"+web), nil, kindsOfNames)
	if diff := cmp.Diff(describe(fresh), describe(second)); diff != "" {
		t.Errorf("with what is known (-fresh +known):\n%s", diff)
	}
}

// FuzzManifest checks that no file causes a panic, that each problem is one line about a
// line of the file, and that each object has a key.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(service("web", "10.0.0.1") + "---\n" + service("db", "x")))
	f.Add([]byte("--- {kind: Service, apiVersion: v1}\n...\n%YAML 1.1\n---\na: &a [*a]\n"))
	f.Add([]byte(`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod", "apiVersion": "v1"}, 7, {"kind": "Service", "a": 1, "a": 2}]}`))
	f.Add([]byte("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, labels: {kubernetes.io/service-name: b}}\naddressType: IPv4\nendpoints: [{addresses: [\"10.0.0.1\", fd00::1], conditions: {ready: false}}]\nports: [{port: 80}]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1, hostname: h}], ports: [{port: 1}]}]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Service\nmetadata: {<<: {namespace: a}, name: b, 1: 2, annotations: {a.b/c: true}}\r\nspec: {ports: [{port: 2024-01-01}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decodeFile("f", data, nil, kindsOfNames)
		if again := decodeFile("f", data, d.chunks, kindsOfNames); !cmp.Equal(describe(d), describe(again)) {
			t.Errorf("decodeFile(%q) = %q, and with what is known %q", data, describe(d), describe(again))
		}
		lines := 1 + strings.Count(string(data), "\n")
		for _, p := range d.problems {
			if p.Line < 1 || p.Line > lines+1 || strings.Contains(p.Error(), "\n") || p.Err == nil {
				t.Errorf("decodeFile(%q): problem %q of line %d, of %d lines", data, p.Error(), p.Line, lines)
			}
		}
		for _, o := range d.objects {
			if o.id.key.Name == "" || o.line < 1 || o.line > lines+1 || o.value == nil {
				t.Errorf("decodeFile(%q): object %+v", data, o)
			}
		}
	})
}

// TestAgeOfManifests checks that objects without creationTimestamp are as old as their files and their
// places in them say, and that others are older.
func TestAgeOfManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source.cfg.AllKinds = true
	class := func(name, rest string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: " + name + rest + "}\n---\n"
	}
	oldest := func() (names []string) {
		var all []*cluster.IngressClass
		w.store.View(func(v *cluster.View) { all = slices.Collect(cluster.IngressClasses.All(v)) })
		slices.SortFunc(all, func(a, b *cluster.IngressClass) int { return a.Compare(b.Age) })
		for _, c := range all {
			names = append(names, c.Name)
		}
		return names
	}
	w.write("b.yaml", class("b2", "")+class("b1", ""))
	w.write("c.yaml", class("c1", ", creationTimestamp: 2024-01-01T00:00:00Z")+class("c2", ""))
	w.load()
	if got, want := oldest(), []string{"c1", "b2", "b1", "c2"}; !slices.Equal(got, want) {
		t.Errorf("by age: %v, want %v", got, want)
	}
	w.write("a.yaml", class("a1", ""))
	w.write("b.yaml", class("b1", "")+class("b2", ""))
	w.load()
	if got, want := oldest(), []string{"c1", "a1", "b1", "b2", "c2"}; !slices.Equal(got, want) {
		t.Errorf("by age, after a change: %v, want %v", got, want)
	}
}
