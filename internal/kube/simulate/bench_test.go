package simulate_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
)

// project writes manifests of 10,000 Services with ten Pods each into a hundred files.
// The Pods are declared, or created by Deployments.
func project(b *testing.B, ext string, deployments bool) (dir string) {
	b.Helper()
	dir = b.TempDir()
	for i := range 100 {
		var text bytes.Buffer
		for j := range 100 {
			name := fmt.Sprintf("service-%d", 100*i+j)
			document(&text, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"%s","namespace":"ns-%d","labels":{"app":"%s"}},"spec":{"selector":{"app":"%s"},"ports":[{"name":"http","port":80,"targetPort":"http"}]}}`, name, i, name, name)
			if deployments {
				document(&text, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%s","namespace":"ns-%d"},"spec":{"replicas":10,"selector":{"matchLabels":{"app":"%s"}},"template":{"metadata":{"labels":{"app":"%s"}},"spec":{"containers":[{"name":"main","image":"registry.example/main:1","ports":[{"name":"http","containerPort":8080}]}]}}}}`,
					name, i, name, name)
				continue
			}
			for k := range 10 {
				n := 1000*i + 10*j + k
				document(&text, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-%d","namespace":"ns-%d","labels":{"app":"%s"}},"spec":{"nodeName":"node-%d","containers":[{"name":"main","image":"registry.example/main:1","ports":[{"name":"http","containerPort":8080}]}]},"status":{"phase":"Running","podIP":"10.%d.%d.%d","conditions":[{"type":"Ready","status":"True"}]}}`,
					name, k, i, name, n%100, 128+n>>16, n>>8&255, n&255)
			}
		}
		data := text.Bytes()
		if ext == "yaml" {
			data = asYAML(b, data)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.%s", i, ext)), data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func document(text *bytes.Buffer, format string, args ...any) {
	fmt.Fprintf(text, format, args...)
	text.WriteByte('\n')
}

// asYAML converts lines of JSON to YAML documents in block style.
func asYAML(b *testing.B, lines []byte) []byte {
	b.Helper()
	var text bytes.Buffer
	for line := range bytes.Lines(lines) {
		doc, err := yaml.JSONToYAML(line)
		if err != nil {
			b.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(doc)
	}
	return text.Bytes()
}

// BenchmarkReady measures the time to complete 10,000 Services and 100,000 Pods and to
// compile them into the zone: from objects in memory, with declared Pods or with
// Deployments, and from files.
func BenchmarkReady(b *testing.B) {
	for _, from := range []string{"objects", "deployments", "json", "yaml"} {
		b.Run("from="+from, func(b *testing.B) {
			ext := "json"
			if from == "yaml" {
				ext = "yaml"
			}
			dir := project(b, ext, from == "deployments")
			objects := decoded(b, dir)
			for b.Loop() {
				store, zones := cluster.NewStore(), newZones(b)
				feed := store.Subscribe()
				plane, err := simulate.New(benchSettings())
				if err != nil {
					b.Fatal(err)
				}
				if from == "objects" || from == "deployments" {
					store.Update(func(tx *cluster.Tx) {
						objects(tx)
						plane.Complete(tx)
					})
				} else if _, err := manifest.New(manifest.Config{Path: dir, Store: store, Log: settings().Log, ControlPlane: plane}).Load(); err != nil {
					b.Fatal(err)
				}
				db, err := zones.NewDB()
				if err != nil {
					b.Fatal(err)
				}
				zones.Apply(store, feed, db)
				feed.Close()
			}
		})
	}
}

func benchSettings() simulate.Config {
	return settings(func(c *simulate.Config) {
		c.ServiceRanges, c.PodRanges = prefixes("10.64.0.0/12"), prefixes("10.192.0.0/14")
	})
}

func newZones(b *testing.B) *kubezone.Compiler {
	b.Helper()
	c, err := kubezone.New(kubezone.Config{Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, TTL: 5, Pods: kubezone.PodsVerified})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// decoded returns a function that puts the declared objects of a directory into a
// transaction.
func decoded(b *testing.B, dir string) func(*cluster.Tx) {
	b.Helper()
	store := cluster.NewStore()
	if _, err := manifest.New(manifest.Config{Path: dir, Store: store, Log: settings().Log, Whole: true}).Load(); err != nil {
		b.Fatal(err)
	}
	return func(tx *cluster.Tx) {
		store.View(func(v *cluster.View) {
			for n := range v.Namespaces() {
				tx.Put(n)
			}
			for s := range v.Services() {
				tx.Put(s)
			}
			for p := range v.Pods() {
				tx.Put(p)
			}
			for _, k := range cluster.WorkloadKinds() {
				for w := range v.Workloads(k) {
					tx.Put(w)
				}
			}
			tx.SetFreshness(cluster.Live, cluster.Kinds()...)
		})
	}
}

// BenchmarkPodChange measures the simulation's share of a transaction that changes one of
// 10,000 Deployments of ten Pods each, in 100 Namespaces.
func BenchmarkPodChange(b *testing.B) {
	objects := decoded(b, project(b, "json", true))
	store := cluster.NewStore()
	plane, err := simulate.New(benchSettings())
	if err != nil {
		b.Fatal(err)
	}
	update := func(change func(*cluster.Tx)) {
		store.Update(func(tx *cluster.Tx) {
			change(tx)
			plane.Complete(tx)
		})
	}
	update(objects)
	replicas := 10
	for b.Loop() {
		update(func(tx *cluster.Tx) {
			key := cluster.Key{Namespace: "ns-7", Name: "service-742"}
			changed := *tx.Workload(cluster.KindDeployment, key)
			replicas = 21 - replicas
			changed.Replicas = replicas
			tx.Put(&changed)
		})
	}
}
