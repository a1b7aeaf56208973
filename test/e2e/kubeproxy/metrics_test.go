package kubeproxy

import (
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	kubeproxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/metrics"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/proxy/app"
)

// leftOut are kube-proxy's metrics that the service proxy lacks, and why.
var leftOut = map[string]string{
	"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":          "a rule of iptables",
	"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":      "a rule of iptables",
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":         "no iptables",
	"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": "no iptables",
	"kubeproxy_sync_proxy_rules_iptables_total":                          "no iptables",
	"kubeproxy_sync_proxy_rules_iptables_last":                           "no iptables",
}

// unset are metrics that have no value before the first transaction.
var unset = []string{
	"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
	"kubeproxy_sync_proxy_rules_no_local_endpoints_total",
}

// form is what a query depends on.
type form struct {
	Labels  string // with commas
	Type    string
	Buckets []float64
}

// TestMetrics: the metrics of kube-proxy in mode nftables are there, with its types, labels and
// buckets, and no others have its prefix.
func TestMetrics(t *testing.T) {
	theirs := formsOf(t, kubeProxyMetrics(), legacyregistry.DefaultGatherer)
	ours := formsOf(t, ourMetrics(t), nil)
	for _, name := range unset {
		f := ours[name]
		f.Type = theirs[name].Type // there is no value to see it by
		ours[name] = f
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("metrics (-kube-proxy +ours):\n%s", diff)
	}
	if len(theirs) < 15 {
		t.Errorf("kube-proxy has %d metrics, want 15 at least", len(theirs))
	}
	for _, name := range declared(t) {
		if _, ok := ours[name]; !ok && leftOut[name] == "" {
			t.Errorf("%s of kube-proxy is neither there nor left out", name)
		}
	}
}

// kubeProxyMetrics returns kube-proxy's metrics in mode nftables, each with a value.
func kubeProxyMetrics() []prometheus.Collector {
	metrics.RegisterMetrics(kubeproxyconfig.ProxyModeNFTables)
	const ipv4 = "IPv4"
	for _, h := range []interface{ Observe(float64) }{
		metrics.SyncProxyRulesLatency.WithLabelValues(ipv4), metrics.SyncFullProxyRulesLatency.WithLabelValues(ipv4),
		metrics.SyncPartialProxyRulesLatency.WithLabelValues(ipv4), metrics.NetworkProgrammingLatency.WithLabelValues(ipv4),
		metrics.ReconcileConntrackFlowsLatency.WithLabelValues(ipv4),
	} {
		h.Observe(1)
	}
	for _, c := range []interface{ Inc() }{
		metrics.SyncProxyRulesLastTimestamp.WithLabelValues(ipv4), metrics.SyncProxyRulesLastQueuedTimestamp.WithLabelValues(ipv4),
		metrics.NFTablesSyncFailuresTotal.WithLabelValues(ipv4), metrics.NFTablesCleanupFailuresTotal.WithLabelValues(ipv4),
		metrics.ProxyHealthzTotal.WithLabelValues("200"), metrics.ProxyLivezTotal.WithLabelValues("200"),
		metrics.SyncProxyRulesNoLocalEndpointsTotal.WithLabelValues("internal", ipv4),
		metrics.ReconcileConntrackFlowsDeletedEntriesTotal.WithLabelValues(ipv4),
		metrics.EndpointChangesTotal, metrics.ServiceChangesTotal,
	} {
		c.Inc()
	}
	return []prometheus.Collector{
		metrics.SyncProxyRulesLatency, metrics.SyncFullProxyRulesLatency, metrics.SyncPartialProxyRulesLatency,
		metrics.NetworkProgrammingLatency, metrics.ReconcileConntrackFlowsLatency, metrics.SyncProxyRulesLastTimestamp,
		metrics.SyncProxyRulesLastQueuedTimestamp, metrics.NFTablesSyncFailuresTotal, metrics.NFTablesCleanupFailuresTotal,
		metrics.ProxyHealthzTotal, metrics.ProxyLivezTotal, metrics.SyncProxyRulesNoLocalEndpointsTotal,
		metrics.ReconcileConntrackFlowsDeletedEntriesTotal, metrics.EndpointChangesTotal, metrics.ServiceChangesTotal,
		metrics.EndpointChangesPending, metrics.ServiceChangesPending,
	}
}

// ourMetrics returns the metrics of a service proxy that has not begun.
func ourMetrics(t *testing.T) []prometheus.Collector {
	t.Helper()
	proxy, err := app.New(app.Config{Settings: config.Default(), Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return []prometheus.Collector{proxy.Metrics()}
}

// descriptor is how the library prints the name and the labels of a metric.
var descriptor = regexp.MustCompile(`fqName: "(kubeproxy_\w+)".*variableLabels: \{([\w,]*)\}`)

// formsOf returns the forms of the metrics with kube-proxy's prefix by name. With nil, the values
// are those of a registry of the collectors alone.
func formsOf(t *testing.T, collectors []prometheus.Collector, values prometheus.Gatherer) map[string]form {
	t.Helper()
	if values == nil {
		r := prometheus.NewRegistry()
		r.MustRegister(collectors...)
		values = r
	}
	forms := make(map[string]form)
	for _, c := range collectors {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			if m := descriptor.FindStringSubmatch(d.String()); m != nil {
				forms[m[1]] = form{Labels: m[2]}
			}
		}
	}
	families, err := values.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		f, ok := forms[family.GetName()]
		if !ok {
			continue
		}
		f.Type = family.GetType().String()
		if family.GetType() == dto.MetricType_HISTOGRAM {
			for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
				f.Buckets = append(f.Buckets, b.GetUpperBound())
			}
		}
		forms[family.GetName()] = f
	}
	return forms
}

// declared returns the names of all metrics in the source of kube-proxy's package, so that a new
// one is noticed.
func declared(t *testing.T) []string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/proxy/metrics").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "metrics.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`Name: +"(\w+)"|"kubeproxy_(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		names["kubeproxy_"+m[1]+m[2]] = true
	}
	if len(names) < 20 {
		t.Fatalf("kube-proxy's source has %d names of metrics, want 20 at least", len(names))
	}
	return slices.Sorted(maps.Keys(names))
}
