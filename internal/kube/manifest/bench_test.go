package manifest_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
)

// BenchmarkOneFile rewrites a file of one Service beside 100 files of 100
// Services each, and reads the change. With simulate there is a control plane,
// and each Service has a Deployment of one Pod.
func BenchmarkOneFile(b *testing.B) {
	for _, simulated := range []bool{false, true} {
		b.Run(fmt.Sprintf("simulate=%t", simulated), func(b *testing.B) {
			dir := b.TempDir()
			for i := range 100 {
				var text strings.Builder
				for j := range 100 {
					writeService(&text, fmt.Sprintf("ns-%d", i), fmt.Sprintf("service-%d", j), 80)
					if simulated {
						writeDeployment(&text, fmt.Sprintf("ns-%d", i), fmt.Sprintf("service-%d", j))
					}
				}
				writeFile(b, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), text.String())
			}
			cfg := manifest.Config{Path: dir, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)}
			if simulated {
				plane, err := simulate.New(simulate.Config{
					ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/12")},
					PodRanges:     []netip.Prefix{netip.MustParsePrefix("10.192.0.0/14")},
					Log:           cfg.Log,
				})
				if err != nil {
					b.Fatal(err)
				}
				cfg.ControlPlane = plane
			}
			source := manifest.New(cfg)
			load(b, source)
			port := 1000
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				port++
				var text strings.Builder
				writeService(&text, "ns-0", "changing", port%60000)
				writeFile(b, filepath.Join(dir, "changing.yaml"), text.String())
				b.StartTimer()
				load(b, source)
			}
		})
	}
}

func load(b *testing.B, source *manifest.Source) {
	b.Helper()
	if _, err := source.Load(); err != nil {
		b.Fatal(err)
	}
}

func writeFile(b *testing.B, path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func writeService(text *strings.Builder, namespace, name string, port int) {
	fmt.Fprintf(text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s}\nspec: {selector: {app: %s}, ports: [{port: %d}]}\n", name, namespace, name, port)
}

func writeDeployment(text *strings.Builder, namespace, name string) {
	fmt.Fprintf(text, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, namespace: %s}\nspec: {selector: {matchLabels: {app: %s}}, template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: main}]}}}\n", name, namespace, name, name)
}
