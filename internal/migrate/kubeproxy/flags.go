package kubeproxy

// flags are kube-proxy's flags that this program lacks, and the fields that they set; those of
// no field have an empty one.
var flags = map[string]string{
	"bind-address":                      "bindAddress",
	"bind-address-hard-fail":            "bindAddressHardFail",
	"boot_id_file":                      "",
	"config-sync-period":                "configSyncPeriod",
	"conntrack-max-per-core":            "conntrack.maxPerCore",
	"conntrack-min":                     "conntrack.min",
	"conntrack-tcp-be-liberal":          "conntrack.tcpBeLiberal",
	"conntrack-tcp-timeout-close-wait":  "conntrack.tcpCloseWaitTimeout",
	"conntrack-tcp-timeout-established": "conntrack.tcpEstablishedTimeout",
	"conntrack-udp-timeout":             "conntrack.udpTimeout",
	"conntrack-udp-timeout-stream":      "conntrack.udpStreamTimeout",
	"detect-local-mode":                 "detectLocalMode",
	"feature-gates":                     "featureGates",
	"healthz-bind-address":              "healthzBindAddress",
	"healthz-port":                      "healthzBindAddress",
	"iptables-localhost-nodeports":      "iptables.localhostNodePorts",
	"iptables-masquerade-bit":           "iptables.masqueradeBit",
	"iptables-min-sync-period":          "iptables.minSyncPeriod",
	"iptables-sync-period":              "iptables.syncPeriod",
	"ipvs-exclude-cidrs":                "ipvs.excludeCIDRs",
	"ipvs-min-sync-period":              "ipvs.minSyncPeriod",
	"ipvs-scheduler":                    "ipvs.scheduler",
	"ipvs-strict-arp":                   "ipvs.strictARP",
	"ipvs-sync-period":                  "ipvs.syncPeriod",
	"ipvs-tcp-timeout":                  "ipvs.tcpTimeout",
	"ipvs-tcpfin-timeout":               "ipvs.tcpFinTimeout",
	"ipvs-udp-timeout":                  "ipvs.udpTimeout",
	"kube-api-burst":                    "clientConnection.burst",
	"kube-api-content-type":             "clientConnection.contentType",
	"kube-api-qps":                      "clientConnection.qps",
	"log-flush-frequency":               "logging.flushFrequency",
	"log-json-info-buffer-size":         "logging.options.json.infoBufferSize",
	"log-json-split-stream":             "logging.options.json.splitStream",
	"log-text-info-buffer-size":         "logging.options.text.infoBufferSize",
	"log-text-split-stream":             "logging.options.text.splitStream",
	"logging-format":                    "logging.format",
	"machine_id_file":                   "",
	"masquerade-all":                    "nftables.masqueradeAll",
	"master":                            "clientConnection.kubeconfig",
	"metrics-bind-address":              "metricsBindAddress",
	"metrics-port":                      "metricsBindAddress",
	"nodeport-addresses":                "nodePortAddresses",
	"oom-score-adj":                     "oomScoreAdj",
	"pod-bridge-interface":              "detectLocal.bridgeInterface",
	"pod-interface-name-prefix":         "detectLocal.interfaceNamePrefix",
	"profiling":                         "enableProfiling",
	"proxy-mode":                        "mode",
	"show-hidden-metrics-for-version":   "showHiddenMetricsForVersion",
	"vmodule":                           "logging.vmodule",
	"write-config-to":                   "",
}

// FlagHint returns what to do with a flag of kube-proxy that this program lacks; "" if
// kube-proxy has no such flag.
func FlagHint(name string) string {
	path, ok := flags[name]
	if !ok {
		return ""
	}
	for i := range fields {
		f := &fields[i]
		switch {
		case f.Path != path:
		case path == "mode":
			return "the mode is always nftables"
		case f.Key != "":
			return "this flag of kube-proxy is the key " + f.Key + " of the configuration"
		default:
			return "this flag of kube-proxy has no effect here: " + f.Text
		}
	}
	return "this flag of kube-proxy has no counterpart"
}
