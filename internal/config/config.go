// Package config is the configuration file: its types, defaults and
// validation. One YAML file configures all; a key that is not known is an
// error with its line.
package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/secondary"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/internal/kube/leader"
)

// Config is everything that can be configured, as the file spells it. A key
// without a value keeps its default.
type Config struct {
	// Manifests is a directory of manifests, or one file; the cluster is read
	// from there, and not from the Kubernetes API.
	Manifests string `yaml:"manifests"`
	// Simulate has them completed as a cluster's control plane would do it.
	Simulate Simulate `yaml:"simulate"`
	// Kubernetes says how the Kubernetes API is read.
	Kubernetes Kubernetes `yaml:"kubernetes"`
	Snapshot   Snapshot   `yaml:"snapshot"`
	Admin      Admin      `yaml:"admin"`
	// Lameduck is how long queries are answered after the order to stop, while
	// the server says that it is not ready.
	Lameduck Duration `yaml:"lameduck"`
	Log      Log      `yaml:"log"`
	// DNS is what is answered, where, and from what.
	DNS DNS `yaml:"dns"`
	// Node is the agent on each node, Webhook the admission webhook, and
	// Controller the controllers.
	Node       Node       `yaml:"node"`
	Webhook    Webhook    `yaml:"webhook"`
	Controller Controller `yaml:"controller"`
}

// DNS is the section of the DNS server.
type DNS struct {
	// Listen are addresses and ports, each for UDP and TCP.
	Listen []string `yaml:"listen"`
	// Zones are the cluster's domains; reverse names point into the first.
	Zones []string `yaml:"zones"`
	// TTL is that of the cluster's records, in seconds, 0 to 3600.
	TTL int `yaml:"ttl"`
	// Pods is verified, insecure or disabled.
	Pods string `yaml:"pods"`
	// EndpointPodNames names endpoints without hostname after their Pods.
	EndpointPodNames bool `yaml:"endpointPodNames"`
	// ServiceCIDRs and PodCIDRs are the cluster's ranges: their reverse zones
	// are served.
	ServiceCIDRs []string `yaml:"serviceCIDRs"`
	PodCIDRs     []string `yaml:"podCIDRs"`
	// NameServer says who ns.dns.ZONE is.
	NameServer NameServer `yaml:"nameServer"`
	// Forward says who is asked for names that are not the cluster's, and Cache
	// for how long answers are kept.
	Forward Forward `yaml:"forward"`
	Cache   Cache   `yaml:"cache"`
	// Access, RateLimit, Rewrite, Block and Hosts are rules that are applied to
	// a query before anything is looked for, in this order.
	Access    []Access  `yaml:"access"`
	RateLimit RateLimit `yaml:"rateLimit"`
	Rewrite   []Rewrite `yaml:"rewrite"`
	Block     Block     `yaml:"block"`
	Hosts     Hosts     `yaml:"hosts"`
	// Autopath has names searched for here rather than by clients.
	Autopath Autopath `yaml:"autopath"`
	// UDPSize is the longest response over UDP, in octets.
	UDPSize int `yaml:"udpSize"`
	// UDPSteering is cpu or hash: how packets come to a processor.
	UDPSteering string `yaml:"udpSteering"`

	Identity Identity `yaml:"identity"`
	Cookies  Cookies  `yaml:"cookies"`
	TCP      TCP      `yaml:"tcp"`
	TLS      TLS      `yaml:"tls"`
	HTTPS    HTTPS    `yaml:"https"`
	Transfer Transfer `yaml:"transfer"`
	// QueryLog says of which queries there is a line in the log.
	QueryLog QueryLog `yaml:"queryLog"`
	// DNSTap is a collector of dnstap: unix:PATH or tcp:ADDRESS:PORT.
	DNSTap string `yaml:"dnstap"`
}

// Kubernetes says how the Kubernetes API is read.
type Kubernetes struct {
	// Kubeconfig is a file; with none, the account of the Pod is used.
	Kubeconfig string `yaml:"kubeconfig"`
	// Namespaces are those that are read; all with none.
	Namespaces []string `yaml:"namespaces"`
	// ServiceSelector is a label selector: other Services are not there.
	ServiceSelector string `yaml:"serviceSelector"`
	// QPS is how many requests a second are sent over time, Burst how many at
	// once.
	QPS   int `yaml:"qps"`
	Burst int `yaml:"burst"`
	// WatchList has lists come as watches where the server has that.
	WatchList bool `yaml:"watchList"`
	// Silence is how long a watch may be silent before it is begun anew.
	Silence Duration `yaml:"silence"`
}

// Snapshot is a file that the cluster is kept in, for a start without the API.
type Snapshot struct {
	File string `yaml:"file"`
	// Settle is how long names that the snapshot lacks are not denied, from the
	// moment that the API answers.
	Settle Duration `yaml:"settle"`
}

// Admin is the HTTP server for health, metrics and dumps.
type Admin struct {
	Listen string `yaml:"listen"` // none when empty
	// Probes are more addresses and ports, with health, readiness and metrics
	// alone, on CoreDNS' paths.
	Probes []string `yaml:"probes"`
	// CoreDNSMetrics tells some metrics under CoreDNS' names, too.
	CoreDNSMetrics bool `yaml:"coreDNSMetrics"`
	// PProf gives profiles on addresses that are not loopback, too.
	PProf bool `yaml:"pprof"`
	// MaxStaleness is how long the API may be lost until the server says that
	// it is not ready; 0 is forever.
	MaxStaleness Duration `yaml:"maxStaleness"`
}

// NameServer says who the name server is.
type NameServer struct {
	// Service is the DNS Service, as namespace/name: its ClusterIPs are the
	// name server's addresses.
	Service string `yaml:"service"`
	// Addresses are used where that Service is not there; with none, those
	// that are listened on.
	Addresses []string `yaml:"addresses"`
}

// Forward says who is asked for names that are not the cluster's.
type Forward struct {
	Routes []Route `yaml:"routes"`
	// MaxInFlight is how many queries wait for answers at once, and
	// MaxInFlightPerClient how many of one client.
	MaxInFlight          int `yaml:"maxInFlight"`
	MaxInFlightPerClient int `yaml:"maxInFlightPerClient"`
}

// Route says who is asked for the names below a suffix.
type Route struct {
	// Suffix is a domain; all names when empty.
	Suffix string `yaml:"suffix"`
	// Upstreams are servers, see forward.ParseUpstream.
	Upstreams []string `yaml:"upstreams"`
	// ResolvConf is a file with more of them.
	ResolvConf string `yaml:"resolvConf"`
	// Policy is fastest, which is the default, sequential or random.
	Policy string `yaml:"policy"`
	// Timeout is how long a name is asked for; DefaultRouteTimeout when 0.
	Timeout Duration `yaml:"timeout"`
	// CA is a file with the certificates that sign those of upstreams; the
	// system's when empty.
	CA string `yaml:"ca"`
	// TrustDenials has a name that does not exist deny all below it.
	TrustDenials bool `yaml:"trustDenials"`
	// NoPrivate refuses answers with private addresses.
	NoPrivate bool `yaml:"noPrivate"`
	// ClientSubnet has upstreams know what clients say of where they are.
	ClientSubnet bool `yaml:"clientSubnet"`
}

// DefaultRouteTimeout is less than the 5 s after which libc asks again.
const DefaultRouteTimeout = 4 * time.Second

// Cache says for how long answers of others are kept.
type Cache struct {
	// Size is how much memory they may take; with 0 nothing is kept.
	Size Size `yaml:"size"`
	// MinTTL and MaxTTL bound TTLs, in seconds, MaxNegativeTTL those of denials.
	MinTTL         int `yaml:"minTTL"`
	MaxTTL         int `yaml:"maxTTL"`
	MaxNegativeTTL int `yaml:"maxNegativeTTL"`
	// Stale is how long an answer may be given behind its TTL when there is no
	// other, StaleAfter how long a client waits for that other.
	Stale      Duration `yaml:"stale"`
	StaleAfter Duration `yaml:"staleAfter"`
}

// Access says what becomes of queries of some clients for some names.
type Access struct {
	Action  string   `yaml:"action"`  // allow, refuse or drop
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and those below; all when empty
}

// RateLimit bounds the responses over UDP to the clients of one prefix.
type RateLimit struct {
	PerSecond int `yaml:"perSecond"` // 0 is no limit
	Burst     int `yaml:"burst"`
	Prefix4   int `yaml:"prefix4"`
	Prefix6   int `yaml:"prefix6"`
	// Slip has one of so many that are too much answered, so that the client
	// asks over TCP; 0 is none.
	Slip int `yaml:"slip"`
}

// Rewrite has names answered as others.
type Rewrite struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
	// Exact is for the name From alone, not for those below.
	Exact bool `yaml:"exact"`
}

// Block is names, and those below, that are not to be had.
type Block struct {
	Names  []string `yaml:"names"`
	Files  []string `yaml:"files"`
	Answer string   `yaml:"answer"` // nxdomain or zero
	TTL    int      `yaml:"ttl"`
}

// Hosts are names and their addresses.
type Hosts struct {
	Lines []string `yaml:"lines"` // as in hosts(5)
	Files []string `yaml:"files"`
	TTL   int      `yaml:"ttl"`
}

// Autopath has names searched for here: clients say in which paths.
type Autopath struct {
	// Suffix ends names that say so; none do when empty.
	Suffix string `yaml:"suffix"`
	// Option is the code of an EDNS option that says so; 0 is none. It counts
	// from Clients, which are prefixes; from all when empty.
	Option  int      `yaml:"option"`
	Clients []string `yaml:"clients"`
	// HostPaths are the search paths of nodes, behind the cluster's own.
	HostPaths []string `yaml:"hostPaths"`
	// MaxPaths is how many paths an option may have, MaxOctets how long it may
	// be.
	MaxPaths  int `yaml:"maxPaths"`
	MaxOctets int `yaml:"maxOctets"`
}

// Identity is what the server says of itself.
type Identity struct {
	// NSID is given to clients that ask for it (RFC 5001), at most 128
	// octets; the host's name when empty.
	NSID string `yaml:"nsid"`
	// ServerID and Version answer id.server and version.bind in class CHAOS,
	// at most 255 octets each; refused when empty.
	ServerID string `yaml:"serverID"`
	Version  string `yaml:"version"`
}

// Cookies configures DNS cookies (RFC 7873 and 9018).
type Cookies struct {
	// Secrets are of 32 hexadecimal digits: the first makes cookies, all check
	// them. With none, one is made at each start.
	Secrets []string `yaml:"secrets"`
}

// TCP bounds connections.
type TCP struct {
	// MaxConnections is how many there are at once; one more closes the one
	// that was idle longest.
	MaxConnections int `yaml:"maxConnections"`
	// MaxInFlight is how many queries of a connection are answered before their
	// answers are sent.
	MaxInFlight int `yaml:"maxInFlight"`
	// MaxQueries is how many a connection may ask before it is closed; 0 is
	// without limit.
	MaxQueries int `yaml:"maxQueries"`
	// Idle is how long a connection stays open without a query.
	Idle Duration `yaml:"idle"`
}

// TLS is DNS over TLS (RFC 7858), and the certificate of that and of HTTPS.
type TLS struct {
	Listen []string `yaml:"listen"`
	// Certificate and Key are files in PEM, which are read again when they
	// change.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// ClientCA is a file with the certificates that sign those of clients, which
	// may have one.
	ClientCA string `yaml:"clientCA"`
}

// HTTPS is DNS over HTTPS (RFC 8484).
type HTTPS struct {
	Listen []string `yaml:"listen"`
	Path   string   `yaml:"path"`
}

// Log configures what is logged, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// QueryLog says of which queries there is a line in the log.
type QueryLog struct {
	OneIn   int      `yaml:"oneIn"`   // of so many, by chance; 0 is none
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and those below; all when empty
	RCodes  []string `yaml:"rcodes"`  // such as SERVFAIL; all when empty
}

// Webhook is the admission webhook.
type Webhook struct {
	Listen string `yaml:"listen"`
	// Service is what the API server reaches it by, as namespace/name. The Secret
	// beside it, and the configurations that register the webhook, have its name.
	Service string `yaml:"service"`
	// ClusterDNS are the addresses of the cluster's DNS, NodeDNS those of the agent
	// on each node, which Pods that get the policy ask first.
	ClusterDNS []string `yaml:"clusterDNS"`
	NodeDNS    []string `yaml:"nodeDNS"`
	// Timeout bounds one review, MaxInFlight how many there are at once.
	Timeout     Duration `yaml:"timeout"`
	MaxInFlight int      `yaml:"maxInFlight"`
	// CertificateLife is how long a certificate is good.
	CertificateLife Duration `yaml:"certificateLife"`
	// Deny and Ignore are rules; what the others find is a warning.
	Deny   []string `yaml:"deny"`
	Ignore []string `yaml:"ignore"`
}

// Node is the agent on each node.
type Node struct {
	// Mode is secondary or cache.
	Mode string `yaml:"mode"`
	// Addresses are put on the node, and listened on at Port in the place of
	// Listen. With none, nothing is put there.
	Addresses []string `yaml:"addresses"`
	Port      int      `yaml:"port"`
	// Device begins the name of the device that has them.
	Device string `yaml:"device"`
	// Servers are the cluster's, see forward.ParseUpstream; over TCP where
	// nothing else is said.
	Servers []string `yaml:"servers"`
	// Option is how servers are told what to search for a name in: paths or
	// compact. It is of the mode cache, and what follows of the mode secondary.
	Option string `yaml:"option"`
	// Primaries are who the zones come from: addresses, or names of Services whose
	// addresses Servers tell; Servers when empty.
	Primaries []string `yaml:"primaries"`
	// Key is one of transfer.keys that signs transfers; none when empty. CA is a
	// file with the certificates that sign those of primaries; the system's when
	// empty.
	Key string `yaml:"key"`
	CA  string `yaml:"ca"`
	// Notify is an address and port where primaries tell of changes, beside those
	// that queries come to; nowhere when empty.
	Notify string `yaml:"notify"`
	// File keeps the zones for the next start; none does when empty.
	File string `yaml:"file"`
	// Name is the node's: each prefers other primaries. The host's when empty.
	Name string `yaml:"name"`
	// Check is how often a primary is asked for news, and Stale how long none may
	// answer until what is known is called old.
	Check Duration `yaml:"check"`
	Stale Duration `yaml:"stale"`
}

// Duration is a time.Duration, written like 10s or 1m30s.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration, such as 10s or 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it as it is read.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Size is a number of octets, written like 65536, 64Ki, 32Mi or 1Gi.
type Size int64

// sizeUnits are the suffixes of a Size, the largest first.
var sizeUnits = []struct {
	suffix string
	octets int64
}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}

// UnmarshalText reads a size.
func (z *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.octets {
			break
		}
		*z = Size(n * unit.octets)
		return nil
	}
	return fmt.Errorf("%q is not a size, such as 65536 or 32Mi", text)
}

// MarshalText writes it as it is read.
func (z Size) MarshalText() ([]byte, error) {
	for _, unit := range sizeUnits {
		if z != 0 && int64(z)%unit.octets == 0 {
			return fmt.Appendf(nil, "%d%s", int64(z)/unit.octets, unit.suffix), nil
		}
	}
	return []byte("0"), nil
}

// Default is the configuration of a file that says nothing.
func Default() Config {
	return Config{
		Simulate:   Simulate{NodePorts: "30000-32767", MaxEndpointsPerSlice: endpointslices.DefaultMaxEndpoints},
		Kubernetes: Kubernetes{QPS: 50, Burst: 100, Silence: Duration(150 * time.Second)},
		Snapshot:   Snapshot{Settle: Duration(2 * time.Second)},
		Admin:      Admin{Listen: "127.0.0.1:9153"},
		Log:        Log{Level: "info", Format: "text"},
		DNS: DNS{
			Listen:     []string{"127.0.0.1:1053"},
			Zones:      []string{"cluster.local"},
			TTL:        5,
			Pods:       string(kubezone.PodsVerified),
			NameServer: NameServer{Service: "kube-system/kube-dns"},
			Forward:    Forward{MaxInFlight: 4096, MaxInFlightPerClient: 1024},
			Cache: Cache{
				Size: 32 << 20, MaxTTL: 86400, MaxNegativeTTL: 60,
				Stale: Duration(time.Hour), StaleAfter: Duration(1800 * time.Millisecond),
			},
			RateLimit:   RateLimit{Burst: 100, Prefix4: 24, Prefix6: 56, Slip: 2},
			Block:       Block{Answer: blockNXDomain, TTL: 60},
			Hosts:       Hosts{TTL: 60},
			Autopath:    Autopath{Suffix: autopath.DefaultSuffix, Option: autopath.DefaultOption, MaxPaths: 16, MaxOctets: 1024},
			UDPSize:     respond.DefaultUDPSize,
			UDPSteering: string(dnsserver.SteerByCPU),
			TCP:         TCP{MaxConnections: 1000, MaxInFlight: 64, Idle: Duration(10 * time.Second)},
			HTTPS:       HTTPS{Path: "/dns-query"},
			Transfer:    Transfer{History: TransferHistory{Changes: 100_000, Memory: 16 << 20}, MaxTransfers: 100, Memory: 128 << 20},
		},
		Node: Node{
			Mode: string(NodeSecondary), Port: 53, Device: "portolan", Option: optionPaths,
			Check: Duration(secondary.DefaultCheckInterval), Stale: Duration(secondary.DefaultStaleAfter),
		},
		Controller: Controller{
			MaxEndpointsPerSlice: endpointslices.DefaultMaxEndpoints, ConcurrentSyncs: endpointslices.DefaultSyncs,
			LeaderElection: LeaderElection{
				Enabled: true, Namespace: "kube-system", Name: "portolan-slices", LeaseDuration: Duration(leader.DefaultLeaseDuration),
				RenewDeadline: Duration(leader.DefaultRenewDeadline), RetryPeriod: Duration(leader.DefaultRetryPeriod),
			},
		},
		Webhook: Webhook{
			Listen: "127.0.0.1:8443", Service: "kube-system/portolan-webhook", Timeout: Duration(time.Second), MaxInFlight: 32,
			CertificateLife: Duration(90 * 24 * time.Hour),
		},
	}
}
