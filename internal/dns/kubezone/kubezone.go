// Package kubezone compiles the cluster model into DNS zone data.
//
//	cluster.Feed ──► Compile ──► service, pod, namespace, cluster ──► zone.Changes ──► zone.DB
//	(changed keys)   (a pass)    (one subtree of names per object)
//
// It implements Kubernetes DNS-Based Service Discovery 1.1.0. Negative answers follow RFC
// 2308, section 2, and empty non-terminals RFC 4592, section 2.2.2. Where the
// specification is silent, docs/dns-answers.md applies.
package kubezone

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// SchemaVersion is the version of the specification, the content of the record at
// dns-version.Z (specification, section 2.2).
const SchemaVersion = "1.1.0"

const (
	versionTTL = 28800 // TTL of dns-version, as in the specification's example
	// MaxTTL is the maximum TTL of a cluster's records, in seconds.
	MaxTTL = 3600
)

// PodMode selects the names under pod.Z that exist.
type PodMode string

// The pod modes.
const (
	PodsVerified PodMode = "verified" // names of the addresses of Pods
	PodsInsecure PodMode = "insecure" // names of all addresses
	PodsDisabled PodMode = "disabled" // none
)

// Config configures a Compiler.
type Config struct {
	// Zones are the cluster domains, at least one. Reverse records point to names in the
	// first.
	Zones []dnsname.Name
	// TTL is the TTL of the cluster's records and of negative answers, in seconds,
	// at most MaxTTL.
	TTL  uint32
	Pods PodMode
	// EndpointPodNames names endpoints without hostname after their Pods.
	EndpointPodNames bool
	// DNSService is the Service whose cluster IPs are the addresses of the name server.
	// DNSAddresses are used if it does not exist.
	DNSService   cluster.Key
	DNSAddresses []netip.Addr
	// ReverseRanges are the address ranges of Services and Pods. The reverse zones that
	// cover them have their own SOA; without ranges there are only in-addr.arpa and
	// ip6.arpa.
	ReverseRanges []netip.Prefix
	// Multicluster is the domain of ServiceImports, such as clusterset.local; the root
	// turns it off.
	Multicluster dnsname.Name
	// External are the names of Services, Ingresses and Gateways for clients outside the
	// cluster.
	External External
	// Between, unless nil, is called before each subtree that a pass compiles, while the
	// zone is not being changed. It must not use the Store.
	Between func()
	// Instance is the first label of the name server in SOA records. Secondaries use it
	// to distinguish independent histories of serials. If it is empty, the name has no
	// such label.
	Instance string
	// Serial is the initial serial of the zones.
	Serial uint32
}

// Compiler converts objects to records. Its only state is its configuration and reusable
// memory.
type Compiler struct {
	cfg      Config
	reverse  []dnsname.Name
	passPool sync.Pool // of *pass
	// kinds of objects that names under svc.Z, under pod.Z, under svc.M, and reverse names
	// depend on
	serviceKinds, podKinds, importKinds, externalKinds, reverseKinds []cluster.Kind
}

// Errors that New returns, wrapped.
var (
	ErrNoZone   = errors.New("no zone")
	ErrOverlap  = errors.New("zones overlap")
	ErrTTL      = fmt.Errorf("TTL not between 0 and %d seconds", MaxTTL)
	ErrPodMode  = errors.New("pod mode is not verified, insecure or disabled")
	ErrRootZone = errors.New("the root can't be a cluster's zone")
)

// New returns a Compiler, or an error if the configuration is invalid.
func New(cfg Config) (*Compiler, error) {
	if cfg.Between == nil {
		cfg.Between = func() {}
	}
	c := &Compiler{cfg: cfg}
	if err := c.checkZones(); err != nil {
		return nil, err
	}
	if cfg.TTL > MaxTTL {
		return nil, fmt.Errorf("TTL %d: %w", cfg.TTL, ErrTTL)
	}
	c.podKinds = []cluster.Kind{cluster.KindNamespace}
	c.serviceKinds = []cluster.Kind{cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice}
	c.reverseKinds = slices.Clone(c.serviceKinds)
	switch cfg.Pods {
	case PodsVerified:
		c.podKinds = append(c.podKinds, cluster.KindPod)
		c.reverseKinds = append(c.reverseKinds, cluster.KindPod)
	case PodsInsecure, PodsDisabled:
	default:
		return nil, fmt.Errorf("pod mode %q: %w", cfg.Pods, ErrPodMode)
	}
	if c.isMulticluster() {
		c.importKinds = []cluster.Kind{cluster.KindNamespace, cluster.KindServiceImport, cluster.KindEndpointSlice}
		c.reverseKinds = append(c.reverseKinds, cluster.KindServiceImport)
	}
	c.externalKinds = cfg.External.kinds()
	c.reverse = []dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}
	for _, r := range cfg.ReverseRanges {
		zones, err := dnsname.ReverseZones(r)
		if err != nil {
			return nil, err
		}
		for _, z := range zones {
			if !slices.Contains(c.reverse, z) {
				c.reverse = append(c.reverse, z)
			}
		}
	}
	return c, nil
}

// Apexes returns the apexes of the Compiler's zones.
func (c *Compiler) Apexes() []dnsname.Name {
	all := slices.Clone(c.cfg.Zones)
	if c.isMulticluster() {
		all = append(all, c.cfg.Multicluster)
	}
	return slices.Concat(all, c.cfg.External.Zones, c.reverse)
}

func (c *Compiler) isMulticluster() bool { return !c.cfg.Multicluster.IsRoot() }

// Kinds returns the kinds of objects that the zones are compiled from.
func (c *Compiler) Kinds() []cluster.Kind {
	all := slices.Clone(c.reverseKinds)
	for _, k := range c.externalKinds {
		if !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

func (c *Compiler) checkZones() error {
	if len(c.cfg.Zones) == 0 {
		return ErrNoZone
	}
	zones := slices.Clone(c.cfg.Zones)
	if c.isMulticluster() {
		zones = append(zones, c.cfg.Multicluster)
	}
	zones = append(zones, c.cfg.External.Zones...)
	for i, z := range zones {
		if z.IsRoot() {
			return ErrRootZone
		}
		others := append([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, zones[:i]...)
		for _, o := range others {
			if z.IsSubdomainOf(o) || o.IsSubdomainOf(z) {
				return fmt.Errorf("zones %s and %s: %w", o, z, ErrOverlap)
			}
		}
	}
	return nil
}

// Timers of SOA records, in seconds, as advised by RFC 1912, section 2.2, for zones that
// change often. The MINIMUM field, the TTL of negative answers, is Config.TTL.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)

// SOA returns the SOA record of a zone. It returns an error if the cluster domain is too
// long for the names in it.
func (c *Compiler) SOA(apex dnsname.Name) (dnswire.SOA, error) {
	primary := c.cfg.Zones[0]
	if slices.Contains(c.cfg.External.Zones, apex) {
		primary = apex // clients outside can't ask for the cluster's names
	}
	mname, err := dnsname.MustParse("ns.dns").Under(primary)
	if err == nil && c.cfg.Instance != "" {
		mname, err = mname.Child(c.cfg.Instance)
	}
	if err != nil {
		return dnswire.SOA{}, err
	}
	rname, err := primary.Child("hostmaster")
	return dnswire.SOA{
		Zone: apex, MName: mname, RName: rname, TTL: c.cfg.TTL, Serial: c.cfg.Serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minimum: c.cfg.TTL,
	}, err
}

// NewDB returns the Compiler's zones in the state in which no kind is loaded, and
// zones that allow wildcards, which have only the given SOAs.
func (c *Compiler) NewDB(wildcards ...dnswire.SOA) (*zone.DB, error) {
	var soas []dnswire.SOA
	for _, apex := range c.Apexes() {
		soa, err := c.SOA(apex)
		if err != nil {
			return nil, err
		}
		if slices.Contains(c.cfg.External.Zones, apex) {
			wildcards = append(slices.Clip(wildcards), soa)
		} else {
			soas = append(soas, soa)
		}
	}
	db, err := zone.NewWithWildcards(soas, wildcards)
	if err != nil {
		return nil, err
	}
	nothing := cluster.NewStore()
	feed := nothing.Subscribe()
	defer feed.Close()
	c.Apply(nothing, feed, db)
	return db, nil
}

// Apply compiles the pending changes of the feed, applies them to db and returns them. It
// reads the feed within the view: in a later view, a kind could be loaded, and its names
// denied, before its objects are compiled.
func (c *Compiler) Apply(store *cluster.Store, feed *cluster.Feed, db *zone.DB) (changed cluster.Changes) {
	var made zone.Changes
	store.View(func(v *cluster.View) {
		changed = feed.Pending()
		made = c.Compile(v, changed)
	})
	db.Apply(made)
	return changed
}

// Compile compiles the changed objects. The result for an object depends on the view
// only.
func (c *Compiler) Compile(v *cluster.View, changed cluster.Changes) zone.Changes {
	p := c.newPass(v, c.cfg.Between)
	if changed.Everything {
		p.compileAll()
	}
	_, dnsService := changed.Objects[cluster.Ref{Kind: cluster.KindService, Key: c.cfg.DNSService}]
	if changed.Everything || changed.Freshness || dnsService {
		p.compileCluster()
	}
	if len(c.cfg.External.Zones) > 0 {
		p.compileHosts(changed)
	}
	for ch := range changed.Objects {
		if changed.Everything && p.exists(ch) {
			continue
		}
		switch ch.Kind {
		case cluster.KindNamespace:
			p.compileNamespace(ch.Key.Name)
		case cluster.KindService:
			p.compileService(ch.Key)
		case cluster.KindPod:
			p.compilePod(ch.Key)
		case cluster.KindServiceImport:
			p.compileServiceImport(ch.Key)
		case cluster.KindIngress, cluster.KindGateway, cluster.KindHTTPRoute: // see compileHosts
		case cluster.KindEndpointSlice, cluster.KindNode:
		}
	}
	return p.finish()
}
