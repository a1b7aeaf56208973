package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	dns "portolan.dev/portolan/internal/dns/settings"
	"portolan.dev/portolan/internal/dns/transfer"
	"portolan.dev/portolan/internal/dns/zone"
	gatewaycompile "portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/h1"
	gateway "portolan.dev/portolan/internal/gateway/settings"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/kube/leader"
	kube "portolan.dev/portolan/internal/kube/settings"
	"portolan.dev/portolan/internal/network/plan"
	"portolan.dev/portolan/internal/network/podcidr"
	"portolan.dev/portolan/internal/network/pool"
	network "portolan.dev/portolan/internal/network/settings"
	"portolan.dev/portolan/internal/node/hostnet"
	policy "portolan.dev/portolan/internal/policy/settings"
	"portolan.dev/portolan/internal/proxy/conntrack"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	proxy "portolan.dev/portolan/internal/proxy/settings"
)

// write writes a configuration file.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "portolan.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// compile returns the compiled configuration of a file with this text.
func compile(t *testing.T, text string) *config.Compiled {
	t.Helper()
	c, err := config.Read(write(t, text))
	if err != nil {
		t.Fatalf("Read(%q): %v", text, err)
	}
	made, err := c.Compile()
	if err != nil {
		t.Fatalf("Compile of %q: %v", text, err)
	}
	return made
}

var defaults = &config.Compiled{
	Admin: config.CompiledAdmin{Listen: netip.MustParseAddrPort("127.0.0.1:9153")},
	DNS: dns.Compiled{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1053")},
		Zone: kubezone.Config{
			Zones:        []dnsname.Name{dnsname.MustParse("cluster.local")},
			TTL:          5,
			Pods:         kubezone.PodsVerified,
			DNSService:   cluster.Key{Namespace: "kube-system", Name: "kube-dns"},
			DNSAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		},
		Rules:     filter.Config{Block: filter.Blocklist{TTL: 60}, Hosts: filter.Hosts{TTL: 60}},
		RateLimit: filter.RateLimit{Burst: 100, Prefix4: 24, Prefix6: 56, Slip: 2},
		Autopath: autopath.Config{
			Suffix: dnsname.MustParse("ap.k8s.io"), Zones: []dnsname.Name{dnsname.MustParse("cluster.local")}, Option: 65001, MaxPaths: 16, MaxOctets: 1024,
		},
		AutopathSOA: dnswire.SOA{
			Zone: dnsname.MustParse("ap.k8s.io"), MName: dnsname.MustParse("ns.dns.cluster.local"), RName: dnsname.MustParse("hostmaster.cluster.local"),
			TTL: 5, Refresh: 7200, Retry: 1800, Expire: 86400, Minimum: 5,
		},
		Cache: cache.Config{Size: 32 << 20, MaxTTL: 86400, MaxNegativeTTL: 60, Stale: time.Hour},
		Transfer: dns.CompiledTransfer{
			Sender:  transfer.Config{MaxTransfers: 100, MaxSize: 128 << 20, UDPSize: 1232},
			History: zone.HistoryLimits{Changes: 100_000, Octets: 16 << 20},
		},
	},
	Node: dns.CompiledNode{
		Mode: dns.NodeSecondary, Relay: respond.RelayPaths, Network: hostnet.Config{Port: 53, Prefix: "portolan"},
		Listen:    []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1053")},
		Secondary: secondary.Config{Zones: names("cluster.local"), CheckInterval: 5 * time.Second, StaleAfter: 15 * time.Second},
	},
	Webhook: admission.Config{
		Listen:  netip.MustParseAddrPort("127.0.0.1:8443"),
		Service: admission.ServiceName{Namespace: "kube-system", Name: "portolan-webhook"}, ClusterDomain: "cluster.local", AutopathSuffix: "ap.k8s.io",
		Timeout: time.Second, MaxInFlight: 32, CertificateLife: 90 * 24 * time.Hour,
	},
	Controller: kube.CompiledController{MaxEndpoints: 100, Syncs: 5, Lease: &leader.Config{
		Namespace: "kube-system", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}, LoadBalancer: pool.Config{Class: "portolan.dev/lb"}},
	Proxy: proxy.Compiled{
		Table: nft.Config{Name: "portolan-proxy", Mark: 1 << 14}, Healthz: netip.MustParseAddrPort("0.0.0.0:10256"),
		HealthLimit: time.Minute, Conntrack: conntrack.DefaultSettings(),
	},
	Network: network.Compiled{
		Encapsulation: plan.CrossSubnet, VNI: 80, Port: 4789, Encryption: plan.NoEncryption, WireGuardPort: 51820,
		Keyless: plan.Unreachable, Masquerade: true, Table: "portolan-network",
		CNI: network.CNI{Socket: "/run/portolan/cni.sock", Install: true, BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"},
	},
	Policy: policy.Compiled{
		Table: "portolan-policy", Cut: true, Socket: "/run/portolan/cni.sock",
		BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d",
		Domains: policy.CompiledDomains{Least: time.Minute, Grace: time.Minute, MaxAddresses: 256},
		Log:     policy.Log{Group: 97, Rate: 10},
	},
	Gateway: gateway.Compiled{
		Listen: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, PortOffset: 8000,
		Compile: gatewaycompile.Config{
			GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress", IngressPort: 80,
			IngressTLSPort: 443, PoolByDefault: true,
		},
		Limits: h1.Limits{
			Head: 16 << 10, HeadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, Rate: 240, Grace: 20 * time.Second,
		},
		AccessLog: "off", RouteMetrics: 200, TraceOneIn: 100, LeaseNamespace: "kube-system", LeaseName: "portolan-gateway",
		StreamIdle: time.Hour, SessionIdle: time.Minute,
		DrainEndpoint: 30 * time.Second, DrainUpgraded: time.Hour, DrainListener: 30 * time.Second, DrainShutdown: 25 * time.Second,
	},
}

// TestDefaults checks that the defaults are those of the documentation.
func TestDefaults(t *testing.T) {
	files := map[string]string{
		"an empty file":            "",
		"comments only":            "# ttl: 7\n",
		"an empty document":        "---\n",
		"an empty mapping":         "{}\n",
		"a byte order mark":        "\ufeffdns: {ttl: 5}\n",
		"sections without a value": "dns:\n  tcp:\n    # idle: 1s\nlog:\n",
		"keys without a value":     "dns:\n  listen:\n  zones: ~\n  ttl: null\n  pods:\n",
		"the defaults spelled out": `
dns:
  listen: [127.0.0.1:1053]
  zones: [cluster.local]
  ttl: 5
  pods: verified
  endpointPodNames: false
  serviceCIDRs: []
  podCIDRs: []
  nameServer: {service: kube-system/kube-dns, addresses: []}
  udpSize: 1232
  udpSteering: cpu
  identity: {nsid: "", serverID: "", version: ""}
  cookies: {secrets: []}
  tcp: {maxConnections: 1000, maxInFlight: 64, maxQueries: 0, idle: 10s}
kubernetes: {kubeconfig: "", namespaces: [], serviceSelector: "", qps: 50, burst: 100, watchList: false, silence: 2m30s}
snapshot: {file: "", settle: 2s}
admin: {listen: "127.0.0.1:9153", probes: [], coreDNSMetrics: false, debug: false, pprof: false, maxStaleness: 0s, page: process, tokenFile: "", tls: {cert: "", key: "", clientCA: ""}, evidence: {size: 1024, oneIn: 128, perSecond: 10, maskClients: none}}
lameduck: 0s
log: {level: info, format: text}
simulate: {enabled: false, nodePorts: 30000-32767, maxEndpointsPerSlice: 100}
webhook: {listen: "127.0.0.1:8443", service: kube-system/portolan-webhook, timeout: 1s, maxInFlight: 32, certificateLife: 2160h}
controller:
  maxEndpointsPerSlice: 100
  concurrentSyncs: 5
  leaderElection: {enabled: true, namespace: kube-system, name: "", leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
  nodes: {clusterCIDRs: [], maskIPv4: 24, maskIPv6: 64}
  loadBalancer: {class: portolan.dev/lb, withoutClass: false, pools: []}
proxy:
  nodeName: ""
  detectLocal: {mode: ClusterCIDR, clusterCIDRs: [], interface: ""}
  masqueradeAll: false
  masqueradeBit: 14
  nodePortAddresses: [primary]
  slowStart: 0s
  endpointChoice: random
  table: portolan-proxy
  counters: false
  replaceKubeProxy: false
  healthz: 0.0.0.0:10256
  healthLimit: 1m
  conntrack:
    maxPerCore: 32768
    min: 131072
    tcpEstablishedTimeout: 24h
    tcpCloseWaitTimeout: 1h
    tcpBeLiberal: false
    udpTimeout: 0s
    udpStreamTimeout: 0s
    resetTCP: false
policy:
  table: portolan-policy
  existing: cut
  podRanges: []
  daemonSet: ""
  cni: {socket: /run/portolan/cni.sock, install: false, binDir: /opt/cni/bin, confDir: /etc/cni/net.d}
  domains: {leastTTL: 1m, grace: 1m, maxAddresses: 256}
  log: {group: 97, rate: 10}
`,
	}
	for claim, text := range files {
		t.Run(claim, func(t *testing.T) {
			if got := compile(t, text); !reflect.DeepEqual(got, defaults) {
				t.Errorf("Compile of %q\n got %+v\nwant %+v", text, got, defaults)
			}
			if got, err := config.Read(write(t, text)); err != nil || !sameText(got, config.Default()) {
				t.Errorf("Read(%q) = %+v, %v, want the defaults", text, got, err)
			}
		})
	}
}

// sameText reports whether two configurations are equal as text: an empty list equals
// nil.
func sameText(a, b config.Config) bool {
	x, errX := yaml.Marshal(a)
	y, errY := yaml.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// TestCompile checks how values are compiled.
func TestCompile(t *testing.T) {
	tests := map[string]struct {
		text string
		want func(*config.Compiled)
	}{
		"names in any case, with or without the dot": {"dns: {zones: [Cluster.Local., other.example]}", func(c *config.Compiled) {
			c.DNS.Zone.Zones = names("cluster.local", "other.example") // the first is the domain of Pods
			c.DNS.Autopath.Zones = c.DNS.Zone.Zones
		}},
		"ranges of Services, then of Pods": {"dns:\n  podCIDRs: [10.244.0.0/16]\n  serviceCIDRs: [10.96.0.0/12, 'fd00:10:96::/112']", func(c *config.Compiled) {
			c.DNS.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")}
			c.DNS.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
			c.DNS.Zone.ReverseRanges = slices.Concat(c.DNS.ServiceRanges, c.DNS.PodRanges)
		}},
		"the name server is where it listens": {"dns: {listen: ['[fd00::1]:53', 192.0.2.1:53]}", func(c *config.Compiled) {
			c.DNS.Listen = []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:53"), netip.MustParseAddrPort("192.0.2.1:53")}
			c.DNS.Zone.DNSAddresses = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("192.0.2.1")}
		}},
		"every address is no address of the name server": {"dns: {listen: ['0.0.0.0:53', '[::]:53']}", func(c *config.Compiled) {
			c.DNS.Listen = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:53"), netip.MustParseAddrPort("[::]:53")}
			c.DNS.Zone.DNSAddresses = nil
		}},
		"the name server's addresses are those given": {"dns: {nameServer: {addresses: [192.0.2.53, '::ffff:192.0.2.54']}}", func(c *config.Compiled) {
			c.DNS.Zone.DNSAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54")}
		}},
		"IPv4 in IPv6 is IPv4": {"dns: {listen: ['[::ffff:127.0.0.1]:1053']}", func(*config.Compiled) {}},
		"TLS alone": {"dns:\n  listen: []\n  tls: {listen: [127.0.0.1:853], certificate: c, key: k}", func(c *config.Compiled) {
			c.DNS.Listen, c.DNS.ListenTLS, c.DNS.Zone.DNSAddresses = nil, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:853")}, nil
		}},
		"any free port, twice": {"dns: {listen: [127.0.0.1:0, 127.0.0.1:0]}", func(c *config.Compiled) {
			free := netip.MustParseAddrPort("127.0.0.1:0")
			c.DNS.Listen = []netip.AddrPort{free, free}
			c.DNS.Zone.DNSAddresses = append(c.DNS.Zone.DNSAddresses, c.DNS.Zone.DNSAddresses...)
		}},
		"an alias stands for its anchor": {"dns:\n  serviceCIDRs: &ranges [10.0.0.0/8]\n  podCIDRs: *ranges", func(c *config.Compiled) {
			ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			c.DNS.ServiceRanges, c.DNS.PodRanges, c.DNS.Zone.ReverseRanges = ten, ten, slices.Concat(ten, ten)
		}},
		"a secret of digits is not a number": {"dns: {cookies: {secrets: [00112233445566778899001122334455]}}", func(c *config.Compiled) {
			c.DNS.CookieSecrets = []respond.CookieSecret{{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55}}
		}},
		"a controller alone": {"controller: {maxEndpointsPerSlice: 1000, concurrentSyncs: 9, leaderElection: {enabled: false}}", func(c *config.Compiled) {
			c.Controller = kube.CompiledController{MaxEndpoints: 1000, Syncs: 9, LoadBalancer: c.Controller.LoadBalancer}
		}},
		"pools of addresses": {"controller: {loadBalancer: {class: '', withoutClass: true, pools: [{name: a, ranges: [192.0.2.0/31, '2001:db8::1'], reserved: [192.0.2.1], namespaces: [shop], namespaceSelector: team=a, serviceSelector: '!inner', automatic: true}]}}", func(c *config.Compiled) {
			at := netip.MustParseAddr
			c.Controller.LoadBalancer = pool.Config{WithoutClass: true, Pools: []pool.Pool{{
				Name: "a", Ranges: []pool.Range{{First: at("192.0.2.0"), Last: at("192.0.2.1")}, {First: at("2001:db8::1"), Last: at("2001:db8::1")}},
				Reserved: []pool.Range{{First: at("192.0.2.1"), Last: at("192.0.2.1")}}, Namespaces: []string{"shop"},
				NamespaceSelector: &cluster.Selector{Requirements: []cluster.Requirement{{Label: "team", Operator: cluster.In, Values: []string{"a"}}}},
				ServiceSelector:   &cluster.Selector{Requirements: []cluster.Requirement{{Label: "inner", Operator: cluster.DoesNotExist, Values: []string{}}}},
				Automatic:         true,
			}}}
		}},
		"ranges of Nodes": {"controller: {nodes: {clusterCIDRs: ['fd00::/56', 10.0.0.0/8], maskIPv4: 26, maskIPv6: 72}}", func(c *config.Compiled) {
			c.Controller.Nodes = []podcidr.Range{
				{Cluster: netip.MustParsePrefix("fd00::/56"), Bits: 72}, {Cluster: netip.MustParsePrefix("10.0.0.0/8"), Bits: 26},
			}
		}},
		"a service proxy": {"proxy: {nodeName: node-1, detectLocal: {clusterCIDRs: [10.244.0.0/16, 'fd00::/48']}, masqueradeAll: true, masqueradeBit: 3, nodePortAddresses: [192.0.2.7/24], table: vips}", func(c *config.Compiled) {
			c.Proxy.NodeName, c.Proxy.NodePorts = "node-1", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
			c.Proxy.Table = nft.Config{Name: "vips", Mark: 8, MasqueradeAll: true, Pods: frontend.Pods{CIDRs: []netip.Prefix{
				netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/48"),
			}}}
		}},
		"a gateway": {"gateway: {listen: ['[::1]', 192.0.2.1], portOffset: 0, controller: a.example/b, ingress: {controller: a.example/c, port: 81}, nodeName: node-1, trustedClients: [192.0.2.7/24]}", func(c *config.Compiled) {
			c.Gateway.Listen = []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.1")}
			c.Gateway.PortOffset, c.Gateway.Trusted = 0, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
			c.Gateway.Compile = gatewaycompile.Config{
				GatewayController: "a.example/b", IngressController: "a.example/c", IngressPort: 81, Node: "node-1",
				IngressTLSPort: 443, PoolByDefault: true,
			}
		}},
		"a gateway with certificates": {"gateway: {ingress: {tlsPort: 444, certificate: a.crt, key: a.key}}", func(c *config.Compiled) {
			c.Gateway.Compile.IngressTLSPort, c.Gateway.Compile.DefaultCertificate = 444, true
			c.Gateway.Certificate, c.Gateway.Key = "a.crt", "a.key"
		}},
		"a gateway with a pool": {"gateway: {pool: [192.0.2.1, '[2001:db8::1]', '::ffff:192.0.2.2'], poolByDefault: false}", func(c *config.Compiled) {
			c.Gateway.Compile.PoolByDefault = false
			c.Gateway.Compile.Pool = []netip.Addr{
				netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.2"),
			}
		}},
		"endpoints of a gateway": {"gateway: {endpoints: ['shop/web=127.0.0.1:3000', 'shop/web=[::1]:3000', 'shop/web:81=127.0.0.1:3001']}", func(c *config.Compiled) {
			c.Gateway.Compile.Endpoints = map[gatewaycompile.ServicePort][]netip.AddrPort{
				{Namespace: "shop", Service: "web"}: {
					netip.MustParseAddrPort("127.0.0.1:3000"), netip.MustParseAddrPort("[::1]:3000"),
				},
				{Namespace: "shop", Service: "web", Port: 81}: {netip.MustParseAddrPort("127.0.0.1:3001")},
			}
		}},
		"a gateway at all addresses": {"gateway: {listen: ['[::]']}", func(c *config.Compiled) {
			c.Gateway.Listen = []netip.Addr{{}}
		}},
		"a gateway at no address in particular": {"gateway: {listen: []}", func(c *config.Compiled) {
			c.Gateway.Listen = []netip.Addr{{}}
		}},
		"slow start":                             {"proxy: {slowStart: 20s}", func(c *config.Compiled) { c.Proxy.SlowStart = 20 * time.Second }},
		"endpoints by hash":                      {"proxy: {endpointChoice: connection-hash}", func(c *config.Compiled) { c.Proxy.Choice = frontend.ConnectionHash }},
		"counters of connections":                {"proxy: {counters: true}", func(c *config.Compiled) { c.Proxy.Table.Counters = true }},
		"a service proxy in place of kube-proxy": {"proxy: {replaceKubeProxy: true}", func(c *config.Compiled) { c.Proxy.ReplaceKubeProxy = true }},
		"Pods by the Node's ranges":              {"proxy: {detectLocal: {mode: NodeCIDR}}", func(c *config.Compiled) { c.Proxy.PodCIDRs = true }},
		"Pods by a bridge": {"proxy: {detectLocal: {mode: BridgeInterface, interface: cni0}}", func(c *config.Compiled) {
			c.Proxy.Table.Pods.Interface = "cni0"
		}},
		"Pods by the prefix of interfaces": {"proxy: {detectLocal: {mode: InterfaceNamePrefix, interface: cali}}", func(c *config.Compiled) {
			c.Proxy.Table.Pods.InterfacePrefix = "cali"
		}},
		"a webhook": {"dns: {zones: [a.example]}\nwebhook: {clusterDNS: [10.96.0.10, '::ffff:10.96.0.11', 'fd00::a'], service: dns/hook, deny: [pod-fqdn-too-long], ignore: [pod-dns-limit]}", func(c *config.Compiled) {
			c.DNS.Zone.Zones, c.Webhook.ClusterDomain = names("a.example"), "a.example"
			c.DNS.Autopath.Zones = c.DNS.Zone.Zones
			c.DNS.AutopathSOA.MName, c.DNS.AutopathSOA.RName = dnsname.MustParse("ns.dns.a.example"), dnsname.MustParse("hostmaster.a.example")
			c.Webhook.ClusterDNS = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("fd00::a")}
			c.Webhook.Service = admission.ServiceName{Namespace: "dns", Name: "hook"}
			c.Webhook.Deny, c.Webhook.Ignore = []string{"pod-fqdn-too-long"}, []string{"pod-dns-limit"}
		}},
		"no TTL": {"dns: {ttl: 0}", func(c *config.Compiled) {
			c.DNS.Zone.TTL, c.DNS.AutopathSOA.TTL, c.DNS.AutopathSOA.Minimum = 0, 0, 0
		}},
		"names are not searched for": {"dns: {autopath: {suffix: '', option: 0}}", func(c *config.Compiled) {
			c.DNS.Autopath.Suffix, c.DNS.AutopathSOA.Zone, c.DNS.Autopath.Option = dnsname.Root, dnsname.Root, 0
			c.Webhook.AutopathSuffix = ""
		}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			want := *defaults
			tt.want(&want)
			want.Node.Listen = want.DNS.Listen // the node has no addresses here
			want.Node.Secondary.Zones = slices.Concat(want.DNS.Zone.Zones, reverseZones(want.DNS.Zone.ReverseRanges))
			if got := compile(t, tt.text); !reflect.DeepEqual(got, &want) {
				t.Errorf("Compile of %q\n got %+v\nwant %+v", tt.text, got, &want)
			}
		})
	}
}

func reverseZones(ranges []netip.Prefix) (all []dnsname.Name) {
	for _, r := range ranges {
		zones, _ := dnsname.ReverseZones(r)
		for _, z := range zones {
			if !slices.Contains(all, z) {
				all = append(all, z)
			}
		}
	}
	return all
}

func names(all ...string) (parsed []dnsname.Name) {
	for _, s := range all {
		parsed = append(parsed, dnsname.MustParse(s))
	}
	return parsed
}

// long is a name of three labels and 191 octets. It leaves room for ns.dns, but not for
// hostmaster with one more label.
var long = strings.Repeat(strings.Repeat("a", 62)+".", 3)

// refusals has invalid files, and the errors that follow the file's name.
var refusals = map[string]struct{ text, want string }{
	// Keys.
	"an unknown key":                 {"dns:\n  ttl: 5\nfoo: 1\n", ":3: unknown key foo"},
	"an unknown key in a section":    {"dns:\n  tcp:\n    idle: 1s\n    foo: 1\n", ":4: unknown key dns.tcp.foo"},
	"an unknown key in flow style":   {"log: {level: info,\n  foo: 1}", ":2: unknown key log.foo"},
	"an unknown key, no value":       {"foo:\n", ":1: unknown key foo"},
	"a key in the wrong case":        {"dns: {TTL: 5}\n", ":1: unknown key dns.TTL; it is spelled dns.ttl"},
	"a key with a typo":              {"dns:\n  zonse: []\n", ":2: unknown key dns.zonse; did you mean dns.zones?"},
	"a key with a dash":              {"# sizes\ndns: {udp-size: 512}\n", ":2: unknown key dns.udp-size; it is spelled dns.udpSize"},
	"a key with an underscore":       {"dns: {tcp: {max_queries: 1}}", ":1: unknown key dns.tcp.max_queries; it is spelled dns.tcp.maxQueries"},
	"a key given twice":              {"dns:\n  ttl: 5\n  pods: disabled\n  ttl: 6\n", ":4: key dns.ttl given twice, before on line 2"},
	"a key given twice in a section": {"log:\n  level: info\n  level: warn\n", ":3: key log.level given twice, before on line 2"},
	"a key without its section":      {"log: {level: warn}\nlisten: [127.0.0.1:53]\n", ":2: unknown key listen; it is dns.listen"},
	"a section without its section":  {"udp-size: 512\n", ":1: unknown key udp-size; it is dns.udpSize"},
	"a merge key":                    {"<<: {ttl: 5}\n", ":1: unknown key <<"},
	"a key that is a list":           {"[a]: 5\n", ":1: a key must be a word"},

	// Documents.
	"no mapping":            {"# first\n- ttl\n", ":2: not a mapping of keys to values"},
	"only a word":           {"ttl\n", ":1: not a mapping of keys to values"},
	"two documents":         {"dns: {ttl: 5}\n---\nlameduck: 6s\n", ":3: a second document; there must be one"},
	"a list never closed":   {"dns:\n  ttl: 5\n  listen: [127.0.0.1:53\n  pods: verified\n", ":3: did not find expected ',' or ']'"},
	"a tab":                 {"dns:\n  tcp:\n  \tidle: 1s\n", ":3: found character that cannot start any token"},
	"a value in a value":    {"dns:\n  ttl: 5\n  pods: a: b\n", ":3: mapping values are not allowed in this context"},
	"bad on the first line": {"manifests: a: b\n", ":1: mapping values are not allowed in this context"},
	"bad indentation":       {"log:\n  level: info\n format: text\n", ":3: did not find expected key"},
	"a quote never closed":  {"dns:\n  ttl: 5\n  pods: 'verified\n", ":3: found unexpected end of stream"},
	"an unknown anchor":     {"dns: {ttl: *five}\n", ": unknown anchor 'five' referenced"},
	"a control character":   {"dns:\n  ttl: 5\n  pods: \x01\n", ": control characters are not allowed"},
	"an anchor in itself":   {"dns:\n  tcp: &a\n    idle: *a\n", ":3: dns.tcp.idle: a mapping is not text"},

	// Types.
	"a word for a number":         {"dns:\n  pods: verified\n  ttl: soon\n", `:3: dns.ttl: "soon" is not a whole number`},
	"text for a number":           {"dns: {ttl: '5'}\n", `:1: dns.ttl: "5" is not a whole number`},
	"a fraction for a number":     {"dns: {ttl: 1.5}\n", `:1: dns.ttl: "1.5" is not a whole number`},
	"too much for a number":       {"dns: {udpSize: 99999999999999999999}\n", `:1: dns.udpSize: "99999999999999999999" is not a whole number`},
	"a list for a number":         {"dns:\n  tcp:\n    maxQueries: [1]\n", ":3: dns.tcp.maxQueries: a list is not a whole number"},
	"a word for true or false":    {"dns: {endpointPodNames: perhaps}\n", `:1: dns.endpointPodNames: "perhaps" is not true or false`},
	"a mapping for true or false": {"dns: {endpointPodNames: {}}\n", ":1: dns.endpointPodNames: a mapping is not true or false"},
	"a word for a list":           {"dns: {listen: 127.0.0.1:53}\n", ":1: dns.listen: not a list; one is written [ONE, TWO]"},
	"a mapping for a list":        {"dns:\n  zones:\n    cluster.local: true\n", ":3: dns.zones: not a list; one is written [ONE, TWO]"},
	"a list for text":             {"dns: {pods: [verified]}\n", ":1: dns.pods: a list is not text"},
	"a mapping in a list":         {"dns:\n  zones:\n    - cluster.local\n    - name: a.example\n", ":4: dns.zones: a mapping is not text"},
	"nothing in a list":           {"dns:\n  zones:\n    - cluster.local\n    -\n", ":4: dns.zones: an item without a value"},
	"a word for a section":        {"dns: {tcp: fast}\n", ":1: dns.tcp: not a mapping of keys to values"},
	"a list for a section":        {"log: [info]\n", ":1: log: not a mapping of keys to values"},
	"a number for a duration":     {"dns:\n  tcp:\n    idle: 10\n", `:3: dns.tcp.idle: "10" is not a duration, such as 10s or 1m30s`},
	"a word for a duration":       {"dns: {tcp: {idle: soon}}\n", `:1: dns.tcp.idle: "soon" is not a duration, such as 10s or 1m30s`},
	"a list for a duration":       {"dns: {tcp: {idle: [10s]}}\n", ":1: dns.tcp.idle: a list is not text"},

	// Values.
	"listen on a name":               {"dns: {listen: [localhost:53]}", `:1: dns.listen: "localhost:53" is not an address and port, such as 127.0.0.1:1053 or [::]:53`},
	"listen without address":         {"dns:\n  listen:\n    - 127.0.0.1:53\n    - :53\n", `:4: dns.listen: ":53" is not an address and port, such as 127.0.0.1:1053 or [::]:53`},
	"listen without port":            {"dns: {listen: [127.0.0.1]}", `:1: dns.listen: "127.0.0.1" is not an address and port, such as 127.0.0.1:1053 or [::]:53`},
	"listen on port 65536":           {"dns: {listen: [127.0.0.1:65536]}", `:1: dns.listen: "127.0.0.1:65536" is not an address and port, such as 127.0.0.1:1053 or [::]:53`},
	"listen nowhere":                 {"dns:\n  ttl: 5\n  listen: []", ":3: dns.listen: no address, nor in dns.tls.listen or dns.https.listen"},
	"listen twice":                   {"dns:\n  listen:\n    - 127.0.0.1:53\n    - 127.0.0.1:0\n    - '[::ffff:127.0.0.1]:53'\n", `:5: dns.listen: "[::ffff:127.0.0.1]:53" is given twice`},
	"no zone":                        {"dns: {zones: []}", ":1: dns.zones: no zone"},
	"an empty zone":                  {"dns: {zones: ['']}", `:1: dns.zones: name "": empty label`},
	"a bad zone":                     {"dns:\n  zones:\n    - a.example\n    - b..example\n", `:4: dns.zones: name "b..example": empty label`},
	"the root as zone":               {"dns: {zones: ['.']}", ":1: dns.zones: the root can't be a cluster's zone"},
	"a zone twice":                   {"dns: {zones: [a.example, A.example.]}", ":1: dns.zones: a.example. and a.example.: zones overlap"},
	"a zone in another":              {"dns:\n  pods: verified\n  zones: [a.example, b.a.example]", ":3: dns.zones: a.example. and b.a.example.: zones overlap"},
	"a reverse zone":                 {"dns: {zones: [10.in-addr.arpa]}", ":1: dns.zones: in-addr.arpa. and 10.in-addr.arpa.: zones overlap"},
	"a zone too long":                {"dns: {zones: [" + long + strings.Repeat("b", 55) + "]}", `:1: dns.zones: label "hostmaster" below ` + long + strings.Repeat("b", 55) + ".: name longer than 255 octets"},
	"a TTL too long":                 {"dns:\n  pods: verified\n  ttl: 3601", ":3: dns.ttl: 3601 is not between 0 and 3600"},
	"a TTL too short":                {"dns: {ttl: -1}", ":1: dns.ttl: -1 is not between 0 and 3600"},
	"an unknown pod mode":            {"dns: {pods: all}", `:1: dns.pods: "all" is not verified, insecure or disabled`},
	"a Service range of words":       {"dns: {serviceCIDRs: [services]}", `:1: dns.serviceCIDRs: "services" is not a range, such as 10.96.0.0/12`},
	"a Service range too wide":       {"dns: {serviceCIDRs: [0.0.0.0/0]}", `:1: dns.serviceCIDRs: "0.0.0.0/0" is not a range, such as 10.96.0.0/12`},
	"a Pod range without bits":       {"dns:\n  podCIDRs:\n  - 10.0.0.0/8\n  - 10.96.0.0", `:4: dns.podCIDRs: "10.96.0.0" is not a range, such as 10.96.0.0/12`},
	"a cluster of nothing":           {"simulate: {enabled: true}", ":1: simulate.enabled: there are no manifests to simulate a cluster from; set manifests to a directory"},
	"node ports of words":            {"simulate:\n  nodePorts: many", `:2: simulate.nodePorts: "many" is not a range of ports, such as 30000-32767`},
	"node ports backwards":           {"simulate: {nodePorts: 32767-30000}", `:1: simulate.nodePorts: "32767-30000" is not a range of ports, such as 30000-32767`},
	"slices of no endpoint":          {"simulate: {maxEndpointsPerSlice: 0}", ":1: simulate.maxEndpointsPerSlice: 0 is not between 1 and 1000"},
	"slices too long":                {"simulate: {maxEndpointsPerSlice: 1001}", ":1: simulate.maxEndpointsPerSlice: 1001 is not between 1 and 1000"},
	"Pods where Services are":        {"manifests: .\ndns:\n  podCIDRs: [10.96.0.0/24]\nsimulate: {enabled: true}", ":4: simulate.enabled: the range of Pods 10.96.0.0/24 overlaps 10.96.0.0/16 (dns.serviceCIDRs and dns.podCIDRs say which)"},
	"two ranges of one family":       {"manifests: .\ndns:\n  podCIDRs: [10.1.0.0/16, 10.2.0.0/16]\nsimulate: {enabled: true}", ":4: simulate.enabled: ranges of Pods [10.1.0.0/16 10.2.0.0/16]: there must be one, or two of different families (dns.serviceCIDRs and dns.podCIDRs say which)"},
	"a DNS Service, no name":         {"dns:\n  nameServer:\n    service: kube-dns", `:3: dns.nameServer.service: "kube-dns" is not namespace/name`},
	"a DNS Service, much name":       {"dns: {nameServer: {service: a/b/c}}", `:1: dns.nameServer.service: "a/b/c" is not namespace/name`},
	"a DNS Service, empty":           {"dns: {nameServer: {service: ''}}", `:1: dns.nameServer.service: "" is not namespace/name`},
	"a name server's name":           {"dns:\n  nameServer:\n    addresses: [192.0.2.1,\n      ns.example]", `:4: dns.nameServer.addresses: "ns.example" is not an address`},
	"a name server's interface":      {"dns: {nameServer: {addresses: ['fe80::1%eth0']}}", `:1: dns.nameServer.addresses: "fe80::1%eth0" is not an address`},
	"a UDP size too small":           {"dns: {udpSize: 511}", ":1: dns.udpSize: 511 is not between 512 and 4096"},
	"a UDP size too big":             {"dns: {udpSize: 4097}", ":1: dns.udpSize: 4097 is not between 512 and 4096"},
	"a webhook on a name":            {"webhook:\n  listen: localhost:8443", `:2: webhook.listen: "localhost:8443" is not an address and port, such as 0.0.0.0:8443`},
	"a webhook without namespace":    {"webhook: {service: hook}", `:1: webhook.service: "hook" is not namespace/name`},
	"a webhook in many namespaces":   {"webhook: {service: a/b/c}", `:1: webhook.service: "a/b/c" is not namespace/name`},
	"a webhook's DNS by name":        {"webhook:\n  clusterDNS:\n  - 10.96.0.10\n  - kube-dns", `:4: webhook.clusterDNS: "kube-dns" is not an address`},
	"a webhook's DNS on a link":      {"webhook: {clusterDNS: ['fe80::1%eth0']}", `:1: webhook.clusterDNS: "fe80::1%eth0" is not an address`},
	"a webhook's DNS in the Pod":     {"webhook: {clusterDNS: [169.254.20.10, 127.0.0.53]}", `:1: webhook.clusterDNS: 127.0.0.53 is not an address that Pods can query`},
	"a webhook's DNS nowhere":        {"webhook: {clusterDNS: ['::ffff:0.0.0.0']}", `:1: webhook.clusterDNS: 0.0.0.0 is not an address that Pods can query`},
	"a webhook's DNS for many":       {"webhook: {clusterDNS: ['ff02::fb']}", `:1: webhook.clusterDNS: ff02::fb is not an address that Pods can query`},
	"an agent's address by name":     {"webhook: {nodeDNS: [agent]}", `:1: webhook.nodeDNS: "agent" is not an address`},
	"an agent where the servers are": {"webhook: {clusterDNS: [10.0.0.1], nodeDNS: [169.254.20.10, 10.0.0.1]}", ":1: webhook.nodeDNS: 10.0.0.1 is in webhook.clusterDNS too; the agents' addresses must differ"},
	"agents and servers, too many":   {"webhook: {clusterDNS: [10.0.0.1, 10.0.0.2], nodeDNS: [169.254.20.10, 'fd00::a']}", ":1: webhook.nodeDNS: 4 addresses with webhook.clusterDNS; a Pod has at most 3"},
	"four addresses for Pods":        {"webhook: {clusterDNS: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}", ":1: webhook.clusterDNS: 4 addresses; a Pod has at most 3"},
	"no time for reviews":            {"webhook: {timeout: 0s}", ":1: webhook.timeout: 0s is not more than 0s and at most 30s"},
	"much time for reviews":          {"webhook: {timeout: 31s}", ":1: webhook.timeout: 31s is not more than 0s and at most 30s"},
	"no place for reviews":           {"webhook: {maxInFlight: 0}", ":1: webhook.maxInFlight: 0 is less than 1"},
	"a certificate for a moment":     {"webhook: {certificateLife: 59m}", ":1: webhook.certificateLife: 59m0s is less than 1h0m0s"},
	"a rule that is none":            {"webhook:\n  deny:\n  - typo", `:3: webhook.deny: "typo" is not a rule of the webhook; docs/webhook.md lists them`},
	"a rule that is none, ignored":   {"webhook: {ignore: [typo]}", `:1: webhook.ignore: "typo" is not a rule of the webhook; docs/webhook.md lists them`},
	"a rule that denies and doesn't": {"webhook: {deny: [pod-fqdn-too-long], ignore: [pod-fqdn-too-long]}", ":1: webhook.ignore: pod-fqdn-too-long is in webhook.deny, too"},
	"slices without endpoints":       {"controller: {maxEndpointsPerSlice: 0}", ":1: controller.maxEndpointsPerSlice: 0 is not between 1 and 1000"},
	"slices of many endpoints":       {"controller: {maxEndpointsPerSlice: 1001}", ":1: controller.maxEndpointsPerSlice: 1001 is not between 1 and 1000"},
	"a controller that does nothing": {"controller:\n  concurrentSyncs: 0", ":2: controller.concurrentSyncs: 0 is not between 1 and 1000"},
	"a mode without interface":       {"proxy: {detectLocal: {mode: BridgeInterface}}", ":1: proxy.detectLocal.interface: is empty; the mode BridgeInterface needs the name of an interface"},
	"an interface that is too long":  {"proxy: {detectLocal: {interface: abcdefghijklmnop}}", ":1: proxy.detectLocal.interface: \"abcdefghijklmnop\" has more than 15 characters"},
	"a range of Pods":                {"proxy: {detectLocal: {clusterCIDRs: [all]}}", ":1: proxy.detectLocal.clusterCIDRs: \"all\" is not a range such as 10.244.0.0/16"},
	"two ranges of Pods of a family": {"proxy: {detectLocal: {clusterCIDRs: [10.1.0.0/16, 10.2.0.0/16]}}", ":1: proxy.detectLocal.clusterCIDRs: \"10.2.0.0/16\" is a second range of its family; give one of each"},
	"addresses for node ports":       {"proxy: {nodePortAddresses: [primary, 192.0.2.0/24]}", ":1: proxy.nodePortAddresses: \"primary\" is not a range such as 192.0.2.0/24, nor primary alone"},
	"a node of several words":        {"proxy: {nodeName: [a, b]}", ":1: proxy.nodeName: a list is not text"},
	"a mode of detection":            {"proxy: {detectLocal: {mode: Magic}}", ":1: proxy.detectLocal.mode: \"Magic\" is not ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"},
	"masquerading some":              {"proxy: {masqueradeAll: some}", ":1: proxy.masqueradeAll: \"some\" is not true or false"},
	"a bit that marks lack":          {"proxy: {masqueradeBit: 32}", ":1: proxy.masqueradeBit: 32 is not between 0 and 31"},
	"a word for the probes' address": {"proxy: {healthz: all}", ":1: proxy.healthz: \"all\" is not an address and port, such as 0.0.0.0:10256"},
	"a health limit of nothing":      {"proxy: {healthLimit: 0s}", ":1: proxy.healthLimit: 0s is less than 1s"},
	"entries below 0":                {"proxy: {conntrack: {maxPerCore: -1}}", ":1: proxy.conntrack.maxPerCore: -1 is less than 0"},
	"least entries below 0":          {"proxy: {conntrack: {min: -1}}", ":1: proxy.conntrack.min: -1 is less than 0"},
	"a timeout of TCP":               {"proxy: {conntrack: {tcpEstablishedTimeout: -1s}}", ":1: proxy.conntrack.tcpEstablishedTimeout: -1s is less than 0s"},
	"a timeout of half-closed TCP":   {"proxy: {conntrack: {tcpCloseWaitTimeout: -1s}}", ":1: proxy.conntrack.tcpCloseWaitTimeout: -1s is less than 0s"},
	"rather liberal":                 {"proxy: {conntrack: {tcpBeLiberal: rather}}", ":1: proxy.conntrack.tcpBeLiberal: \"rather\" is not true or false"},
	"a timeout of UDP":               {"proxy: {conntrack: {udpTimeout: -1s}}", ":1: proxy.conntrack.udpTimeout: -1s is less than 0s"},
	"a timeout of UDP streams":       {"proxy: {conntrack: {udpStreamTimeout: -1s}}", ":1: proxy.conntrack.udpStreamTimeout: -1s is less than 0s"},
	"resetting some":                 {"proxy: {conntrack: {resetTCP: some}}", ":1: proxy.conntrack.resetTCP: \"some\" is not true or false"},
	"replacing some":                 {"proxy: {replaceKubeProxy: some}", ":1: proxy.replaceKubeProxy: \"some\" is not true or false"},
	"a slow start of days":           {"proxy: {slowStart: 48h}", ":1: proxy.slowStart: 48h0m0s is not between 0s and 1h"},
	"a choice by moon":               {"proxy: {endpointChoice: moon}", ":1: proxy.endpointChoice: \"moon\" is not random, client-hash or connection-hash"},
	"counting some":                  {"proxy: {counters: some}", ":1: proxy.counters: \"some\" is not true or false"},
	"no such encapsulation":          {"network: {encapsulation: ipip}", ":1: network.encapsulation: \"ipip\" is not crossSubnet, always or never"},
	"an MTU without IPv6":            {"network: {mtu: 1000}", ":1: network.mtu: 1000 is less than 1280, which IPv6 needs; 0 is that of the uplink"},
	"an MTU of more than a packet":   {"network: {mtu: 70000}", ":1: network.mtu: 70000 is not between 0 and 65535"},
	"a VNI of 25 bits":               {"network: {vxlan: {vni: 16777216}}", ":1: network.vxlan.vni: 16777216 is not between 1 and 16777215"},
	"no port of tunnels":             {"network: {vxlan: {port: 0}}", ":1: network.vxlan.port: 0 is not between 1 and 65535"},
	"a range without masquerade":     {"network: {nonMasqueradeCIDRs: [10.0.0.0]}", ":1: network.nonMasqueradeCIDRs: \"10.0.0.0\" is not a range such as 10.0.0.0/8"},
	"such a range twice":             {"network: {nonMasqueradeCIDRs: [10.0.0.0/8, 10.1.0.0/8]}", ":1: network.nonMasqueradeCIDRs: \"10.1.0.0/8\" is given twice"},
	"no name of the network's table": {"network: {table: ''}", ":1: network.table: is empty; leave it out for portolan-network"},
	"nodes' addresses of a word":     {"network: {vxlan: {nodeAddresses: maybe}}", ":1: network.vxlan.nodeAddresses: \"maybe\" is not true or false"},
	"encryption by another protocol": {"network: {encryption: ipsec}", ":1: network.encryption: \"ipsec\" is not none or wireguard"},
	"no port of encrypted tunnels":   {"network: {wireguard: {port: 0}}", ":1: network.wireguard.port: 0 is not between 1 and 65535"},
	"one port for both tunnels":      {"network: {encryption: wireguard, wireguard: {port: 4789}}", ":1: network.wireguard.port: 4789 is that of network.vxlan.port, too"},
	"nodes without key by chance":    {"network: {wireguard: {nodesWithoutKey: some}}", ":1: network.wireguard.nodesWithoutKey: \"some\" is not unreachable or unencrypted"},
	"masquerade of a word":           {"network: {masquerade: maybe}", ":1: network.masquerade: \"maybe\" is not true or false"},
	"a network installed maybe":      {"network: {cni: {install: maybe}}", ":1: network.cni.install: \"maybe\" is not true or false"},
	"a network without programs":     {"network: {cni: {binDir: ''}}", ":1: network.cni.binDir: \"\" is not an absolute path"},
	"a network without lists":        {"network: {cni: {confDir: net.d}}", ":1: network.cni.confDir: \"net.d\" is not an absolute path"},
	"a network without socket":       {"network: {cni: {socket: ''}}", ":1: network.cni.socket: \"\" is not an absolute path"},
	"announcements perhaps":          {"network: {announce: {enabled: maybe}}", ":1: network.announce.enabled: \"maybe\" is not true or false"},
	"announcements on no interface":  {"network: {announce: {interfaces: [\"\"]}}", ":1: network.announce.interfaces: is empty"},
	"announcing nodes by a word":     {"network: {announce: {nodeSelector: uplink}}", ":1: network.announce.nodeSelector: \"uplink\" is not labels, such as rack=a,edge=yes"},
	"an AS number of 33 bits":        {"network: {announce: {bgp: {asn: 4294967296}}}", ":1: network.announce.bgp.asn: 4294967296 is not between 0 and 4294967295"},
	"a router's ID of IPv6":          {"network: {announce: {bgp: {routerID: \"::1\"}}}", ":1: network.announce.bgp.routerID: \"::1\" is not an address of IPv4"},
	"a hold time of a second":        {"network: {announce: {bgp: {holdTime: 1s}}}", ":1: network.announce.bgp.holdTime: 1s is not between 3s and 65535s"},
	"a router without address":       {"network: {announce: {bgp: {asn: 65001, peers: [{address: tor, asn: 65002}]}}}", ":1: network.announce.bgp.peers.address: \"tor\" is not the address of a router"},
	"a router without number":        {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 0}]}}}", ":1: network.announce.bgp.peers.asn: is missing"},
	"a router at port 70000":         {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, port: 70000}]}}}", ":1: network.announce.bgp.peers.port: 70000 is not between 0 and 65535"},
	"a password in a relative file":  {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, passwordFile: bgp}]}}}", ":1: network.announce.bgp.peers.passwordFile: \"bgp\" is not an absolute path"},
	"a community of a word":          {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, communities: [red]}]}}}", ":1: network.announce.bgp.peers.communities: \"red\" is not a community, such as 65001:100 or no-export"},
	"a negative preference":          {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, localPreference: -1}]}}}", ":1: network.announce.bgp.peers.localPreference: -1 is not between 0 and 4294967295"},
	"a long restart":                 {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, gracefulRestart: 5000s}]}}}", ":1: network.announce.bgp.peers.gracefulRestart: 1h23m20s is not between 0s and 4095s"},
	"a selector with an operator":    {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002, nodeSelector: \"rack!=a\"}]}}}", ":1: network.announce.bgp.peers.nodeSelector: \"rack!=a\" is not labels, such as rack=a,edge=yes"},
	"routers without announcements":  {"network: {announce: {bgp: {asn: 65001, peers: [{address: 192.0.2.250, asn: 65002}]}}}", ":1: network.announce.enabled: is false: peers of network.announce.bgp need true"},
	"a label with two values":        {"network: {announce: {nodeSelector: \"rack=a,rack=b\"}}", ":1: network.announce.nodeSelector: \"rack=a,rack=b\" has the label rack twice: a node has one value of it"},
	"no name of the policies' table": {"policy: {table: ''}", ":1: policy.table: is empty; leave it out for portolan-policy"},
	"no such fate of flows":          {"policy: {existing: drop}", ":1: policy.existing: \"drop\" is not cut or keep"},
	"a range of Pods without length": {"policy: {podRanges: [10.244.1.0]}", ":1: policy.podRanges: \"10.244.1.0\" is not a range such as 10.244.1.0/24"},
	"ranges of Pods that overlap":    {"policy: {podRanges: [10.244.0.0/16, 10.244.1.0/24]}", ":1: policy.podRanges: \"10.244.1.0/24\" overlaps another range"},
	"a socket with a relative path":  {"policy: {cni: {socket: cni.sock}}", ":1: policy.cni.socket: \"cni.sock\" is not an absolute path"},
	"a DaemonSet with a namespace":   {"policy: {daemonSet: kube-system/agents}", ":1: policy.daemonSet: \"kube-system/agents\" is not a name; the namespace is that of the agents"},
	"a directory of no plugins":      {"policy: {cni: {binDir: ''}}", ":1: policy.cni.binDir: \"\" is not an absolute path"},
	"a relative directory":           {"policy: {cni: {confDir: net.d}}", ":1: policy.cni.confDir: \"net.d\" is not an absolute path"},
	"a plugin without socket":        {"policy: {cni: {install: true, socket: ''}}", ":1: policy.cni.install: needs policy.cni.socket: without it no Pod would start"},
	"addresses for no time":          {"policy: {domains: {leastTTL: 0s}}", ":1: policy.domains.leastTTL: 0s is not between 1s and 24h"},
	"grace for two days":             {"policy: {domains: {grace: 48h}}", ":1: policy.domains.grace: 48h0m0s is not between 0s and 24h"},
	"no addresses of names":          {"policy: {domains: {maxAddresses: 0}}", ":1: policy.domains.maxAddresses: 0 is not between 1 and 65536"},
	"group 0 of the log":             {"policy: {log: {group: 0}}", ":1: policy.log.group: 0 is not between 1 and 65535"},
	"a log without limit":            {"policy: {log: {rate: 20000}}", ":1: policy.log.rate: 20000 is not between 1 and 10000"},
	"a port to listen at":            {"gateway: {listen: ['127.0.0.1:80']}", ":1: gateway.listen: \"127.0.0.1:80\" is not an address, such as 127.0.0.1 or [::]"},
	"an address given twice":         {"gateway: {listen: ['::1', '[::1]']}", ":1: gateway.listen: \"[::1]\" is given twice"},
	"all addresses and one of them":  {"gateway: {listen: ['::', 127.0.0.1]}", ":1: gateway.listen: \"127.0.0.1\" is one of all addresses, which \"::\" is"},
	"an address and all of them":     {"gateway: {listen: [127.0.0.1, '::']}", ":1: gateway.listen: \"::\" is all addresses, also \"127.0.0.1\""},
	"an offset without ports":        {"gateway: {portOffset: 65100}", ":1: gateway.portOffset: with it a port of Ingresses is above 65535"},
	"HTTPS at the port of HTTP":      {"gateway: {ingress: {tlsPort: 80}}", ":1: gateway.ingress.tlsPort: is the port of HTTP, too"},
	"port 0 of HTTPS":                {"gateway: {ingress: {tlsPort: 0}}", ":1: gateway.ingress.tlsPort: 0 is not between 1 and 65535"},
	"a key without certificate":      {"gateway: {ingress: {key: a.key}}", ":1: gateway.ingress.certificate: a key needs its certificate; give both"},
	"a certificate without key":      {"gateway: {ingress: {certificate: a.crt}}", ":1: gateway.ingress.key: a certificate needs its key; give both"},
	"a range in the pool":            {"gateway: {pool: [192.0.2.0/24]}", ":1: gateway.pool: \"192.0.2.0/24\" is not an address of a host, such as 192.0.2.1"},
	"all addresses in the pool":      {"gateway: {pool: ['::']}", ":1: gateway.pool: \"::\" is not an address of a host, such as 192.0.2.1"},
	"a pool with one address twice":  {"gateway: {pool: [192.0.2.1, '::ffff:192.0.2.1']}", ":1: gateway.pool: \"::ffff:192.0.2.1\" is given twice"},
	"a pool of shared addresses":     {"gateway: {pool: [127.0.0.1]}", ":1: gateway.pool: \"127.0.0.1\" is an address of gateway.listen, too"},
	"a pool that is a word":          {"gateway: {poolByDefault: some}", ":1: gateway.poolByDefault: \"some\" is not true or false"},
	"fields that may have effects":   {"gateway: {experimental: some}", ":1: gateway.experimental: \"some\" is not true or false"},
	"a pool without a name":          {"controller: {loadBalancer: {pools: [{ranges: [192.0.2.0/28]}]}}", ":1: controller.loadBalancer.pools.name: is empty"},
	"a pool of a nameless Namespace": {"controller: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28], namespaces: ['']}]}}", ":1: controller.loadBalancer.pools.namespaces: one is empty"},
	"two pools of one range":         {"controller: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28]}, {name: b, ranges: [192.0.2.1]}]}}", ":1: controller.loadBalancer.pools: ranges 192.0.2.0-192.0.2.15 and 192.0.2.1-192.0.2.1 overlap"},
	"a pool that is automatic some":  {"controller: {loadBalancer: {pools: [{name: a, automatic: some}]}}", ":1: controller.loadBalancer.pools.automatic: \"some\" is not true or false"},
	"Services without some class":    {"controller: {loadBalancer: {withoutClass: some}}", ":1: controller.loadBalancer.withoutClass: \"some\" is not true or false"},
	"a pool of no range":             {"controller:\n  loadBalancer:\n    pools:\n    - name: a\n      ranges: [192.0.2.0/28]\n    - name: b\n      ranges: [all]", ":7: controller.loadBalancer.pools.ranges: \"all\" is not a range, such as 192.0.2.0/28, 192.0.2.40-192.0.2.60 or 192.0.2.1"},
	"a reserved name":                {"controller: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28], reserved: [b]}]}}", ":1: controller.loadBalancer.pools.reserved: \"b\" is not a range, such as 192.0.2.0/28, 192.0.2.40-192.0.2.60 or 192.0.2.1"},
	"a pool of odd Namespaces":       {"controller: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28], namespaceSelector: 'a>1'}]}}", ":1: controller.loadBalancer.pools.namespaceSelector: \"a>1\" has the operator gt, which label selectors of Kubernetes objects do not have"},
	"a pool of odd Services":         {"controller: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28], serviceSelector: '=='}]}}", ":1: controller.loadBalancer.pools.serviceSelector: \"==\" is not a label selector: found '==', expected: !, identifier, or 'end of string'"},
	"addresses for nobody":           {"controller: {loadBalancer: {class: ''}}", ":1: controller.loadBalancer.class: is empty, and withoutClass is false: no Service would get an address"},
	"Nodes of no range":              {"controller: {nodes: {clusterCIDRs: [all]}}", ":1: controller.nodes.clusterCIDRs: \"all\" is not a range of addresses, such as 10.244.0.0/16 or fd00:10:244::/48"},
	"Nodes of too many ranges":       {"controller:\n  nodes:\n    clusterCIDRs:\n    - 10.0.0.0/8\n    - fd00::/40", ":5: controller.nodes.clusterCIDRs: fd00::/40 has more ranges of the mask /64 than 2^16"},
	"Nodes of one family twice":      {"controller: {nodes: {clusterCIDRs: [10.0.0.0/16, 10.1.0.0/16]}}", ":1: controller.nodes.clusterCIDRs: both ranges are of one family"},
	"a Node of the whole range":      {"controller: {nodes: {maskIPv4: 0}}", ":1: controller.nodes.maskIPv4: 0 is not between 1 and 32"},
	"a Node of no address":           {"controller: {nodes: {maskIPv6: 129}}", ":1: controller.nodes.maskIPv6: 129 is not between 1 and 128"},
	"Gateways of nobody":             {"gateway: {controller: ''}", ":1: gateway.controller: is empty; leave it out for portolan.dev/gateway"},
	"Ingresses of nobody":            {"gateway: {ingress: {controller: ''}}", ":1: gateway.ingress.controller: is empty; leave it out for portolan.dev/ingress"},
	"port 0 of Ingresses":            {"gateway: {ingress: {port: 0}}", ":1: gateway.ingress.port: 0 is not between 1 and 65535"},
	"another version of TLS":         {"gateway: {tls: {minVersion: 1.1}}", ":1: gateway.tls.minVersion: \"1.1\" is not 1.2 or 1.3"},
	"a suite of TLS 1.3":             {"gateway: {tls: {cipherSuites: [TLS_AES_128_GCM_SHA256]}}", ":1: gateway.tls.cipherSuites: \"TLS_AES_128_GCM_SHA256\" is not a cipher suite of TLS 1.2 such as TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},
	"suites that are excluded":       {"gateway: {tls: {minVersion: 1.3, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}}", ":1: gateway.tls.cipherSuites: are those of TLS 1.2, which gateway.tls.minVersion excludes"},
	"a Secret without a namespace":   {"gateway: {tls: {ticketSecret: own}}", ":1: gateway.tls.ticketSecret: \"own\" is not namespace/name"},
	"annotations of another":         {"gateway: {ingress: {annotations: traefik}}", ":1: gateway.ingress.annotations: \"traefik\" is not nginx; leave it out for none"},
	"a gateway of two nodes":         {"gateway: {nodeName: [a, b]}", ":1: gateway.nodeName: a list is not text"},
	"an endpoint without a port":     {"gateway: {endpoints: [shop/web=127.0.0.1]}", ":1: gateway.endpoints: \"shop/web=127.0.0.1\" is not such as shop/web=127.0.0.1:3000 or shop/web:80=127.0.0.1:3000, with an IP address and the number of the Service's port"},
	"an endpoint of no Service":      {"gateway: {endpoints: ['127.0.0.1:3000']}", ":1: gateway.endpoints: \"127.0.0.1:3000\" is not such as shop/web=127.0.0.1:3000 or shop/web:80=127.0.0.1:3000, with an IP address and the number of the Service's port"},
	"an endpoint of a named port":    {"gateway: {endpoints: ['shop/web:http=127.0.0.1:3000']}", ":1: gateway.endpoints: \"shop/web:http=127.0.0.1:3000\" is not such as shop/web=127.0.0.1:3000 or shop/web:80=127.0.0.1:3000, with an IP address and the number of the Service's port"},
	"a trusted client without range": {"gateway: {trustedClients: [192.0.2.1]}", ":1: gateway.trustedClients: \"192.0.2.1\" is not a range such as 192.0.2.0/24"},
	"a log in XML":                   {"gateway: {accessLog: xml}", ":1: gateway.accessLog: \"xml\" is not off, json or combined"},
	"a collector without a scheme":   {"gateway: {tracing: {endpoint: 'collector:4318'}}", ":1: gateway.tracing.endpoint: \"collector:4318\" is not a URL such as http://collector:4318/v1/traces"},
	"traces of no request":           {"gateway: {tracing: {oneIn: 0}}", ":1: gateway.tracing.oneIn: 0 is not between 1 and 1000000"},
	"series of too many routes":      {"gateway: {routeMetrics: 10001}", ":1: gateway.routeMetrics: 10001 is not between 0 and 10000"},
	"connections below 0":            {"gateway: {limits: {connections: -1}}", ":1: gateway.limits.connections: -1 is not between 0 and 1000000"},
	"a head of one octet":            {"gateway: {limits: {head: 1}}", ":1: gateway.limits.head: 1 is not between 1Ki and 1Mi"},
	"a head that takes an hour":      {"gateway: {limits: {headTimeout: 1h}}", ":1: gateway.limits.headTimeout: 1h0m0s is not between 1s and 10m"},
	"idle for days":                  {"gateway: {limits: {idleTimeout: 48h}}", ":1: gateway.limits.idleTimeout: 48h0m0s is not between 1s and 24h"},
	"no time for silent streams":     {"gateway: {limits: {streamIdle: 0s}}", ":1: gateway.limits.streamIdle: 0s is not between 1s and 720h"},
	"no time between datagrams":      {"gateway: {limits: {sessionIdle: 0s}}", ":1: gateway.limits.sessionIdle: 0s is not between 1s and 24h"},
	"bodies that stand still":        {"gateway: {limits: {bodyRate: 0}}", ":1: gateway.limits.bodyRate: 0 is not between 1 and 1000000000"},
	"no grace for bodies":            {"gateway: {limits: {bodyGrace: 0s}}", ":1: gateway.limits.bodyGrace: 0s is not between 1s and 24h"},
	"no time for endpoints to drain": {"gateway: {drain: {endpoint: 0s}}", ":1: gateway.drain.endpoint: 0s is not between 1s and 24h"},
	"no time for WebSockets":         {"gateway: {drain: {upgraded: 0s}}", ":1: gateway.drain.upgraded: 0s is not between 1s and 720h"},
	"a listener that stays for days": {"gateway: {drain: {listener: 48h}}", ":1: gateway.drain.listener: 48h0m0s is not between 0s and 24h"},
	"an end after days":              {"gateway: {drain: {shutdown: 48h}}", ":1: gateway.drain.shutdown: 48h0m0s is not between 0s and 24h"},
	"a Lease without a namespace":    {"gateway: {lease: own}", ":1: gateway.lease: \"own\" is not namespace/name"},
	"a Service without a namespace":  {"gateway: {publish: {service: own}}", ":1: gateway.publish.service: \"own\" is not namespace/name"},
	"an address with a port":         {"gateway: {publish: {addresses: ['192.0.2.1:80']}}", ":1: gateway.publish.addresses: \"192.0.2.1:80\" is neither an IP address nor a hostname"},
	"a Node by name":                 {"gateway: {publish: {node: n1}}", ":1: gateway.publish.node: \"n1\" is not true or false"},
	"a handover somewhere":           {"gateway: {handover: run/handover}", ":1: gateway.handover: \"run/handover\" is not an absolute path"},
	"no name of a table":             {"proxy: {table: ''}", ":1: proxy.table: is empty; leave it out for portolan-proxy"},
	"an election that is a word":     {"controller: {leaderElection: {enabled: some}}", ":1: controller.leaderElection.enabled: \"some\" is not true or false"},
	"a lease nowhere":                {"controller: {leaderElection: {namespace: ''}}", `:1: controller.leaderElection.namespace: "" is not a valid name of a Namespace`},
	"a lease without a good name":    {"controller:\n  leaderElection:\n    name: a/b", `:3: controller.leaderElection.name: "a/b" is not a valid name of a Lease`},
	"a lease that ends early":        {"controller: {leaderElection: {leaseDuration: 10s}}", ":1: controller.leaderElection.leaseDuration: 10s is not more than renewDeadline, which is 10s"},
	"a lease with one attempt":       {"controller: {leaderElection: {renewDeadline: 2400ms}}", ":1: controller.leaderElection.renewDeadline: 2.4s is not more than 1.2 times retryPeriod, which is 2s"},
	"a lease renewed all the time":   {"controller: {leaderElection: {retryPeriod: 0s}}", ":1: controller.leaderElection.retryPeriod: 0s is not more than 0s"},
	"a lease for a moment":           {"controller: {leaderElection: {leaseDuration: 900ms, renewDeadline: 500ms, retryPeriod: 100ms}}", ":1: controller.leaderElection.leaseDuration: 900ms is less than 1s"},
	"steering by chance":             {"dns: {udpSteering: random}", ":1: dns.udpSteering: \"random\" is not cpu or hash"},
	"a long NSID":                    {"dns:\n  identity:\n    nsid: " + strings.Repeat("n", 129), ":3: dns.identity.nsid: longer than 128 octets"},
	"a long server ID":               {"dns: {identity: {serverID: " + strings.Repeat("n", 256) + "}}", ":1: dns.identity.serverID: longer than 255 octets"},
	"a long version":                 {"dns: {identity: {version: " + strings.Repeat("n", 256) + "}}", ":1: dns.identity.version: longer than 255 octets"},
	"a secret of words":              {"dns:\n  cookies:\n    secrets:\n    - 00112233445566778899aabbccddeeff\n    - sesame", ":5: dns.cookies.secrets: number 2 is not 32 hexadecimal digits"},
	"a secret too short":             {"dns: {cookies: {secrets: ['00112233']}}", ":1: dns.cookies.secrets: number 1 is not 32 hexadecimal digits"},
	"a suffix that is no name":       {"dns:\n  forward:\n    routes:\n    - upstreams: [10.0.0.2]\n    - {upstreams: [10.0.0.2], suffix: a..b}", ":5: dns.forward.routes.suffix: name \"a..b\": empty label"},
	"a suffix given twice":           {"dns:\n  forward:\n    routes:\n    - upstreams: [10.0.0.2]\n    - upstreams: [10.0.0.2]\n      suffix: .", ":6: dns.forward.routes.suffix: . is given twice"},
	"no server":                      {"dns:\n  forward:\n    routes:\n    - suffix: a", ":4: dns.forward.routes.upstreams: no server, and no resolvConf"},
	"a server by name":               {"dns:\n  forward:\n    routes:\n    - upstreams: [dns.example]", ":4: dns.forward.routes.upstreams: \"dns.example\" is not a server, such as 10.0.0.2, 10.0.0.2:5353, tcp://10.0.0.2, tls://9.9.9.9#dns.quad9.net or https://dns.quad9.net/dns-query@9.9.9.9"},
	"an unknown policy":              {"dns:\n  forward:\n    routes:\n    - upstreams: [10.0.0.2]\n      policy: best", ":5: dns.forward.routes.policy: \"best\" is not fastest, sequential or random"},
	"a timeout below 0":              {"dns: {forward: {routes: [{upstreams: [10.0.0.2], timeout: -1s}]}}", ":1: dns.forward.routes.timeout: -1s is less than 0s"},
	"a timeout without unit":         {"dns: {forward: {routes: [{upstreams: [10.0.0.2], timeout: 4}]}}", ":1: dns.forward.routes.timeout: \"4\" is not a duration, such as 10s or 1m30s"},
	"a ca that is not there":         {"dns: {forward: {routes: [{upstreams: [10.0.0.2], ca: /nowhere.pem}]}}", ":1: dns.forward.routes.ca: open /nowhere.pem: no such file or directory"},
	"trust that is a word":           {"dns: {forward: {routes: [{upstreams: [10.0.0.2], trustDenials: some}]}}", ":1: dns.forward.routes.trustDenials: \"some\" is not true or false"},
	"a subnet that is a word":        {"dns: {forward: {routes: [{upstreams: [10.0.0.2], clientSubnet: 10.0.0.0/8}]}}", ":1: dns.forward.routes.clientSubnet: \"10.0.0.0/8\" is not true or false"},
	"a guard that is a word":         {"dns: {forward: {routes: [{upstreams: [10.0.0.2], noPrivate: some}]}}", ":1: dns.forward.routes.noPrivate: \"some\" is not true or false"},
	"nothing in flight":              {"dns: {forward: {maxInFlight: 0}}", ":1: dns.forward.maxInFlight: 0 is less than 1"},
	"nothing for each client":        {"dns: {forward: {maxInFlightPerClient: 0}}", ":1: dns.forward.maxInFlightPerClient: 0 is less than 1"},
	"a size in megabytes":            {"dns: {cache: {size: 32MB}}", ":1: dns.cache.size: \"32MB\" is not a size, such as 65536 or 32Mi"},
	"a least TTL of more":            {"dns: {cache: {minTTL: 10, maxTTL: 5}}", ":1: dns.cache.minTTL: 10 is not between 0 and 5"},
	"a most TTL below 0":             {"dns: {cache: {maxTTL: -1}}", ":1: dns.cache.maxTTL: -1 is not between 0 and 2147483647"},
	"a denial's TTL below 0":         {"dns: {cache: {maxNegativeTTL: -1}}", ":1: dns.cache.maxNegativeTTL: -1 is not between 0 and 2147483647"},
	"stale for less than 0":          {"dns: {cache: {stale: -1s}}", ":1: dns.cache.stale: -1s is less than 0s"},
	"stale after less than 0":        {"dns: {cache: {staleAfter: -1s}}", ":1: dns.cache.staleAfter: -1s is less than 0s"},
	"TLS at no address":              {"dns: {tls: {listen: [853], certificate: a, key: b}}", ":1: dns.tls.listen: \"853\" is not an address and port, such as 127.0.0.1:1053 or [::]:53"},
	"HTTPS at no address":            {"dns:\n  tls: {certificate: a, key: b}\n  https:\n    listen:\n    - ':443'", ":5: dns.https.listen: \":443\" is not an address and port, such as 127.0.0.1:1053 or [::]:53"},
	"TLS without certificate":        {"dns: {tls: {listen: ['127.0.0.1:853']}}", ":1: dns.tls.certificate: dns.tls.listen and dns.https.listen need a certificate"},
	"a certificate alone":            {"dns: {tls: {certificate: a}}", ":1: dns.tls.key: a certificate needs its key; give both"},
	"a path that is none":            {"dns: {https: {path: dns}}", ":1: dns.https.path: \"dns\" is not a path, such as /dns-query"},
	"an unknown action":              {"dns:\n  access:\n  - {action: allow}\n  - action: forbid", ":4: dns.access.action: \"forbid\" is not allow, refuse or drop"},
	"a client that is no range":      {"dns:\n  access:\n  - {action: allow, clients: [10.0.0.0/33]}", ":3: dns.access.clients: \"10.0.0.0/33\" is not a range, such as 10.0.0.0/8"},
	"access to no name":              {"dns:\n  access:\n  - {action: allow, names: [a..b]}", ":3: dns.access.names: name \"a..b\": empty label"},
	"access to a wildcard":           {"dns:\n  access:\n  - {action: allow, names: ['*.example.org']}", ":3: dns.access.names: \"*.example.org\": a name includes all names below it; write example.org"},
	"a rate below 0":                 {"dns: {rateLimit: {perSecond: -1}}", ":1: dns.rateLimit.perSecond: -1 is not between 0 and 1048576"},
	"a burst of nothing":             {"dns: {rateLimit: {burst: 0}}", ":1: dns.rateLimit.burst: 0 is not between 1 and 1048576"},
	"a prefix of IPv4":               {"dns: {rateLimit: {prefix4: 33}}", ":1: dns.rateLimit.prefix4: 33 is not between 0 and 32"},
	"a prefix of IPv6":               {"dns: {rateLimit: {prefix6: 129}}", ":1: dns.rateLimit.prefix6: 129 is not between 0 and 128"},
	"a slip below 0":                 {"dns: {rateLimit: {slip: -1}}", ":1: dns.rateLimit.slip: -1 is not between 0 and 1048576"},
	"a rewrite from no name":         {"dns:\n  rewrite:\n  - {from: a..b, to: c}", ":3: dns.rewrite.from: name \"a..b\": empty label"},
	"a rewrite to no name":           {"dns:\n  rewrite:\n  - {from: a, to: c..d}", ":3: dns.rewrite.to: name \"c..d\": empty label"},
	"a rewrite that is a word":       {"dns:\n  rewrite:\n  - {from: a, to: b, exact: very}", ":3: dns.rewrite.exact: \"very\" is not true or false"},
	"everything blocked":             {"dns: {block: {names: [.]}}", ":1: dns.block.names: the root: everything would be blocked"},
	"a wildcard blocked":             {"dns: {block: {names: ['*.example.org']}}", ":1: dns.block.names: \"*.example.org\": a name includes all names below it; write example.org"},
	"block files in a word":          {"dns: {block: {files: a}}", ":1: dns.block.files: not a list; one is written [ONE, TWO]"},
	"an answer of its own":           {"dns: {block: {answer: servfail}}", ":1: dns.block.answer: \"servfail\" is not nxdomain or zero"},
	"a TTL of blocked names":         {"dns: {block: {ttl: -1}}", ":1: dns.block.ttl: -1 is not between 0 and 2147483647"},
	"no domain of imports":           {"dns: {multicluster: 'a..b'}", ":1: dns.multicluster: name \"a..b\": empty label"},
	"no external zone":               {"dns: {external: {zones: ['a..b']}}", ":1: dns.external.zones: name \"a..b\": empty label"},
	"no external source":             {"dns: {external: {sources: [node]}}", ":1: dns.external.sources: \"node\" is not service, ingress or gateway"},
	"no external address":            {"dns: {external: {addresses: [ns.example]}}", ":1: dns.external.addresses: \"ns.example\" is not an address"},
	"a local zone of the cluster":    {"dns: {localZones: [{zone: a.cluster.local, records: x}]}", ":1: dns.localZones.zone: a.cluster.local. is in the cluster's zone cluster.local.; give names in it by dns.hosts or dns.rewrite"},
	"a local zone of external":       {"dns: {external: {zones: [ext.example]}, localZones: [{zone: a.ext.example, records: x}]}", ":1: dns.localZones.zone: a.ext.example. is in the zone ext.example. of dns.external, which holds names of the cluster's objects; use a zone outside it"},
	"a local zone of multicluster":   {"dns: {multicluster: clusterset.local, localZones: [{zone: clusterset.local, records: x}]}", ":1: dns.localZones.zone: clusterset.local. is in the zone clusterset.local. of dns.multicluster, which holds names of the cluster's objects; use a zone outside it"},
	"a local zone given twice":       {"dns:\n  localZones:\n    - {zone: a.example, file: x}\n    - {zone: A.example, file: x}", ":4: dns.localZones.zone: a.example. is given twice, or is a reverse zone of the cluster"},
	"a local zone of nothing":        {"dns: {localZones: [{zone: a.example}]}", ":1: dns.localZones.file: no file, and no records either"},
	"a local zone of two sources":    {"dns: {localZones: [{zone: a.example, file: x, records: y}]}", ":1: dns.localZones.file: both a file and records; give one of them"},
	"broken local records":           {"dns: {localZones: [{zone: a.example, records: 'www A 1.2.3'}]}", ":1: dns.localZones.records: zone a.example.: line 1: A record: \"1.2.3\" is not an IPv4 address"},
	"broken records on lines":        {"dns:\n  localZones:\n    - zone: b.example\n      records: ns A 192.0.2.1\n    - zone: a.example\n      records: |\n\n        ns A 192.0.2.1\n        www A 1.2.3\n      ttl: 5", ":9: dns.localZones.records: zone a.example.: line 3: A record: \"1.2.3\" is not an IPv4 address"},
	"broken records, folded":         {"dns:\n  localZones:\n    - zone: a.example\n      records: >\n        www A\n        1.2.3\n", ":4: dns.localZones.records: zone a.example.: line 1: A record: \"1.2.3\" is not an IPv4 address"},
	"a local record elsewhere":       {"dns: {localZones: [{zone: a.example, records: 'www.b.example. A 192.0.2.1'}]}", ":1: dns.localZones.records: zone a.example.: line 1: www.b.example. is not in the zone a.example."},
	"a TTL of local records":         {"dns: {localZones: [{zone: a.example, file: x, ttl: -1}]}", ":1: dns.localZones.ttl: -1 is not between 0 and 2147483647"},
	"a view of nobody":               {"dns: {views: [{zones: [cluster.local]}]}", ":1: dns.views.clients: no clients; clients without a view see everything"},
	"a view of no zone":              {"dns: {views: [{clients: [10.0.0.0/8], zones: [a.example]}]}", ":1: dns.views.zones: a.example. is not a zone of this server"},
	"a view's forwarding":            {"dns: {views: [{clients: [10.0.0.0/8], forward: some}]}", ":1: dns.views.forward: \"some\" is not true or false"},
	"nothing to suppress":            {"dns: {suppress: [{names: [a.example]}]}", ":1: dns.suppress.types: no type; give one such as AAAA"},
	"an unknown type to suppress":    {"dns: {suppress: [{types: [FOO]}]}", ":1: dns.suppress.types: unknown type \"FOO\""},
	"suppressing ANY":                {"dns: {suppress: [{types: [A, ANY]}]}", ":1: dns.suppress.types: ANY cannot be suppressed; give types of data such as AAAA"},
	"suppressing AXFR":               {"dns: {suppress: [{types: [A, AXFR]}]}", ":1: dns.suppress.types: AXFR cannot be suppressed; give types of data such as AAAA"},
	"suppressing IXFR":               {"dns: {suppress: [{types: [A, IXFR]}]}", ":1: dns.suppress.types: IXFR cannot be suppressed; give types of data such as AAAA"},
	"suppressing CNAME":              {"dns: {suppress: [{types: [A, CNAME]}]}", ":1: dns.suppress.types: CNAME cannot be suppressed; give types of data such as AAAA"},
	"suppressing OPT":                {"dns: {suppress: [{types: [A, OPT]}]}", ":1: dns.suppress.types: OPT cannot be suppressed; give types of data such as AAAA"},
	"clients to suppress for":        {"dns: {suppress: [{types: [A], clients: [x]}]}", ":1: dns.suppress.clients: \"x\" is not a range, such as 10.0.0.0/8"},
	"names to suppress":              {"dns: {suppress: [{types: [A], names: ['*.a.example']}]}", ":1: dns.suppress.names: \"*.a.example\": a name includes all names below it; write a.example"},
	"a TTL of hosts":                 {"dns: {hosts: {ttl: -1}}", ":1: dns.hosts.ttl: -1 is not between 0 and 2147483647"},
	"a suffix of an empty label":     {"dns: {autopath: {suffix: a..b}}", ":1: dns.autopath.suffix: name \"a..b\": empty label"},
	"all names below the suffix":     {"dns: {autopath: {suffix: .}}", ":1: dns.autopath.suffix: the root has all names below it; leave it empty for none"},
	"a suffix in the zone":           {"dns: {autopath: {suffix: ap.cluster.local}}", ":1: dns.autopath.suffix: ap.cluster.local. and the zone cluster.local. have names in common"},
	"a suffix of reverse names":      {"dns: {autopath: {suffix: arpa}}", ":1: dns.autopath.suffix: arpa. and the zone in-addr.arpa. have names in common"},
	"an option of many digits":       {"dns: {autopath: {option: 65536}}", ":1: dns.autopath.option: 65536 is not between 0 and 65535"},
	"the option for metadata":        {"dns: {autopath: {option: 65002}}", ":1: dns.autopath.option: 65002 is the option METADATA"},
	"the option that the KEP wished": {"dns: {autopath: {option: 15}}", ":1: dns.autopath.option: 15 is the option EDE"},
	"search paths of no range":       {"dns:\n  autopath:\n    clients: [x]", ":3: dns.autopath.clients: \"x\" is not a range, such as 10.0.0.0/8"},
	"a search path of no name":       {"dns:\n  autopath:\n    hostPaths: [a, b..c]", ":3: dns.autopath.hostPaths: name \"b..c\": empty label"},
	"no search paths":                {"dns: {autopath: {maxPaths: 0}}", ":1: dns.autopath.maxPaths: 0 is not between 1 and 32"},
	"search paths without end":       {"dns: {autopath: {maxOctets: 5000}}", ":1: dns.autopath.maxOctets: 5000 is not between 1 and 4096"},
	"a node without parts":           {"node: {parts: []}", ":1: node.parts: no part; there are dns, proxy, network, policy"},
	"a node of an unknown part":      {"node: {parts: [dns, gateway]}", ":1: node.parts: \"gateway\" is not one of dns, proxy, network, policy"},
	"a node with a part twice":       {"node: {parts: [dns, dns]}", ":1: node.parts: dns is given twice"},
	"a node of its own mode":         {"node: {mode: proxy}", ":1: node.mode: \"proxy\" is not secondary or cache"},
	"a node's address by name":       {"node:\n  addresses: [dns.example]", ":2: node.addresses: \"dns.example\" is not an address, such as 169.254.20.10 or fd00::a"},
	"a node's address on loopback":   {"node: {addresses: [127.0.0.53]}", ":1: node.addresses: address 127.0.0.53: must be a unicast address, without a zone, and not of loopback"},
	"a node's port":                  {"node: {port: 0}", ":1: node.port: 0 is not between 1 and 65535"},
	"a node's device":                {"node: {device: portolan/0}", ":1: node.device: prefix \"portolan/0\": must be a letter, then letters, digits and \"-\", at most 12"},
	"a node's server by name":        {"node: {servers: [10.96.0.11, kube-dns]}", ":1: node.servers: \"kube-dns\" is not a server, such as 10.0.0.2, 10.0.0.2:5353, tcp://10.0.0.2, tls://9.9.9.9#dns.quad9.net or https://dns.quad9.net/dns-query@9.9.9.9"},
	"a node that asks itself":        {"node: {addresses: [10.96.0.10], servers: [10.96.0.10]}", ":1: node.servers: 10.96.0.10:53 is one of the agent's own addresses; servers need another one, such as that of a second Service"},
	"a node told at no port":         {"node: {notify: 0.0.0.0}", ":1: node.notify: \"0.0.0.0\" is not an address and port, such as 0.0.0.0:9155, beside those for queries"},
	"a node told where it is asked":  {"node: {notify: '127.0.0.1:1053'}", ":1: node.notify: \"127.0.0.1:1053\" is not an address and port, such as 0.0.0.0:9155, beside those for queries"},
	"a node's primary over HTTPS":    {"node: {primaries: ['https://dns.example/dns-query@10.0.0.2']}", ":1: node.primaries: \"https://dns.example/dns-query@10.0.0.2\": zones come over TCP or TLS"},
	"a node's primary":               {"node: {primaries: ['a..b']}", ":1: node.primaries: \"a..b\" is not a server, such as 10.0.0.2 or tls://10.0.0.2, nor a name, such as servers.dns.svc.cluster.local:53"},
	"a node's key":                   {"node: {key: other}", ":1: node.key: \"other\" is not the name of one of dns.transfer.keys"},
	"a node's authorities":           {"node: {ca: /none}", ":1: node.ca: open /none: no such file or directory"},
	"a node's copy in a list":        {"node: {file: [a]}", ":1: node.file: a list is not text"},
	"a node's name in a list":        {"node: {name: [a]}", ":1: node.name: a list is not text"},
	"a node that never checks":       {"node: {check: 0s}", ":1: node.check: 0s is not more than 0s"},
	"a node that is stale at once":   {"node: {stale: 5s}", ":1: node.stale: 5s is not more than 5s"},
	"a node's option":                {"node: {option: short}", ":1: node.option: \"short\" is not paths or compact"},
	"a host without address":         {"dns:\n  hosts:\n    lines: [web.example 10.0.0.1]", ":3: dns.hosts.lines: line 1: \"web.example\" is not an address"},
	"host files in a word":           {"dns: {hosts: {files: a}}", ":1: dns.hosts.files: not a list; one is written [ONE, TWO]"},
	"one in less than none":          {"dns: {queryLog: {oneIn: -1}}", ":1: dns.queryLog.oneIn: -1 is less than 0"},
	"log of no range":                {"dns: {queryLog: {clients: [x]}}", ":1: dns.queryLog.clients: \"x\" is not a range, such as 10.0.0.0/8"},
	"log of no name":                 {"dns: {queryLog: {names: [a..b]}}", ":1: dns.queryLog.names: name \"a..b\": empty label"},
	"log of no code":                 {"dns:\n  queryLog:\n    rcodes: [SERVFAIL, FAIL]", ":3: dns.queryLog.rcodes: unknown response code \"FAIL\"; use one such as NXDOMAIN or SERVFAIL"},
	"a tap nowhere":                  {"dns: {dnstap: /run/tap}", ":1: dns.dnstap: \"/run/tap\" is not unix:PATH or tcp:ADDRESS:PORT"},
	"a secret alone":                 {"dns: {cookies: {secrets: sesame}}", ":1: dns.cookies.secrets: not a list; one is written [ONE, TWO]"},
	"no connections":                 {"dns:\n  tcp:\n    maxConnections: 0", ":3: dns.tcp.maxConnections: 0 is less than 1"},
	"no queries in flight":           {"dns: {tcp: {maxInFlight: 0}}", ":1: dns.tcp.maxInFlight: 0 is less than 1"},
	"queries below none":             {"dns: {tcp: {maxQueries: -1}}", ":1: dns.tcp.maxQueries: -1 is less than 0"},
	"two sources":                    {"manifests: a\nkubernetes: {kubeconfig: b}", ":2: kubernetes.kubeconfig: the cluster is read from manifests; set only one of manifests and kubeconfig"},
	"a snapshot of manifests":        {"manifests: a\nsnapshot: {file: b}", ":2: snapshot.file: a snapshot is of the Kubernetes API; with manifests it needs simulate.enabled, whose addresses it keeps"},
	"a namespace without name":       {"kubernetes: {namespaces: ['']}", ":1: kubernetes.namespaces: an empty name"},
	"policies without some Services": {"kubernetes: {serviceSelector: app=web}\nnode: {parts: [dns, policy]}", ":1: kubernetes.serviceSelector: the part policy of node.parts needs all Services: by that of the cluster DNS it judges queries to the agent"},
	"policies of some namespaces":    {"kubernetes: {namespaces: [shop]}\nnode: {parts: [policy]}", ":1: kubernetes.namespaces: the part policy of node.parts needs all namespaces: its Pods, their peers and policies are in any of them"},
	"a namespace twice":              {"kubernetes:\n  namespaces:\n  - a\n  - a\n", ":4: kubernetes.namespaces: \"a\" is given twice"},
	"no requests":                    {"kubernetes: {qps: 0}", ":1: kubernetes.qps: 0 is less than 1"},
	"no requests at once":            {"kubernetes: {burst: 0}", ":1: kubernetes.burst: 0 is less than 1"},
	"lists as some watch":            {"kubernetes: {watchList: some}", ":1: kubernetes.watchList: \"some\" is not true or false"},
	"hardly any silence":             {"kubernetes: {silence: 999ms}", ":1: kubernetes.silence: 999ms is less than 1s"},
	"settling in the past":           {"snapshot: {settle: -1s}", ":1: snapshot.settle: -1s is less than 0s"},
	"admin without a port":           {"admin: {listen: 127.0.0.1}", ":1: admin.listen: \"127.0.0.1\" is not an address and port, such as 127.0.0.1:9153"},
	"metrics that are a word":        {"admin: {coreDNSMetrics: some}", ":1: admin.coreDNSMetrics: \"some\" is not true or false"},
	"probes without a port":          {"admin:\n  probes:\n  - 0.0.0.0:8080\n  - :8181\n", ":4: admin.probes: \":8181\" is not an address and port, such as 0.0.0.0:8080, or unix:PATH"},
	"probes twice":                   {"admin: {probes: ['127.0.0.1:8080', '127.0.0.1:8080']}", ":1: admin.probes: \"127.0.0.1:8080\" is given twice"},
	"probes without a path":          {"admin: {probes: ['unix:']}", ":1: admin.probes: \"unix:\" is without a path, or given twice"},
	"probes at a path twice":         {"admin: {probes: ['unix:/a', 'unix:/a']}", ":1: admin.probes: \"unix:/a\" is without a path, or given twice"},
	"probes where all is":            {"admin: {probes: ['127.0.0.1:9153']}", ":1: admin.probes: \"127.0.0.1:9153\" is given twice"},
	"dumps for some":                 {"admin: {debug: some}", ":1: admin.debug: \"some\" is not true or false"},
	"profiles for some":              {"admin: {pprof: some}", ":1: admin.pprof: \"some\" is not true or false"},
	"a page of something":            {"admin: {page: all}", ":1: admin.page: \"all\" is not process, cluster or off"},
	"a certificate without its key":  {"admin: {tls: {cert: a.crt}}", ":1: admin.tls.key: it is missing, the key of admin.tls.cert"},
	"a key without its certificate":  {"admin: {tls: {key: a.key}}", ":1: admin.tls.cert: it is missing, the certificate of admin.tls.key"},
	"a token for nobody":             {"admin: {listen: '', tokenFile: token}", ":1: admin.tokenFile: nobody can show a token, as admin.listen is empty"},
	"client certificates alone":      {"admin: {tls: {clientCA: a.crt}}", ":1: admin.tls.clientCA: client certificates need TLS; set cert and key, too"},
	"fewer events than none":         {"admin: {evidence: {size: -1}}", ":1: admin.evidence.size: -1 is not between 0 and 65536"},
	"one in no event":                {"admin: {evidence: {oneIn: 0}}", ":1: admin.evidence.oneIn: 0 is not between 1 and 1000000"},
	"fewer failures than none":       {"admin: {evidence: {perSecond: -1}}", ":1: admin.evidence.perSecond: -1 is not between 0 and 10000"},
	"half of the clients":            {"admin: {evidence: {maskClients: half}}", ":1: admin.evidence.maskClients: \"half\" is not none, prefix or all"},
	"staleness in the past":          {"admin: {maxStaleness: -1s}", ":1: admin.maxStaleness: -1s is less than 0s"},
	"a lame duck in the past":        {"lameduck: -1s", ":1: lameduck: -1s is less than 0s"},
	"no idle time":                   {"dns: {tcp: {idle: 0s}}", ":1: dns.tcp.idle: 0s is not more than 0"},
	"a negative idle time":           {"dns: {tcp: {idle: -1s}}", ":1: dns.tcp.idle: -1s is not more than 0"},
	"an unknown log level":           {"log:\n  level: INFO", `:2: log.level: "INFO" is not debug, info, warn or error`},
	"transfer to no range":           {"dns:\n  transfer:\n    allow:\n    - {clients: [10.0.0.0/33]}", ":4: dns.transfer.allow.clients: \"10.0.0.0/33\" is not a range, such as 10.0.0.0/8"},
	"transfer to everybody":          {"dns: {transfer: {allow: [{}]}}", ":1: dns.transfer.allow: a rule for everybody; give clients, key or certificate"},
	"transfer for no key":            {"dns: {transfer: {allow: [{key: k}]}}", ":1: dns.transfer.allow.key: \"k\" is not the name of one of dns.transfer.keys"},
	"transfer for no certificate":    {"dns: {transfer: {allow: [{certificate: c}]}}", ":1: dns.transfer.allow.certificate: certificates of clients are checked with dns.tls.clientCA, which is empty"},
	"a key without name":             {"dns: {transfer: {keys: [{algorithm: hmac-sha256, secretFile: f}]}}", ":1: dns.transfer.keys.name: name \"\": empty label"},
	"a transfer key twice":           {"dns:\n  transfer:\n    keys:\n    - {name: k, algorithm: hmac-sha256, secretFile: f}\n    - {name: K., algorithm: hmac-sha256, secretFile: f}", ":5: dns.transfer.keys.name: \"K.\" is given twice"},
	"a key for MD5":                  {"dns: {transfer: {keys: [{name: k, algorithm: hmac-md5, secretFile: f}]}}", ":1: dns.transfer.keys.algorithm: \"hmac-md5\" is not hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512"},
	"a key without secret":           {"dns: {transfer: {keys: [{name: k, algorithm: hmac-sha256}]}}", ":1: dns.transfer.keys.secretFile: no file; a secret is 16 octets or more in base64, such as openssl rand -base64 32 gives"},
	"changes below none":             {"dns:\n  transfer:\n    history: {changes: -1}", ":3: dns.transfer.history.changes: -1 is less than 0"},
	"changes in a word":              {"dns: {transfer: {history: {memory: much}}}", ":1: dns.transfer.history.memory: \"much\" is not a size, such as 65536 or 32Mi"},
	"no transfers":                   {"dns: {transfer: {maxTransfers: 0}}", ":1: dns.transfer.maxTransfers: 0 is less than 1"},
	"no memory for transfers":        {"dns: {transfer: {memory: 1023Ki}}", ":1: dns.transfer.memory: 1023Ki is less than 1Mi"},
	"notices to a name":              {"dns:\n  transfer:\n    notify: [10.0.0.2:53, ns.example:53]", ":3: dns.transfer.notify: \"ns.example:53\" is not an address and port, such as 10.0.0.2:53"},
	"notices to a Service, no name":  {"dns: {transfer: {notifyService: agents}}", ":1: dns.transfer.notifyService: \"agents\" is not namespace/name"},
	"clients' certificates, no TLS":  {"dns: {tls: {clientCA: ca.pem}}", ":1: dns.tls.clientCA: clients have certificates over TLS alone; give dns.tls.listen"},
	"an unknown log format":          {"log: {format: xml}", `:1: log.format: "xml" is not text or json`},
}

// TestRefusals checks that every error names the file, the line and the key.
func TestRefusals(t *testing.T) {
	for claim, tt := range refusals {
		t.Run(claim, func(t *testing.T) {
			path := write(t, tt.text)
			_, err := config.Read(path)
			if err == nil {
				t.Fatalf("Read(%q): no error, want %q", tt.text, tt.want)
			}
			if got, ok := strings.CutPrefix(err.Error(), "config "+path); !ok || got != tt.want {
				t.Errorf("Read(%q)\n got error %q\nwant %q behind the path", tt.text, err, tt.want)
			}
		})
	}
}

// TestRefusalsNameEveryKey checks that refusals covers each key that can have an
// invalid value.
func TestRefusalsNameEveryKey(t *testing.T) {
	unchecked := map[string]bool{ // any path may exist at run time, and the API checks selectors
		"manifests": true, "kubernetes.serviceSelector": true, "dns.forward.routes.resolvConf": true,
	}
	for _, key := range keysOf(reflect.TypeFor[config.Config](), "") {
		if unchecked[key] {
			continue
		}
		found := false
		for _, r := range refusals {
			found = found || strings.Contains(r.want, ": "+key+": ")
		}
		if !found {
			t.Errorf("no refusal names %s", key)
		}
	}
}

// keysOf returns the keys of a section. Keys of its sections have both names.
func keysOf(section reflect.Type, prefix string) (keys []string) {
	for f := range section.Fields() {
		key := prefix + f.Tag.Get("yaml")
		of := f.Type
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			keys = append(keys, keysOf(of, key+".")...)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// TestReadMissing checks that the error for an unreadable file names it.
func TestReadMissing(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "portolan.yaml")
	for path, want := range map[string]string{
		missing: "config: open " + missing + ": no such file or directory",
		dir:     "config: read " + dir + ": is a directory",
	} {
		if _, err := config.Read(path); err == nil || err.Error() != want {
			t.Errorf("Read(%q): %v, want %s", path, err, want)
		}
	}
}

// TestCompileWithoutFile checks that errors for values from flags name the key.
func TestCompileWithoutFile(t *testing.T) {
	c := config.Default()
	c.DNS.Listen = []string{"localhost:53"}
	want := `dns.listen: "localhost:53" is not an address and port, such as 127.0.0.1:1053 or [::]:53`
	if _, err := c.Compile(); err == nil || err.Error() != want {
		t.Errorf("Compile with listen %q: %v, want %s", c.DNS.Listen, err, want)
	}
}

// TestDuration checks that a duration is written as it is read.
func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1h": time.Hour, "1.5s": 1500 * time.Millisecond,
	} {
		c, err := config.Read(write(t, "dns: {tcp: {idle: "+text+"}}"))
		if err != nil || time.Duration(c.DNS.TCP.Idle) != want {
			t.Errorf("dns.tcp.idle %s = %s, %v, want %s", text, time.Duration(c.DNS.TCP.Idle), err, want)
		}
		written, err := yaml.Marshal(c.DNS.TCP)
		if err != nil || !strings.Contains(string(written), "idle: "+want.String()+"\n") {
			t.Errorf("Marshal of dns.tcp.idle %s = %q, %v, want %s", text, written, err, want)
		}
	}
}

// TestNodeKnowsOtherZones checks that an agent forwards names in the servers' other zones
// to them, and transfers that of ServiceImports.
func TestNodeKnowsOtherZones(t *testing.T) {
	t.Parallel()
	const text = "dns: {multicluster: clusterset.local, external: {zones: [out.example]}, " +
		"localZones: [{zone: corp.example, file: absent}]}\nnode: {servers: [10.0.0.2]}"
	cfg, err := config.Read(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := cfg.Compile()
	if err != nil {
		t.Fatal(err)
	}
	var forwarded, transferred []string
	for _, r := range compiled.Node.Routes {
		forwarded = append(forwarded, r.Suffix.String())
	}
	for _, z := range compiled.Node.Secondary.Zones {
		transferred = append(transferred, z.String())
	}
	wantForwarded := []string{"in-addr.arpa.", "ip6.arpa.", "cluster.local.", "clusterset.local.", "out.example.", "corp.example."}
	if !slices.Equal(forwarded, wantForwarded) {
		t.Errorf("forwarded zones %q, want %q", forwarded, wantForwarded)
	}
	if want := []string{"cluster.local.", "clusterset.local."}; !slices.Equal(transferred, want) {
		t.Errorf("transferred zones %q, want %q", transferred, want)
	}
}
