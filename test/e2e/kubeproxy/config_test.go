package kubeproxy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeproxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	"k8s.io/kubernetes/pkg/proxy/apis/config/scheme"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/migrate/kubeproxy"
	"portolan.dev/portolan/internal/proxy/settings"
)

// TestFields: each field of the API is described, and no other.
func TestFields(t *testing.T) {
	t.Parallel()
	leaves := []reflect.Type{reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]()}
	var want, got []string
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for f := range typ.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Type == reflect.TypeFor[metav1.TypeMeta]():
			case options == "inline":
				walk(f.Type, prefix)
			case f.Type.Kind() == reflect.Struct && !slices.Contains(leaves, f.Type) && !strings.Contains(f.Type.String(), "Quantity"):
				walk(f.Type, prefix+name+".")
			default:
				want = append(want, prefix+name)
			}
		}
	}
	walk(reflect.TypeFor[v1alpha1.KubeProxyConfiguration](), "")
	for _, f := range kubeproxy.Fields() {
		got = append(got, f.Path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-kube-proxy +ours):\n%s", diff)
	}
}

// TestSettings: files mean to both what kube-proxy decodes them to, with its defaults.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "mode: iptables", "mode: ipvs", "mode: nftables", "bindAddress: '::'", "bindAddress: 2001:db8::1\nmode: nftables\nnodePortAddresses: [primary]",
		"mode: ipvs\nipvs: {syncPeriod: 50s}\niptables: {masqueradeAll: true, masqueradeBit: 7, syncPeriod: 40s}\nnftables: {masqueradeBit: 9}",
		"mode: nftables\nnftables: {syncPeriod: 50s, masqueradeAll: true, masqueradeBit: 7}\niptables: {masqueradeBit: 9}",
		"conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}",
		"conntrack: {maxPerCore: 1, min: 2, tcpEstablishedTimeout: 3s, tcpCloseWaitTimeout: 4s, udpTimeout: 5s, udpStreamTimeout: 6s, tcpBeLiberal: true}",
		"healthzBindAddress: 127.0.0.1\nmetricsBindAddress: '[::]:1'\nenableProfiling: true\nhostnameOverride: a",
		"clientConnection: {kubeconfig: a, qps: 7, burst: 8}\nclusterCIDR: 10.0.0.0/8,fd00::/48",
		"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: a}\nnodePortAddresses: [10.0.0.0/8]",
		"detectLocalMode: NodeCIDR\nclientConnection: {qps: 0, burst: 0}\nhealthzBindAddress: ''\nconntrack: {min: null}",
	} {
		text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + text
		decoded, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("kube-proxy decodes\n%s\n%v", text, err)
		}
		made, err := kubeproxy.Parse("file", []byte(text))
		if err != nil {
			t.Fatalf("Parse(%q): %v", text, err)
		}
		c := made.Config
		got := shared{c.Proxy, c.Admin.Listen, c.Admin.PProf, c.Kubernetes.Kubeconfig, c.Kubernetes.QPS, c.Kubernetes.Burst}
		if diff := cmp.Diff(meant(decoded.(*kubeproxyconfig.KubeProxyConfiguration)), got); diff != "" {
			t.Errorf("file (-kube-proxy +ours):\n%s\n%s", text, diff)
		}
	}
}

// shared are the settings that both have.
type shared struct {
	Proxy      settings.Proxy
	Metrics    string
	Profiling  bool
	Kubeconfig string
	QPS, Burst int
}

// meant returns the settings that a configuration of kube-proxy means.
func meant(c *kubeproxyconfig.KubeProxyConfiguration) shared {
	p := settings.Default()
	p.NodeName, p.Healthz, p.MasqueradeAll = c.HostnameOverride, c.HealthzBindAddress, c.Linux.MasqueradeAll
	p.HealthLimit = key.Duration(2 * c.SyncPeriod.Duration) // app.newProxyServer
	p.DetectLocal.ClusterCIDRs = c.DetectLocal.ClusterCIDRs
	if c.DetectLocalMode != "" {
		p.DetectLocal.Mode, p.DetectLocal.Interface = string(c.DetectLocalMode), c.DetectLocal.BridgeInterface
	}
	p.MasqueradeBit = int(*c.IPTables.MasqueradeBit)
	if c.Mode == kubeproxyconfig.ProxyModeNFTables {
		p.MasqueradeBit = int(*c.NFTables.MasqueradeBit)
	}
	switch primary := p.NodePortAddresses; {
	case c.BindAddress == "2001:db8::1":
		p.NodePortAddresses = []string{"2001:db8::1/128"}
	case len(c.NodePortAddresses) > 0:
		p.NodePortAddresses = c.NodePortAddresses
	case c.Mode == kubeproxyconfig.ProxyModeNFTables: // app.platformApplyDefaults
		p.NodePortAddresses = primary
	default: // "If unset, NodePort connections will be accepted on all local IPs"
		p.NodePortAddresses = []string{"0.0.0.0/0", "::/0"}
	}
	duration := func(d time.Duration) key.Duration { return key.Duration(d) }
	n := &c.Linux.Conntrack
	p.Conntrack = settings.Conntrack{
		MaxPerCore: int(*n.MaxPerCore), Min: int(*n.Min), TCPEstablished: duration(n.TCPEstablishedTimeout.Duration),
		TCPCloseWait: duration(n.TCPCloseWaitTimeout.Duration), TCPBeLiberal: n.TCPBeLiberal,
		UDP: duration(n.UDPTimeout.Duration), UDPStream: duration(n.UDPStreamTimeout.Duration),
	}
	return shared{
		p, c.MetricsBindAddress, c.EnableProfiling, c.ClientConnection.Kubeconfig, int(c.ClientConnection.QPS), int(c.ClientConnection.Burst),
	}
}

// common are the flags that `portolan proxy` has under kube-proxy's names.
var common = []string{"cleanup", "cluster-cidr", "config", "hostname-override", "init-only", "kubeconfig", "v"}

// TestFlags: there is each flag of kube-proxy, or a hint about it.
func TestFlags(t *testing.T) {
	t.Parallel()
	var here []string
	app.NewProxyCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if kubeproxy.FlagHint(f.Name) == "" && !strings.HasPrefix(f.Name, "test.") {
			here = append(here, f.Name)
		}
	})
	if diff := cmp.Diff(common, here); diff != "" {
		t.Errorf("flags without a hint (-want +kube-proxy's):\n%s", diff)
	}
}
