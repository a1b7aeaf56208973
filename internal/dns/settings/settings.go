// Package settings has the sections of the configuration file for the DNS server
// (section dns) and for the agent on a node (section node): their keys, defaults and
// compiled forms.
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
	// Zones are the cluster domains. Reverse names point to the first.
	Zones []string `yaml:"zones"`
	// TTL is the TTL of the cluster's records, in seconds, 0 to 3600.
	TTL int `yaml:"ttl"`
	// Pods is verified, insecure or disabled.
	Pods string `yaml:"pods"`
	// EndpointPodNames names endpoints without hostname after their Pods.
	EndpointPodNames bool `yaml:"endpointPodNames"`
	// ServiceCIDRs and PodCIDRs are the cluster's ranges, whose reverse zones are
	// served.
	ServiceCIDRs []string `yaml:"serviceCIDRs"`
	PodCIDRs     []string `yaml:"podCIDRs"`
	// NameServer is the host ns.dns.ZONE.
	NameServer NameServer `yaml:"nameServer"`
	// Multicluster is the domain of ServiceImports; empty turns it off.
	Multicluster string `yaml:"multicluster"`
	// External are the zones with names for clients outside the cluster.
	External External `yaml:"external"`
	// LocalZones are zones with records of the operator's.
	LocalZones []LocalZone `yaml:"localZones"`
	// Views limit what the clients of some networks see.
	Views []View `yaml:"views"`
	// Forward routes names outside the cluster to upstreams. Cache configures the cache
	// of their answers.
	Forward Forward `yaml:"forward"`
	Cache   Cache   `yaml:"cache"`
	// Access, RateLimit, Rewrite, Block and Hosts are applied to a query before the
	// zones are looked up, in this order.
	Access    []Access  `yaml:"access"`
	RateLimit RateLimit `yaml:"rateLimit"`
	Rewrite   []Rewrite `yaml:"rewrite"`
	// Suppress removes types of records of names outside the zones.
	Suppress []Suppress `yaml:"suppress"`
	Block    Block      `yaml:"block"`
	Hosts    Hosts      `yaml:"hosts"`
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
	// Service is the DNS Service, as namespace/name. Its ClusterIPs are the name
	// server's addresses.
	Service string `yaml:"service"`
	// Addresses are used if that Service does not exist; if empty, the addresses of
	// DNS.Listen.
	Addresses []string `yaml:"addresses"`
}

// External are zones with names of Services, Ingresses and Gateways for clients outside
// the cluster.
type External struct {
	Zones []string `yaml:"zones"` // off when empty
	// Sources are service, ingress and gateway: the objects that have names.
	Sources []string `yaml:"sources"`
	// Addresses are those of ns.dns.ZONE.
	Addresses []string `yaml:"addresses"`
}

// LocalZone is a zone whose records are in a master file, or here.
type LocalZone struct {
	Zone    string `yaml:"zone"`
	File    string `yaml:"file"`
	Records string `yaml:"records"` // as in a master file
	// TTL is that of records without one, in seconds; 0 is DefaultLocalTTL.
	TTL int `yaml:"ttl"`
}

// DefaultLocalTTL is the TTL of records of local zones without one, in seconds.
const DefaultLocalTTL = 300

// View is what the clients of some networks see.
type View struct {
	Clients []string `yaml:"clients"` // prefixes
	Zones   []string `yaml:"zones"`   // all when empty
	// Forward has upstreams answer names outside the zones.
	Forward bool `yaml:"forward"`
}

// Forward routes names outside the cluster.
type Forward struct {
	Routes []Route `yaml:"routes"`
	// MaxInFlight is the highest number of queries that wait for upstreams at once, and
	// MaxInFlightPerClient that of one client.
	MaxInFlight          int `yaml:"maxInFlight"`
	MaxInFlightPerClient int `yaml:"maxInFlightPerClient"`
}

// Route forwards the names below a suffix.
type Route struct {
	// Suffix is a domain; empty matches all names.
	Suffix string `yaml:"suffix"`
	// Upstreams are servers, see forward.ParseUpstream.
	Upstreams []string `yaml:"upstreams"`
	// ResolvConf is a file with additional upstreams.
	ResolvConf string `yaml:"resolvConf"`
	// Policy is fastest (the default), sequential or random.
	Policy string `yaml:"policy"`
	// Timeout is the time limit for forwarding a query; 0 is DefaultRouteTimeout.
	Timeout key.Duration `yaml:"timeout"`
	// CA is a file with the CAs of the upstreams' certificates; empty means the
	// system's.
	CA string `yaml:"ca"`
	// TrustDenials makes NXDOMAIN for a name apply to all names below it.
	TrustDenials bool `yaml:"trustDenials"`
	// NoPrivate refuses answers with private addresses.
	NoPrivate bool `yaml:"noPrivate"`
	// ClientSubnet forwards the option EDNS Client Subnet of clients (RFC 7871).
	ClientSubnet bool `yaml:"clientSubnet"`
}

// DefaultRouteTimeout is less than the 5 s after which libc repeats a query.
const DefaultRouteTimeout = 4 * time.Second

// Cache configures the cache of forwarded answers.
type Cache struct {
	// Size is the memory for answers; 0 turns the cache off.
	Size key.Size `yaml:"size"`
	// MinTTL and MaxTTL are the bounds of TTLs, in seconds. MaxNegativeTTL is the upper
	// bound for negative answers.
	MinTTL         int `yaml:"minTTL"`
	MaxTTL         int `yaml:"maxTTL"`
	MaxNegativeTTL int `yaml:"maxNegativeTTL"`
	// Stale is how long after its TTL an answer may be served as stale (RFC 8767).
	// StaleAfter is how long a client first waits for a fresh answer.
	Stale      key.Duration `yaml:"stale"`
	StaleAfter key.Duration `yaml:"staleAfter"`
}

// Access is a rule for queries by client and name.
type Access struct {
	Action  string   `yaml:"action"`  // allow, refuse or drop
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and names below; all when empty
}

// RateLimit limits the responses over UDP to the clients of one prefix.
type RateLimit struct {
	PerSecond int `yaml:"perSecond"` // 0 is no limit
	Burst     int `yaml:"burst"`
	Prefix4   int `yaml:"prefix4"`
	Prefix6   int `yaml:"prefix6"`
	// Slip answers one in this many excess queries with a truncated response, so that
	// the client repeats it over TCP; 0 answers none.
	Slip int `yaml:"slip"`
}

// Rewrite answers names as other names.
type Rewrite struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
	// Exact matches only the name From, without names below it.
	Exact bool `yaml:"exact"`
}

// Suppress has names outside the zones answered as if they had no records of some types.
type Suppress struct {
	Types   []string `yaml:"types"`
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and names below; all when empty
}

// Block configures blocked names.
type Block struct {
	Names  []string `yaml:"names"` // and names below
	Files  []string `yaml:"files"`
	Answer string   `yaml:"answer"` // nxdomain or zero
	TTL    int      `yaml:"ttl"`
}

// Hosts configures names with their addresses.
type Hosts struct {
	Lines []string `yaml:"lines"` // as in hosts(5)
	Files []string `yaml:"files"`
	TTL   int      `yaml:"ttl"`
}

// Autopath applies search paths in the server. Clients send them in a name or in an
// EDNS option.
type Autopath struct {
	// Suffix is the end of names that carry a search path; empty turns them off.
	Suffix string `yaml:"suffix"`
	// Option is the code of the EDNS option that carries search paths; 0 turns it off.
	// Clients are the prefixes of clients that may send it; all when empty.
	Option  int      `yaml:"option"`
	Clients []string `yaml:"clients"`
	// HostPaths are the search paths of nodes, which are applied after the cluster's.
	HostPaths []string `yaml:"hostPaths"`
	// MaxPaths is the highest number of paths in an option, and MaxOctets its maximum
	// length.
	MaxPaths  int `yaml:"maxPaths"`
	MaxOctets int `yaml:"maxOctets"`
}

// Identity is how the server identifies itself.
type Identity struct {
	// NSID is sent to clients that request it (RFC 5001), at most 128 octets; if empty,
	// the host name.
	NSID string `yaml:"nsid"`
	// ServerID and Version answer id.server and version.bind in class CHAOS,
	// at most 255 octets each; refused when empty.
	ServerID string `yaml:"serverID"`
	Version  string `yaml:"version"`
}

// Cookies configures DNS cookies (RFC 7873 and 9018).
type Cookies struct {
	// Secrets have 32 hexadecimal digits each. The first one creates cookies, and all
	// verify them. If empty, the server creates a secret at each start.
	Secrets []string `yaml:"secrets"`
}

// TCP limits connections.
type TCP struct {
	// MaxConnections is the highest number of open connections. A further one closes
	// the one that was idle longest.
	MaxConnections int `yaml:"maxConnections"`
	// MaxInFlight is the highest number of queries of a connection that are answered
	// before their answers are sent.
	MaxInFlight int `yaml:"maxInFlight"`
	// MaxQueries is the highest number of queries per connection, after which it is
	// closed; 0 is no limit.
	MaxQueries int `yaml:"maxQueries"`
	// Idle is how long a connection stays open without a query.
	Idle key.Duration `yaml:"idle"`
}

// TLS configures DNS over TLS (RFC 7858), and the certificate for it and for HTTPS.
type TLS struct {
	Listen []string `yaml:"listen"`
	// Certificate and Key are PEM files. They are read again when they change.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// ClientCA is a file with the CAs of client certificates, which are optional.
	ClientCA string `yaml:"clientCA"`
}

// HTTPS configures DNS over HTTPS (RFC 8484).
type HTTPS struct {
	Listen []string `yaml:"listen"`
	Path   string   `yaml:"path"`
}

// QueryLog selects the queries that are logged.
type QueryLog struct {
	OneIn   int      `yaml:"oneIn"`   // one in this many; 0 is none
	Clients []string `yaml:"clients"` // prefixes; all when empty
	Names   []string `yaml:"names"`   // and names below; all when empty
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
		External:   External{Sources: []string{sourceService}},
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
