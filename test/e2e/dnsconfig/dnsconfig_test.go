package dnsconfig_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	podopts "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// TestKubelet compares resolv.conf and events, over generated Pods and nodes.
// The order of options is not compared: the kubelet's is another each time.
func TestKubelet(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 3))
	file := filepath.Join(t.TempDir(), "resolv.conf")
	met := make(map[string]int)
	for i := range 3000 {
		p := generatePod(random)
		n := dnsconfig.NodeSettings{
			ClusterDomain: podrand.Pick(random, "cluster.local", "example", ""),
			ClusterDNS:    podrand.Several(random, 4, podrand.Addrs("10.0.0.10", "fd00::a", "10.0.0.11")...),
			Addrs:         podrand.Several(random, 2, podrand.Addrs("192.0.2.7", "2001:db8::7")...),
		}
		text, path := generateFile(random), ""
		if random.IntN(5) > 0 {
			path = file
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			config, _ := dnsconfig.ParseNode(text)
			n.ResolvConf = &config
		}

		recorder := record.NewFakeRecorder(10)
		kubelet := dns.NewConfigurer(recorder, &corev1.ObjectReference{}, ips(n.Addrs), ips(n.ClusterDNS), n.ClusterDomain, path)
		if path != "" {
			kubelet.CheckLimitsForResolvConf(klog.Background())
		}
		if got, want := reasonsOf(dnsconfig.CheckNode(n)), eventsOf(recorder); !slices.Equal(got, want) {
			t.Fatalf("case %d: CheckNode(%+v) has the events %v, want %v", i, n, got, want)
		} else if len(got) > 0 {
			met[got[0]]++
		}
		want, err := kubelet.GetPodDNS(t.Context(), kubernetesPod(p))
		if err != nil {
			t.Fatalf("case %d: the kubelet fails with the file %q: %v", i, text, err)
		}
		events := eventsOf(recorder)

		result := dnsconfig.Resolve(p, n)
		got := result.Config
		var servers, options []string
		for _, addr := range got.Nameservers {
			servers = append(servers, addr.String())
		}
		for _, o := range got.Options {
			options = append(options, o.String())
		}
		slices.Sort(options)
		slices.Sort(want.Options)
		if !slices.Equal(servers, want.Servers) || !slices.Equal(got.Searches, want.Searches) || !slices.Equal(options, want.Options) {
			t.Fatalf("case %d: Resolve(%+v, %+v) =\n%swant\n%+v", i, p, n, got, want)
		}
		if reasons := reasonsOf(result.Warnings); !slices.Equal(reasons, events) {
			t.Fatalf("case %d: Resolve(%+v) has the events %v, want %v", i, p, reasons, events)
		}
		for _, event := range events {
			met[event]++
		}
	}
	if met[dnsconfig.DNSConfigForming] < 100 || met[dnsconfig.MissingClusterDNS] < 100 || met[dnsconfig.CheckLimitsForResolvConf] < 100 {
		t.Errorf("met only %v", met)
	}
}

// TestAPIServer compares errors, word for word and in their order.
func TestAPIServer(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 4))
	met := make(map[string]int)
	for i := range 3000 {
		p := generatePod(random)
		p.Policy = podrand.Pick(random, p.Policy, p.Policy, "Nearest", "clusterfirst")
		p.OS = podrand.Pick(random, "", dnsconfig.Linux, dnsconfig.Windows, "plan9")
		p.Hostname = podrand.Pick(random, "", "web", "a.b", "-", strings.Repeat("h", 64))
		p.Subdomain = podrand.Pick(random, "", "docks", "a.b", "Docks")
		p.SetHostnameAsFQDN = random.IntN(2) == 0
		if random.IntN(3) == 0 {
			p.HostnameOverride = new(podrand.Pick(random, "", "a.example", "a_b", strings.Repeat("h", 65)))
		}
		if c := p.DNSConfig; c != nil {
			c.Nameservers = append(c.Nameservers, podrand.Several(random, 2, "", "dns", "010.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "2001:DB8::1")...)
			c.Searches = append(c.Searches, podrand.Several(random, 2, "", ".", "..", "A", "_a.b_c.", "-a", "a..b")...)
			c.Options = append(c.Options, podrand.Several(random, 1, resolvconf.Option{Value: "1"})...)
		}
		var got []string
		for _, err := range dnsconfig.Validate(p) {
			got = append(got, err.Error())
			met[string(err.Type)]++
		}
		if want := refusals(p); !slices.Equal(got, want) {
			t.Fatalf("case %d: Validate(%+v) =\n%s\nwant\n%s", i, p, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(met) != 5 {
		t.Errorf("met only %v", met)
	}
}

// refusals are the API server's errors in the fields that Validate looks at.
func refusals(p dnsconfig.PodSettings) []string {
	spec := &core.PodSpec{
		DNSPolicy: core.DNSPolicy(p.Policy), Hostname: p.Hostname, Subdomain: p.Subdomain,
		HostnameOverride: p.HostnameOverride, SetHostnameAsFQDN: &p.SetHostnameAsFQDN,
		SecurityContext: &core.PodSecurityContext{HostNetwork: p.HostNetwork},
	}
	if p.Policy == "" {
		spec.DNSPolicy = core.DNSClusterFirst // the API server's default
	}
	if p.OS != "" {
		spec.OS = &core.PodOS{Name: core.OSName(p.OS)}
	}
	if c := p.DNSConfig; c != nil {
		spec.DNSConfig = &core.PodDNSConfig{Nameservers: c.Nameservers, Searches: c.Searches}
		for _, o := range c.Options {
			spec.DNSConfig.Options = append(spec.DNSConfig.Options, core.PodDNSConfigOption{Name: o.Name, Value: &o.Value})
		}
	}
	meta := &metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}
	var list []string
	for _, err := range validation.ValidatePodSpec(spec, meta, field.NewPath("spec"), podopts.GetValidationOptionsFromPodSpecAndMeta(spec, nil, meta, nil)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(err.Field, "spec."), ".")
		if slices.Contains([]string{"dnsPolicy", "dnsConfig", "hostname", "subdomain", "hostnameOverride", "os"}, name) {
			list = append(list, err.Error())
		}
	}
	return list
}

func TestHostnameAsFQDN(t *testing.T) {
	for length := range 63 {
		p := dnsconfig.PodSettings{Namespace: "shop", Name: strings.Repeat("w", length+1), Subdomain: "docks", SetHostnameAsFQDN: true}
		want, wantErr := util.GetNodenameForKernel(p.Name, "docks.shop.svc.cluster.local", &p.SetHostnameAsFQDN)
		got, err := dnsconfig.HostnameOf(p, dnsconfig.NodeSettings{ClusterDomain: "cluster.local"})
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || err == nil && got.Kernel != want {
			t.Errorf("HostnameOf(%+v) = %q, %v, want %q, %v", p, got.Kernel, err, want, wantErr)
		}
	}
}

func kubernetesPod(p dnsconfig.PodSettings) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec:       corev1.PodSpec{DNSPolicy: corev1.DNSPolicy(p.Policy), HostNetwork: p.HostNetwork},
	}
	if p.Policy == "" {
		pod.Spec.DNSPolicy = corev1.DNSClusterFirst
	}
	if c := p.DNSConfig; c != nil {
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: c.Nameservers, Searches: c.Searches}
		for _, o := range c.Options {
			pod.Spec.DNSConfig.Options = append(pod.Spec.DNSConfig.Options, corev1.PodDNSConfigOption{Name: o.Name, Value: &o.Value})
		}
	}
	return pod
}

// reasonsOf are the warnings' events, as a sorted set of reasons.
func reasonsOf(warnings []dnsconfig.Warning) []string {
	var list []string
	for _, w := range warnings {
		if w.Reason != "" {
			list = append(list, w.Reason)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// eventsOf are the reasons of the events so far, as a sorted set.
func eventsOf(recorder *record.FakeRecorder) []string {
	var list []string
	for len(recorder.Events) > 0 {
		list = append(list, strings.Fields(<-recorder.Events)[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func generatePod(random *rand.Rand) dnsconfig.PodSettings {
	p := dnsconfig.PodSettings{
		Namespace:   podrand.Pick(random, "shop", "default", "a"),
		Name:        "web",
		HostNetwork: random.IntN(3) == 0,
		Policy: podrand.Pick(random, "", dnsconfig.Default, dnsconfig.ClusterFirst, dnsconfig.ClusterFirstWithHostNet,
			dnsconfig.None),
	}
	if random.IntN(3) > 0 {
		p.DNSConfig = &dnsconfig.DNSConfig{
			Nameservers: podrand.Several(random, 4, "10.0.0.10", "192.0.2.1", "2001:db8::1", "fd00::a", "::1"),
			Searches:    podrand.Searches(random),
			Options: podrand.Several(random, 4, resolvconf.Option{Name: "ndots", Value: "1"}, resolvconf.Option{Name: "ndots", Value: "2"},
				resolvconf.Option{Name: "edns0"}, resolvconf.Option{Name: "ndots"}, resolvconf.Option{Name: "timeout", Value: "1"}),
		}
	}
	return p
}

// generateFile is a node's resolv.conf with what the kubelet reads in its own
// way.
func generateFile(random *rand.Rand) string {
	lines := podrand.Several(random, 6,
		"nameserver 10.1.1.10", "  nameserver 2001:db8::1", "nameserver ::1 # mine", "nameserver 192.0.2.1\r",
		"search foo.com corp.example.", "search", "search .", "\tsearch a b c", "domain corp.example", "# search z", "; search z",
		"options ndots:1 rotate", "options ndots:3", "options edns0 timeout:2 timeout:3", "sortlist 10.0.0.0/8", "")
	if list := podrand.Searches(random); len(list) > 0 && random.IntN(2) == 0 {
		lines = append(lines, "search "+strings.Join(list, " "))
	}
	return strings.Join(lines, "\n")
}

func ips(addrs []netip.Addr) []net.IP {
	var list []net.IP
	for _, addr := range addrs {
		list = append(list, addr.AsSlice())
	}
	return list
}
