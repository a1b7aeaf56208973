package kubeproxy

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/migrate"
)

// Field says what becomes of a field of a KubeProxyConfiguration.
type Field struct {
	// Path is the field with those that contain it.
	Path string
	// Key is the setting that it becomes; empty if the field has no effect.
	Key string
	// Text says more, in one sentence of plain text without a full stop.
	Text string
	// quiet are the values, beside the zero value, that need no note: kube-proxy's defaults,
	// which have no effect either, or what is done anyway.
	quiet []string
}

// Fields returns all fields, in the order of the API.
func Fields() []Field { return slices.Clone(fields) }

// Texts that several fields have.
const (
	onceWritten = "changes are programmed at once, and none is repeated"
	windows     = "it is for Windows"
	otherModes  = "with mode iptables or ipvs"
	ofNFTables  = "with mode nftables"
	unhealthy   = "twice the period, of the section of the mode: a change that waits longer makes the proxy unhealthy"
	timeoutsOf  = "there are no connections of IPVS; proxy.conntrack has timeouts"
	logLines    = "the log goes to standard error, unbuffered"
)

var fields = []Field{
	{Path: "featureGates", Text: "there are no feature gates"},
	{Path: "clientConnection.kubeconfig", Key: "kubernetes.kubeconfig"},
	{Path: "clientConnection.acceptContentTypes", Text: "objects are read as protobuf"},
	{
		Path: "clientConnection.contentType", Text: "objects are read as protobuf",
		quiet: []string{"application/vnd.kubernetes.protobuf"},
	},
	{
		Path: "clientConnection.qps",
		Key:  "kubernetes.qps",
		Text: "rounded up; a negative number is an error: there is always a limit",
	},
	{Path: "clientConnection.burst", Key: "kubernetes.burst"},
	{Path: "logging.format", Key: "log.format"},
	{Path: "logging.flushFrequency", Text: logLines, quiet: []string{"0", "0s", "5s", "5000000000"}},
	{Path: "logging.verbosity", Key: "log.level", Text: "debug from 4 on, otherwise info"},
	{Path: "logging.vmodule", Text: "there is one level"},
	{Path: "logging.options.text.splitStream", Text: logLines},
	{Path: "logging.options.text.infoBufferSize", Text: logLines, quiet: []string{"0"}},
	{Path: "logging.options.json.splitStream", Text: logLines},
	{Path: "logging.options.json.infoBufferSize", Text: logLines, quiet: []string{"0"}},
	{Path: "hostnameOverride", Key: "proxy.nodeName", Text: "in lower case"},
	{
		Path: "bindAddress", Key: "proxy.nodePortAddresses",
		Text: "an address of the node becomes the only one for node ports, if nodePortAddresses is primary; " +
			"with an IPv6 address, also 0.0.0.0 becomes [::] in the defaults of the addresses below",
	},
	{Path: "healthzBindAddress", Key: "proxy.healthz", Text: "an address without a port gets 10256"},
	{Path: "metricsBindAddress", Key: "admin.listen", Text: "an address without a port gets 10249"},
	{
		Path:  "bindAddressHardFail",
		Text:  "it is always so: the process ends if an address is taken",
		quiet: []string{"true"},
	},
	{Path: "enableProfiling", Key: "admin.pprof", Text: "clients on loopback always get profiles"},
	{Path: "showHiddenMetricsForVersion", Text: "no metric is hidden"},
	{
		Path: "mode", Key: "proxy", Text: "iptables (the default) and ipvs become nftables, with a warning; " +
			"others are errors",
	},
	{Path: "iptables.masqueradeBit", Key: "proxy.masqueradeBit", Text: otherModes},
	{Path: "iptables.masqueradeAll", Key: "proxy.masqueradeAll", Text: otherModes},
	{Path: "iptables.localhostNodePorts", Text: "node ports are not reached at 127.0.0.1"},
	{Path: "iptables.syncPeriod", Key: "proxy.healthLimit", Text: unhealthy},
	{Path: "iptables.minSyncPeriod", Text: onceWritten, quiet: []string{"1s"}},
	{Path: "ipvs.syncPeriod", Key: "proxy.healthLimit", Text: unhealthy},
	{Path: "ipvs.minSyncPeriod", Text: onceWritten},
	{Path: "ipvs.scheduler", Text: "endpoints are chosen at random; see proxy.endpointChoice"},
	{Path: "ipvs.excludeCIDRs", Text: "virtual servers of IPVS are left alone"},
	{
		Path:  "ipvs.strictARP",
		Text:  "it is always so: virtual IPs are on no interface, so that the node does not answer ARP for them",
		quiet: []string{"true"},
	},
	{Path: "ipvs.tcpTimeout", Text: timeoutsOf},
	{Path: "ipvs.tcpFinTimeout", Text: timeoutsOf},
	{Path: "ipvs.udpTimeout", Text: timeoutsOf},
	{Path: "nftables.masqueradeBit", Key: "proxy.masqueradeBit", Text: ofNFTables},
	{Path: "nftables.masqueradeAll", Key: "proxy.masqueradeAll", Text: ofNFTables},
	{Path: "nftables.syncPeriod", Key: "proxy.healthLimit", Text: unhealthy},
	{Path: "nftables.minSyncPeriod", Text: onceWritten, quiet: []string{"1s"}},
	{Path: "winkernel.networkName", Text: windows},
	{Path: "winkernel.sourceVip", Text: windows},
	{Path: "winkernel.enableDSR", Text: windows},
	{Path: "winkernel.rootHnsEndpointName", Text: windows},
	{Path: "winkernel.forwardHealthCheckVip", Text: windows},
	{Path: "detectLocalMode", Key: "proxy.detectLocal.mode"},
	{
		Path: "detectLocal.bridgeInterface",
		Key:  "proxy.detectLocal.interface",
		Text: "with detectLocalMode BridgeInterface",
	},
	{
		Path: "detectLocal.interfaceNamePrefix",
		Key:  "proxy.detectLocal.interface",
		Text: "with detectLocalMode InterfaceNamePrefix",
	},
	{Path: "clusterCIDR", Key: "proxy.detectLocal.clusterCIDRs", Text: "with detectLocalMode ClusterCIDR"},
	{
		Path: "nodePortAddresses",
		Key:  "proxy.nodePortAddresses",
		Text: "without any, as in kube-proxy, primary with mode nftables, and all addresses but those of loopback " +
			"with other modes",
	},
	{
		Path: "oomScoreAdj", Text: "the kubelet protects Pods of the priority class system-node-critical, and systemd " +
			"has OOMScoreAdjust", quiet: []string{"-999"},
	},
	{Path: "conntrack.maxPerCore", Key: "proxy.conntrack.maxPerCore"},
	{Path: "conntrack.min", Key: "proxy.conntrack.min"},
	{Path: "conntrack.tcpEstablishedTimeout", Key: "proxy.conntrack.tcpEstablishedTimeout"},
	{Path: "conntrack.tcpCloseWaitTimeout", Key: "proxy.conntrack.tcpCloseWaitTimeout"},
	{Path: "conntrack.tcpBeLiberal", Key: "proxy.conntrack.tcpBeLiberal"},
	{Path: "conntrack.udpTimeout", Key: "proxy.conntrack.udpTimeout"},
	{Path: "conntrack.udpStreamTimeout", Key: "proxy.conntrack.udpStreamTimeout"},
	{Path: "configSyncPeriod", Text: "objects are watched, and not listed again", quiet: []string{"15m0s"}},
	{Path: "portRange", Text: "kube-proxy does not use it either"},
	{Path: "windowsRunAsService", Text: windows},
}

// noteUnused notes fields without an effect that are set.
func (t *translator) noteUnused() {
	for i := range fields {
		f := &fields[i]
		if f.Key != "" {
			continue
		}
		v := valueOf(reflect.ValueOf(t.given), f.Path)
		if !v.IsZero() && !slices.Contains(f.quiet, text(v)) {
			t.note(migrate.Missing, f.Path, "no effect: "+f.Text)
		}
	}
}

// valueOf returns the value of a field.
func valueOf(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		for f, value := range v.Fields() {
			if f.Tag.Get("yaml") == name {
				v = value
				break
			}
		}
	}
	return v
}

// text returns a value as a file writes it.
func text(v reflect.Value) string {
	if m, ok := reflect.TypeAssert[encoding.TextMarshaler](v); ok {
		b, _ := m.MarshalText() // never fails
		return string(b)
	}
	return fmt.Sprint(v.Interface())
}
