package prometheus

// publicDashboard has the queries of a dashboard that others made for CoreDNS or kube-proxy, without the selectors of
// its variables, written down from what it shows. docs/from-coredns.md and docs/proxy.md name the panels without data.
type publicDashboard struct {
	name    string
	queries []string
}

var public = []publicDashboard{
	{"kubernetes-mixin, Proxy (dashboards/proxy.libsonnet)", []string{
		"sum(up)",
		"sum(rate(kubeproxy_sync_proxy_rules_duration_seconds_count[5m]))",
		"histogram_quantile(0.99, rate(kubeproxy_sync_proxy_rules_duration_seconds_bucket[5m]))",
		"sum(rate(kubeproxy_network_programming_duration_seconds_count[5m]))",
		"histogram_quantile(0.99, sum by (instance, le) (rate(kubeproxy_network_programming_duration_seconds_bucket[5m])))",
		"process_resident_memory_bytes", "rate(process_cpu_seconds_total[5m])", "go_goroutines",
	}},
	{"Kubernetes / System / CoreDNS (grafana.com 15762)", []string{
		"up", "process_resident_memory_bytes", "rate(process_cpu_seconds_total[1m])",
		"sum by (type) (coredns_cache_entries)",
		"sum by (le) (increase(coredns_dns_request_duration_seconds_bucket[1m]))",
		`sum by (le) (increase(coredns_dns_request_size_bytes_bucket{le!="0"}[1m]))`,
		`sum by (le) (increase(coredns_dns_response_size_bytes_bucket{le!="0"}[1m]))`,
		"sum by (type) (rate(coredns_cache_hits_total[1m]))", "sum by (type) (rate(coredns_cache_misses_total[1m]))",
		`sum by (proto) (rate(coredns_dns_request_size_bytes_sum{proto="udp"}[1m]))`,
		`sum by (proto) (rate(coredns_dns_request_size_bytes_count{proto="tcp"}[1m]))`,
		"sum by (type) (rate(coredns_dns_requests_total[1m]))", `sum(rate(coredns_dns_requests_total{proto="udp"}[1m]))`,
		"sum by (rcode) (rate(coredns_dns_responses_total[1m]))",
		`sum(rate(coredns_proxy_request_duration_seconds_count{proxy_name="forward"}[1m]))`,
		"sum by (rcode) (rate(coredns_proxy_request_duration_seconds_count" +
			`{proxy_name="forward",rcode=~"SERVFAIL|REFUSED"}[1m]))`,
	}},
	{"kube-prometheus-stack, CoreDNS (k8s-coredns.yaml)", []string{
		"sum(rate(coredns_dns_requests_total[5m]))", "sum by (proto) (rate(coredns_dns_requests_total[5m]))",
		"sum by (zone) (rate(coredns_dns_requests_total[5m]))", "sum by (type) (rate(coredns_dns_requests_total[5m]))",
		"sum by (rcode) (rate(coredns_dns_responses_total[5m]))", "sum by (type) (coredns_cache_entries)",
		"histogram_quantile(0.99, sum by (le, job) (rate(coredns_dns_request_duration_seconds_bucket[5m])))",
		`histogram_quantile(0.99, sum by (le, proto) (rate(coredns_dns_request_size_bytes_bucket{proto="udp"}[5m])))`,
		`histogram_quantile(0.99, sum by (le, proto) (rate(coredns_dns_response_size_bytes_bucket{proto="tcp"}[5m])))`,
	}},
	{"coredns-mixin (dashboards/coredns.libsonnet)", []string{
		"sum(coredns_panics_total)", "sum(coredns_cache_entries)",
		"histogram_quantile(0.99, sum by (le) (rate(coredns_dns_response_size_bytes_bucket[5m])))",
		"histogram_quantile(0.99, sum by (le) (rate(coredns_kubernetes_dns_programming_duration_seconds_bucket[5m])))",
	}},
}
