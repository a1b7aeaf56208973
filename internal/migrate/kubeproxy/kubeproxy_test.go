package kubeproxy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/config"
)

// file returns the text of a file with these fields from line 3 on.
func file(text string) []byte {
	return []byte("apiVersion: " + apiVersion + "\nkind: " + kind + "\n" + text)
}

// TestParse checks what fields become, as a configuration without comments, and the notes.
func TestParse(t *testing.T) {
	t.Parallel()
	// What kube-proxy's defaults, in mode nftables, are here.
	const client = "kubernetes:\n  qps: 5\n  burst: 10\n"
	const admin = "admin:\n  listen: 127.0.0.1:10249\n"
	tests := map[string]struct {
		text, want string
		notes      []string // without the name of the file
	}{
		"defaults": {"mode: nftables", client + admin, nil},
		"fields without a value": {
			"mode: nftables\nconntrack: {min: null, tcpEstablishedTimeout: ~}\nipvs:\nnodePortAddresses: null",
			client + admin,
			nil,
		},
		"mode iptables is the default": {
			"", client + admin + "proxy:\n  nodePortAddresses: [0.0.0.0/0, '::/0']\n",
			[]string{"1: differs: mode: iptables becomes nftables: node ports are not reached at 127.0.0.1"},
		},
		"iptables": {
			"mode: iptables\niptables: {masqueradeAll: true, masqueradeBit: 3, localhostNodePorts: true, syncPeriod: 10s}\n" +
				"nftables: {masqueradeBit: 4, syncPeriod: 7s}\nnodePortAddresses: [192.0.2.0/24]",
			client + admin + "proxy:\n  masqueradeAll: true\n  masqueradeBit: 3\n  nodePortAddresses: [192.0.2.0/24]\n  healthLimit: 20s\n",
			[]string{
				"3: differs: mode: iptables becomes nftables: node ports are not reached at 127.0.0.1",
				"4: missing: iptables.localhostNodePorts: no effect: node ports are not reached at 127.0.0.1",
			},
		},
		"ipvs": {
			"mode: ipvs\nipvs:\n  scheduler: lc\n  strictARP: true\n  syncPeriod: 40s\nnodePortAddresses: [primary]\niptables: {masqueradeBit: 5}",
			client + admin + "proxy:\n  masqueradeBit: 5\n  healthLimit: 1m20s\n",
			[]string{
				"3: differs: mode: ipvs becomes nftables",
				"5: missing: ipvs.scheduler: no effect: endpoints are chosen at random; see proxy.endpointChoice",
			},
		},
		"nftables": {
			"mode: nftables\nnftables: {masqueradeAll: true, masqueradeBit: 3, syncPeriod: 1s}\niptables: {masqueradeBit: 4}",
			client + admin + "proxy:\n  masqueradeAll: true\n  masqueradeBit: 3\n  healthLimit: 2s\n", nil,
		},
		"the API server": {
			"mode: nftables\nclientConnection: {kubeconfig: /a/b, qps: 7.5, burst: 20, contentType: application/json}",
			"kubernetes:\n  kubeconfig: /a/b\n  qps: 8\n  burst: 20\n" + admin,
			[]string{"4: missing: clientConnection.contentType: no effect: objects are read as protobuf"},
		},
		"the log": {
			"mode: nftables\nlogging: {verbosity: 4, format: json, flushFrequency: 5s, vmodule: [{filePattern: a, verbosity: 3}]}",
			client + admin + "log:\n  level: debug\n  format: json\n",
			[]string{"4: missing: logging.vmodule: no effect: there is one level"},
		},
		"addresses": {
			"mode: nftables\nhealthzBindAddress: 127.0.0.1\nmetricsBindAddress: 0.0.0.0:1249\nenableProfiling: true\nhostnameOverride: ' Node-1 '",
			client + "admin:\n  listen: 0.0.0.0:1249\n  pprof: true\nproxy:\n  nodeName: node-1\n  healthz: 127.0.0.1:10256\n",
			nil,
		},
		"an IPv6 cluster": {
			"mode: nftables\nbindAddress: '::'\nclusterCIDR: fd00::/48",
			client + "admin:\n  listen: '[::1]:10249'\nproxy:\n  detectLocal:\n    clusterCIDRs: ['fd00::/48']\n  healthz: '[::]:10256'\n",
			nil,
		},
		"an address of the node": {
			"mode: nftables\nbindAddress: 192.0.2.1",
			client + admin + "proxy:\n  nodePortAddresses: [192.0.2.1/32]\n",
			[]string{
				"4: differs: bindAddress: node ports are reached at 192.0.2.1 only, not at the Node's address of the other family; " +
					"proxy.nodePortAddresses takes ranges of both",
			},
		},
		"Pods of both families": {
			"mode: nftables\nclusterCIDR: 10.244.0.0/16,fd00::/48",
			client + admin + "proxy:\n  detectLocal:\n    clusterCIDRs: [10.244.0.0/16, 'fd00::/48']\n", nil,
		},
		"Pods behind a bridge": {
			"mode: nftables\ndetectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}",
			client + admin + "proxy:\n  detectLocal:\n    mode: BridgeInterface\n    interface: cni0\n", nil,
		},
		"Pods by their interfaces": {
			"mode: nftables\ndetectLocalMode: InterfaceNamePrefix\ndetectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}",
			client + admin + "proxy:\n  detectLocal:\n    mode: InterfaceNamePrefix\n    interface: veth\n",
			nil,
		},
		"connection tracking": {
			"mode: nftables\nconntrack: {maxPerCore: 0, min: 1, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 2s, tcpBeLiberal: true, " +
				"udpTimeout: 3s, udpStreamTimeout: 4s}",
			client + admin + "proxy:\n  conntrack:\n    maxPerCore: 0\n    min: 1\n    tcpEstablishedTimeout: 0s\n    tcpCloseWaitTimeout: 2s\n" +
				"    tcpBeLiberal: true\n    udpTimeout: 3s\n    udpStreamTimeout: 4s\n",
			nil,
		},
		"what has no effect": {
			"mode: nftables\nfeatureGates: {AllAlpha: true}\noomScoreAdj: -500\nbindAddressHardFail: true\nconfigSyncPeriod: 1m\nportRange: 1-2",
			client + admin,
			[]string{
				"4: missing: featureGates: no effect: there are no feature gates",
				"5: missing: oomScoreAdj: no effect: the kubelet protects Pods of the priority class system-node-critical, and systemd has OOMScoreAdjust",
				"7: missing: configSyncPeriod: no effect: objects are watched, and not listed again",
				"8: missing: portRange: no effect: kube-proxy does not use it either",
			},
		},
		"defaults that are spelled out": {
			"mode: nftables\nclientConnection: {contentType: application/vnd.kubernetes.protobuf}\nconfigSyncPeriod: 15m0s\noomScoreAdj: -999\n" +
				"iptables: {minSyncPeriod: 1s}\nnftables: {minSyncPeriod: 1s, syncPeriod: 30s}",
			client + admin,
			nil,
		},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			made, err := Parse("f", file(test.text))
			if err != nil {
				t.Fatalf("Parse(%q): %v", test.text, err)
			}
			made.Origins = nil
			text, err := made.Text()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(text)); diff != "" {
				t.Errorf("Parse(%q): configuration (-want +made):\n%s", test.text, diff)
			}
			var notes []string
			for _, n := range made.Notes {
				notes = append(notes, strings.TrimPrefix(n.String(), "f:"))
			}
			if diff := cmp.Diff(test.notes, notes); diff != "" {
				t.Errorf("Parse(%q): notes (-want +made):\n%s", test.text, diff)
			}
		})
	}
}

// TestOrigins: a configuration names the lines that its settings come from.
func TestOrigins(t *testing.T) {
	t.Parallel()
	made, err := Parse("f", file("mode: nftables\nhostnameOverride: a\nconntrack:\n  min: 7"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.Text()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nodeName: a # f:4\n", "min: 7 # f:6\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, text)
		}
	}
}

// TestErrors checks the errors of files that cannot be honored.
func TestErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mode: kernelspace":                       `config f:3: mode: kernelspace is for Windows`,
		"mode: userspace":                         `config f:3: mode: "userspace" is not iptables, ipvs or nftables`,
		"mod: nftables":                           `config f:3: unknown key mod; did you mean mode?`,
		"iptables:\n  masqueradall: true":         `config f:4: unknown key iptables.masqueradall; did you mean iptables.masqueradeAll?`,
		"iptables: {masqueradeBit: 32}":           `config f:3: iptables.masqueradeBit: 32 is not between 0 and 31`,
		"nftables: {syncPeriod: 5}":               `config f:3: nftables.syncPeriod: "5" is not a duration, such as 10s or 1m30s`,
		"iptables: {syncPeriod: -5s}":             `config f:3: iptables.syncPeriod: -5s is less than 0s`,
		"mode: ipvs\nipvs: {syncPeriod: 1ms}":     `config f:4: ipvs.syncPeriod: 2ms is less than 1s`,
		"clientConnection: {qps: -1}":             `config f:3: clientConnection.qps: -1: there is always a limit; give a number of 1 or more`,
		"clientConnection: {qps: x}":              `config f:3: clientConnection.qps: "x" is not a number`,
		"clientConnection: {burst: -1}":           `config f:3: clientConnection.burst: -1 is less than 1`,
		"bindAddress: localhost":                  `config f:3: bindAddress: "localhost" is not an address`,
		"healthzBindAddress: ':10256'":            `config f:3: healthzBindAddress: ":10256" is not an address and port, such as 0.0.0.0:10256`,
		"metricsBindAddress: localhost:1":         `config f:3: metricsBindAddress: "localhost:1" is not an address and port, such as 127.0.0.1:9153`,
		"nodePortAddresses:\n- primary\n- 1.2/16": `config f:4: nodePortAddresses: "primary" is not a range such as 192.0.2.0/24, nor primary alone`,
		"clusterCIDR: 10.0.0.0/8,10.1.0.0/16":     `config f:3: clusterCIDR: "10.1.0.0/16" is a second range of its family; give one of each`,
		"detectLocalMode: BridgeInterface":        `config f:1: detectLocal.bridgeInterface: is empty; the mode BridgeInterface needs the name of an interface`,
		"detectLocalMode: Guess":                  `config f:3: detectLocalMode: "Guess" is not ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix`,
		"conntrack:\n  min: -1":                   `config f:4: conntrack.min: -1 is less than 0`,
		"conntrack: {min: many}":                  `config f:3: conntrack.min: "many" is not a whole number`,
		"logging: {format: xml}":                  `config f:3: logging.format: "xml" is not text or json`,
		"featureGates: {A: 7}":                    `config f:3: featureGates.A: "7" is not true or false`,
		"featureGates: [A]":                       `config f:3: featureGates: not a mapping of keys to values`,
		"---\nkind: b":                            `config f:4: a second document; there must be one`,
		"a: [":                                    `config f:4: did not find expected node content`,
	} {
		if _, err := Parse("f", file(text)); err == nil || err.Error() != want {
			t.Errorf("Parse(%q) = %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"apiVersion: kubeproxy.config.k8s.io/v1\nkind: " + kind: `config f:1: apiVersion: "kubeproxy.config.k8s.io/v1" is not ` + apiVersion + `, the only version that is read`,
		"kind: KubeProxy\napiVersion: " + apiVersion:            `config f:1: kind: "KubeProxy" is not ` + kind,
	} {
		if _, err := Parse("f", []byte(text)); !Is([]byte(text)) || err == nil || err.Error() != want {
			t.Errorf("Is(%q) = %v, Parse = %v, want true, %s", text, Is([]byte(text)), err, want)
		}
	}
}

// TestAllErrors: one run reports the errors of all fields, in the order of lines.
func TestAllErrors(t *testing.T) {
	t.Parallel()
	const text = "bindAddress: localhost\nmode: kernelspace\niptables: {masqueradeBit: 32}\nmod: ipvs\n" +
		"conntrack:\n  min: many\n  maxPerCore: -1\nlogging: {format: xml}"
	want := []string{
		`config f:3: bindAddress: "localhost" is not an address`,
		`config f:4: mode: kernelspace is for Windows`,
		`config f:6: unknown key mod; did you mean mode?`,
		`config f:8: conntrack.min: "many" is not a whole number`,
		`config f:9: conntrack.maxPerCore: -1 is less than 0`,
		`config f:10: logging.format: "xml" is not text or json`,
	}
	_, err := Parse("f", file(text))
	var got []string
	for _, each := range config.Flat(err) {
		got = append(got, each.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse(%q): errors (-want +got):\n%s", text, diff)
	}
}

// TestConfigMap: what has the file is not the file, and the error says so.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-proxy}\ndata: {config.conf: ''}"
	const want = "config f: it is a ConfigMap; give the text of its key config.conf"
	if _, err := Parse("f", []byte(text)); err == nil || err.Error() != want {
		t.Errorf("Parse(%q) = %v, want %s", text, err, want)
	}
}

// TestIs: only files of kube-proxy are taken for one.
func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "proxy: {table: a}": false, "a: [": false, "apiVersion: v1\nkind: ConfigMap": false,
		string(file("")): true, `{"kind": "KubeProxyConfiguration"}`: true,
	} {
		if got := Is([]byte(text)); got != want {
			t.Errorf("Is(%q) = %t, want %t", text, got, want)
		}
	}
}

// TestFields: the table describes all fields of the file, and flags set fields.
func TestFields(t *testing.T) {
	t.Parallel()
	var want, got []string
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for f := range typ.Fields() {
			if path := prefix + f.Tag.Get("yaml"); f.Type.Kind() == reflect.Struct {
				walk(f.Type, path+".")
			} else {
				want = append(want, path)
			}
		}
	}
	walk(reflect.TypeFor[configuration](), "")
	for _, f := range Fields() {
		got = append(got, f.Path)
		if f.Key == "" && f.Text == "" {
			t.Errorf("%s: it is not said why it has no effect", f.Path)
		}
	}
	if diff := cmp.Diff(want[2:], got); diff != "" { // without apiVersion and kind
		t.Errorf("fields (-in the file +in the table):\n%s", diff)
	}
	for flag, field := range flags {
		if field != "" && !slices.Contains(got, field) {
			t.Errorf("--%s sets %s, which is no field", flag, field)
		}
	}
	for flag, want := range map[string]string{
		"masquerade-all":  "this flag of kube-proxy is the key proxy.masqueradeAll of the configuration",
		"ipvs-scheduler":  "this flag of kube-proxy has no effect here: endpoints are chosen at random; see proxy.endpointChoice",
		"proxy-mode":      "the mode is always nftables",
		"write-config-to": "this flag of kube-proxy has no counterpart",
		"table":           "",
	} {
		if got := FlagHint(flag); got != want {
			t.Errorf("FlagHint(%q) = %q, want %q", flag, got, want)
		}
	}
}
