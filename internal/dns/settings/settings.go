// Package settings is what the configuration file says of the DNS server (section dns)
// and of the agent on a node (section node): the keys, their defaults, and what they
// compile to.
package settings

import (
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/respond"
)

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
	// NameServer is the host ns.dns.ZONE.
	NameServer NameServer `yaml:"nameServer"`
	// Forward routes names outside the cluster to upstreams, and Cache keeps their
	// answers.
	Forward Forward `yaml:"forward"`
	Cache   Cache   `yaml:"cache"`
	// Access, RateLimit, Rewrite, Block and Hosts are applied to a query before the
	// zones are looked up, in this order.
	Access    []Access  `yaml:"access"`
	RateLimit RateLimit `yaml:"rateLimit"`
	Rewrite   []Rewrite `yaml:"rewrite"`
	Block     Block     `yaml:"block"`
	Hosts     Hosts     `yaml:"hosts"`
	// Autopath walks search paths in the server instead of in clients.
	Autopath Autopath `yaml:"autopath"`
	// UDPSize is the longest response over UDP, in octets.
	UDPSize int `yaml:"udpSize"`
	// UDPSteering is cpu or hash: how packets reach the socket of a processor.
	UDPSteering string `yaml:"udpSteering"`

	Identity Identity `yaml:"identity"`
	Cookies  Cookies  `yaml:"cookies"`
	TCP      TCP      `yaml:"tcp"`
	TLS      TLS      `yaml:"tls"`
	HTTPS    HTTPS    `yaml:"https"`
	Transfer Transfer `yaml:"transfer"`
	// QueryLog selects the queries that are logged.
	QueryLog QueryLog `yaml:"queryLog"`
	// DNSTap is a collector of dnstap: unix:PATH or tcp:ADDRESS:PORT.
	DNSTap string `yaml:"dnstap"`
}

// NameServer is the host ns.dns.ZONE.
type NameServer struct {
	// Service is the DNS Service, as namespace/name: its ClusterIPs are the
	// name server's addresses.
	Service string `yaml:"service"`
	// Addresses are used where that Service does not exist; the addresses of
	// DNS.Listen when empty.
	Addresses []string `yaml:"addresses"`
}

// Forward routes names outside the cluster.
type Forward struct {
	Routes []Route `yaml:"routes"`
	// MaxInFlight is how many queries wait for upstreams at once, and
	// MaxInFlightPerClient how many of one client.
	MaxInFlight          int `yaml:"maxInFlight"`
	MaxInFlightPerClient int `yaml:"maxInFlightPerClient"`
}

// Route forwards the names below a suffix.
type Route struct {
	// Suffix is a domain; all names when empty.
	Suffix string `yaml:"suffix"`
	// Upstreams are servers, see forward.ParseUpstream.
	Upstreams []string `yaml:"upstreams"`
	// ResolvConf is a file with more of them.
	ResolvConf string `yaml:"resolvConf"`
	// Policy is fastest, which is the default, sequential or random.
	Policy string `yaml:"policy"`
	// Timeout is how long a name is tried; DefaultRouteTimeout when 0.
	Timeout key.Duration `yaml:"timeout"`
	// CA is a file with the authorities that sign the upstreams' certificates; the
	// system's when empty.
	CA string `yaml:"ca"`
	// TrustDenials lets the denial of a name deny all names below it.
	TrustDenials bool `yaml:"trustDenials"`
	// NoPrivate refuses answers with private addresses.
	NoPrivate bool `yaml:"noPrivate"`
	// ClientSubnet forwards the option EDNS Client Subnet of clients (RFC 7871).
	ClientSubnet bool `yaml:"clientSubnet"`
}

// DefaultRouteTimeout is less than the 5 s after which libc asks again.
const DefaultRouteTimeout = 4 * time.Second

// Cache bounds the cache of forwarded answers.
type Cache struct {
	// Size is the memory for answers; 0 turns the cache off.
	Size key.Size `yaml:"size"`
	// MinTTL and MaxTTL bound TTLs, in seconds, MaxNegativeTTL those of negative
	// answers.
	MinTTL         int `yaml:"minTTL"`
	MaxTTL         int `yaml:"maxTTL"`
	MaxNegativeTTL int `yaml:"maxNegativeTTL"`
	// Stale is how long after its TTL an answer may be served as stale (RFC 8767),
	// StaleAfter how long a client waits for a fresh one first.
	Stale      key.Duration `yaml:"stale"`
	StaleAfter key.Duration `yaml:"staleAfter"`
}

// Access is the outcome of queries of some clients for some names.
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
	// Slip answers one of so many excess queries as truncated, so that the client
	// repeats it over TCP; 0 is none.
	Slip int `yaml:"slip"`
}

// Rewrite answers names as other names.
type Rewrite struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
	// Exact matches the name From alone, not those below.
	Exact bool `yaml:"exact"`
}

// Block is the blocked names.
type Block struct {
	Names  []string `yaml:"names"` // with those below
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

// Autopath walks search paths in the server. Clients send them in a name or in an EDNS
// option.
type Autopath struct {
	// Suffix ends names that carry a search path; none do when empty.
	Suffix string `yaml:"suffix"`
	// Option is the code of the EDNS option that carries search paths; 0 turns it off.
	// Clients are the prefixes whose clients may send it; all when empty.
	Option  int      `yaml:"option"`
	Clients []string `yaml:"clients"`
	// HostPaths are the search paths of nodes, which follow the cluster's own.
	HostPaths []string `yaml:"hostPaths"`
	// MaxPaths is how many paths an option may have, MaxOctets how long it may be.
	MaxPaths  int `yaml:"maxPaths"`
	MaxOctets int `yaml:"maxOctets"`
}

// Identity is how the server identifies itself.
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
	// Secrets are of 32 hexadecimal digits: the first makes cookies, all verify
	// them. With none, one is made at each start.
	Secrets []string `yaml:"secrets"`
}

// TCP bounds connections.
type TCP struct {
	// MaxConnections is how many are open at once; one more closes the one that was
	// idle longest.
	MaxConnections int `yaml:"maxConnections"`
	// MaxInFlight is how many queries of a connection are answered before their
	// answers are sent.
	MaxInFlight int `yaml:"maxInFlight"`
	// MaxQueries is how many a connection may send before it is closed; 0 is
	// without limit.
	MaxQueries int `yaml:"maxQueries"`
	// Idle is how long a connection stays open without a query.
	Idle key.Duration `yaml:"idle"`
}

// TLS is DNS over TLS (RFC 7858), and the certificate of that and of HTTPS.
type TLS struct {
	Listen []string `yaml:"listen"`
	// Certificate and Key are files in PEM, read again when they change.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// ClientCA is a file with the authorities that sign clients' certificates, which
	// are optional.
	ClientCA string `yaml:"clientCA"`
}

// HTTPS is DNS over HTTPS (RFC 8484).
type HTTPS struct {
	Listen []string `yaml:"listen"`
	Path   string   `yaml:"path"`
}

// QueryLog selects the queries that are logged.
type QueryLog struct {
	OneIn   int      `yaml:"oneIn"`   // of so many, by chance; 0 is none
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and those below; all when empty
	RCodes  []string `yaml:"rcodes"`  // such as SERVFAIL; all when empty
}

// Default returns the section of a file that lacks it.
func Default() DNS {
	return DNS{
		Listen:     []string{"127.0.0.1:1053"},
		Zones:      []string{"cluster.local"},
		TTL:        5,
		Pods:       string(kubezone.PodsVerified),
		NameServer: NameServer{Service: "kube-system/kube-dns"},
		Forward:    Forward{MaxInFlight: 4096, MaxInFlightPerClient: 1024},
		Cache: Cache{
			Size: 32 << 20, MaxTTL: 86400, MaxNegativeTTL: 60,
			Stale: key.Duration(time.Hour), StaleAfter: key.Duration(1800 * time.Millisecond),
		},
		RateLimit: RateLimit{Burst: 100, Prefix4: 24, Prefix6: 56, Slip: 2},
		Block:     Block{Answer: blockNXDomain, TTL: 60},
		Hosts:     Hosts{TTL: 60},
		Autopath: Autopath{
			Suffix: autopath.DefaultSuffix, Option: autopath.DefaultOption, MaxPaths: 16, MaxOctets: 1024,
		},
		UDPSize:     respond.DefaultUDPSize,
		UDPSteering: string(dnsserver.SteerByCPU),
		TCP:         TCP{MaxConnections: 1000, MaxInFlight: 64, Idle: key.Duration(10 * time.Second)},
		HTTPS:       HTTPS{Path: "/dns-query"},
		Transfer: Transfer{
			History: TransferHistory{Changes: 100_000, Memory: 16 << 20}, MaxTransfers: 100, Memory: 128 << 20,
		},
	}
}

// ReadsPods reports whether answers need the cluster's Pods.
func (d *DNS) ReadsPods() bool { return d.Pods == string(kubezone.PodsVerified) }
