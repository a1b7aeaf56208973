// Package config is the configuration file: its types, defaults and
// validation. One YAML file configures all; a key that is not known is an
// error with its line.
package config

import (
	"fmt"
	"time"

	"portolan.dev/portolan/internal/kubezone"
	"portolan.dev/portolan/internal/respond"
)

// Config is everything that can be configured, as the file spells it. A key
// without a value keeps its default.
type Config struct {
	// Manifests is a directory of manifests, or one file.
	Manifests string `yaml:"manifests"`
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
	// UDPSize is the longest response over UDP, in octets.
	UDPSize  int      `yaml:"udpSize"`
	Identity Identity `yaml:"identity"`
	Cookies  Cookies  `yaml:"cookies"`
	TCP      TCP      `yaml:"tcp"`
	Log      Log      `yaml:"log"`
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
	// MaxInFlight is how many queries of a connection are worked on at once.
	MaxInFlight int `yaml:"maxInFlight"`
	// MaxQueries is how many a connection may ask before it is closed; 0 is
	// without limit.
	MaxQueries int `yaml:"maxQueries"`
	// Idle is how long a connection stays open without a query.
	Idle Duration `yaml:"idle"`
}

// Log configures what is logged, on standard error.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
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

// Default is the configuration of a file that says nothing.
func Default() Config {
	return Config{
		Listen:     []string{"127.0.0.1:1053"},
		Zones:      []string{"cluster.local"},
		TTL:        5,
		Pods:       string(kubezone.PodsVerified),
		NameServer: NameServer{Service: "kube-system/kube-dns"},
		UDPSize:    respond.DefaultUDPSize,
		TCP:        TCP{MaxConnections: 1000, MaxInFlight: 64, Idle: Duration(10 * time.Second)},
		Log:        Log{Level: "info", Format: "text"},
	}
}
