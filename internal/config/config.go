// Package config is the configuration file: its types, defaults and
// validation. One YAML file configures all; a key that is not known is an
// error with its line.
package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dnsname"
	"portolan.dev/portolan/internal/kubezone"
	"portolan.dev/portolan/internal/respond"
)

// Config is everything that can be configured, as the file spells it.
type Config struct {
	// Manifests is a directory of manifests, or one file.
	Manifests string `yaml:"manifests"`
	// Listen are addresses and ports, each for UDP and TCP.
	Listen []string `yaml:"listen"`
	// Zones are the cluster's domains; reverse names point into the first.
	Zones []string `yaml:"zones"`
	// TTL is that of the cluster's records, in seconds, 0 to 3600.
	TTL uint32 `yaml:"ttl"`
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
	// NSID is given to clients that ask for it (RFC 5001); the host's name
	// when empty.
	NSID string `yaml:"nsid"`
	// ServerID and Version answer id.server and version.bind in class CHAOS;
	// refused when empty.
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

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a duration, such as 10s or 1m30s", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes it as it is read.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

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

// Read reads a configuration file over the defaults. Its errors name the file
// and, where one is to blame, the line.
func Read(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	c := Default()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("config %s%w", path, plainError(err))
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

var (
	atLine       = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): `)
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
)

// plainError says what the YAML library found in our words, behind the line.
func plainError(err error) error {
	text := err.Error()
	var several *yaml.TypeError
	if errors.As(err, &several) && len(several.Errors) > 0 {
		text = several.Errors[0]
	}
	line := ": "
	if m := atLine.FindStringSubmatch(text); m != nil {
		line, text = ":"+m[1]+": ", text[len(m[0]):]
	}
	text = unknownField.ReplaceAllString(text, "unknown key $1")
	return errors.New(line + strings.TrimPrefix(text, "yaml: "))
}

// Validate checks what can be checked without doing anything. Its errors name
// the key.
func (c *Config) Validate() error {
	_, err := c.Compile()
	return err
}

// Compiled is a configuration in the types of those who use it.
type Compiled struct {
	Zone          kubezone.Config
	CookieSecrets []respond.CookieSecret
}

// Compile checks the configuration and gives it in the types of its users.
func (c *Config) Compile() (*Compiled, error) {
	made := &Compiled{Zone: kubezone.Config{
		TTL: c.TTL, Pods: kubezone.PodMode(c.Pods), EndpointPodNames: c.EndpointPodNames,
	}}
	steps := []func(*Compiled) error{c.compileZones, c.compileNameServer, c.compileCookies, c.checkListen, c.checkLimits, c.checkLog}
	for _, step := range steps {
		if err := step(made); err != nil {
			return nil, err
		}
	}
	if _, err := kubezone.New(made.Zone); err != nil {
		return nil, err
	}
	return made, nil
}

func (c *Config) compileZones(made *Compiled) error {
	for _, z := range c.Zones {
		name, err := dnsname.Parse(z)
		if err != nil {
			return fmt.Errorf("zones: %w", err)
		}
		made.Zone.Zones = append(made.Zone.Zones, name)
	}
	for key, ranges := range map[string][]string{"serviceCIDRs": c.ServiceCIDRs, "podCIDRs": c.PodCIDRs} {
		for _, r := range ranges {
			prefix, err := netip.ParsePrefix(r)
			if err != nil || prefix.Bits() == 0 {
				return fmt.Errorf("%s: %q is not a range, such as 10.96.0.0/12", key, r)
			}
			made.Zone.ReverseRanges = append(made.Zone.ReverseRanges, prefix)
		}
	}
	return nil
}

func (c *Config) compileNameServer(made *Compiled) error {
	ns, name, ok := strings.Cut(c.NameServer.Service, "/")
	if !ok || ns == "" || name == "" {
		return fmt.Errorf("nameServer.service: %q is not namespace/name", c.NameServer.Service)
	}
	made.Zone.DNSService = cluster.Key{Namespace: ns, Name: name}
	for _, a := range c.NameServer.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil || addr.Zone() != "" {
			return fmt.Errorf("nameServer.addresses: %q is not an address", a)
		}
		made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, addr.Unmap())
	}
	if len(c.NameServer.Addresses) > 0 {
		return nil
	}
	for _, l := range c.Listen {
		ap, err := netip.ParseAddrPort(l)
		if err == nil && !ap.Addr().IsUnspecified() {
			made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, ap.Addr().Unmap().WithZone(""))
		}
	}
	return nil
}

func (c *Config) compileCookies(made *Compiled) error {
	for i, s := range c.Cookies.Secrets {
		raw, err := hex.DecodeString(s)
		if err != nil || len(raw) != len(respond.CookieSecret{}) {
			return fmt.Errorf("cookies.secrets[%d]: not 32 hexadecimal digits", i)
		}
		made.CookieSecrets = append(made.CookieSecrets, respond.CookieSecret(raw))
	}
	return nil
}

func (c *Config) checkListen(*Compiled) error {
	if len(c.Listen) == 0 {
		return errors.New("listen: no address")
	}
	for _, l := range c.Listen {
		if _, err := netip.ParseAddrPort(l); err != nil {
			return fmt.Errorf("listen: %q is not an address and port, such as 127.0.0.1:1053 or [::]:53", l)
		}
	}
	return nil
}

func (c *Config) checkLimits(*Compiled) error {
	if c.UDPSize < 512 || c.UDPSize > 4096 {
		return fmt.Errorf("udpSize: %d is not between 512 and 4096", c.UDPSize)
	}
	if c.TCP.MaxConnections < 1 {
		return fmt.Errorf("tcp.maxConnections: %d is less than 1", c.TCP.MaxConnections)
	}
	if c.TCP.MaxInFlight < 1 {
		return fmt.Errorf("tcp.maxInFlight: %d is less than 1", c.TCP.MaxInFlight)
	}
	if c.TCP.MaxQueries < 0 {
		return fmt.Errorf("tcp.maxQueries: %d is less than 0", c.TCP.MaxQueries)
	}
	if c.TCP.Idle <= 0 {
		return fmt.Errorf("tcp.idle: %s is not more than 0", time.Duration(c.TCP.Idle))
	}
	return nil
}

func (c *Config) checkLog(*Compiled) error {
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("log.level: %q is not debug, info, warn or error", c.Log.Level)
	}
	switch c.Log.Format {
	case "text", "json":
	default:
		return fmt.Errorf("log.format: %q is not text or json", c.Log.Format)
	}
	return nil
}
