// Package app reports what a Pod sees of a cluster: its resolv.conf, its environment
// variables for Services, and why a name resolves or not. It uses a model that was read
// once.
package app

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/serviceenv"
)

// Inspector reports what the Pods of a cluster see.
type Inspector struct {
	settings config.Config
	compiled *config.Compiled
	store    *cluster.Store
	dns      *respond.Responder
	loaded   source.Loaded
	observed bool // the store is filled from an API
	zones    []*localzone.ZoneError
	kept     kept // of Path
}

// New returns an Inspector of the model in store. dns answers its Pods' queries. New
// returns an error if the settings are invalid.
func New(settings config.Config, store *cluster.Store, dns *respond.Responder) (*Inspector, error) {
	compiled, err := settings.Compile()
	return &Inspector{settings: settings, compiled: compiled, store: store, dns: dns}, err
}

// Loaded sets how the store was filled. An Inspector takes a model for that of manifests,
// to which a control plane would add objects, until it is called.
func (i *Inspector) Loaded(l source.Loaded) {
	i.kept.Lock()
	defer i.kept.Unlock()
	i.loaded, i.observed, i.kept.walker = l, len(l.From) == 0, nil
}

// Zones sets why local zones are not loaded.
func (i *Inspector) Zones(problems []*localzone.ZoneError) { i.zones = problems }

// zoneProblem returns why the local zone that a name is in is not loaded; nil if it is, or
// if there is none.
func (i *Inspector) zoneProblem(text string) (in *localzone.ZoneError) {
	name, err := dnsname.Parse(text)
	for _, p := range i.zones {
		if err == nil && name.IsSubdomainOf(p.Zone) && (in == nil || p.Zone.IsSubdomainOf(in.Zone)) {
			in = p
		}
	}
	return in
}

// unread reports whether objects of a kind in a namespace are not in the store because the
// account may not list them.
func (i *Inspector) unread(k cluster.Kind, namespace string) bool {
	return slices.Contains(i.loaded.Partial, k) && !slices.Contains(i.loaded.Namespaces, namespace)
}

// NodeSettings are the command line's settings of the nodes that Pods run on.
type NodeSettings struct {
	// ResolvConf is the file of the kubelet's setting resolvConf; nil if it is not known.
	ResolvConf *resolvconf.Config
	// ClusterDNS are the addresses of the kubelet's setting clusterDNS. If empty, the
	// addresses of the DNS Service are used.
	ClusterDNS []netip.Addr
}

// equal reports whether the settings are the same.
func (n *NodeSettings) equal(o *NodeSettings) bool {
	return n.ResolvConf == o.ResolvConf && slices.Equal(n.ClusterDNS, o.ClusterDNS)
}

// usualClusterDNS is the default address of the DNS Service: kubeadm uses the tenth
// address of the range of Services, 10.96.0.0/12.
var usualClusterDNS = netip.AddrFrom4([4]byte{10, 96, 0, 10})

// ReadNode reads a node's resolv.conf. Problems are lines that have no effect.
func ReadNode(file string) (*resolvconf.Config, []resolvconf.Problem, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	config, problems := dnsconfig.ParseNode(string(text))
	return &config, problems, nil
}

// Domains returns the cluster domains without the trailing dot. The first is the one in
// the Pods' search lists.
func (i *Inspector) Domains() (domains []string) {
	for _, zone := range i.settings.DNS.Zones {
		domains = append(domains, strings.TrimSuffix(zone, "."))
	}
	return domains
}

// clusterDNS returns the nameserver addresses of Pods, from the node's settings or else
// from the DNS Service; none if they are unknown.
func (i *Inspector) clusterDNS(v *cluster.View, n NodeSettings) []netip.Addr {
	if len(n.ClusterDNS) > 0 {
		return n.ClusterDNS
	}
	if s := v.Service(i.dnsService()); s != nil {
		return s.ClusterIPs
	}
	return nil
}

// AssumedDNS returns the address that Pods are assumed to query, and reports whether it
// is assumed because the actual address is unknown.
func (i *Inspector) AssumedDNS(n NodeSettings) (addr netip.Addr, assumed bool) {
	i.store.View(func(v *cluster.View) { assumed = len(i.clusterDNS(v, n)) == 0 })
	return usualClusterDNS, assumed
}

// dnsService returns the key of the Service of the cluster DNS.
func (i *Inspector) dnsService() cluster.Key {
	ns, name, _ := strings.Cut(i.settings.DNS.NameServer.Service, "/")
	return cluster.Key{Namespace: ns, Name: name}
}

// node returns the settings of the node that a Subject's Pods run on, as far as they
// are known.
func (i *Inspector) node(v *cluster.View, s *dnsconfig.Subject, n NodeSettings) dnsconfig.NodeSettings {
	node := dnsconfig.NodeSettings{
		ResolvConf:     n.ResolvConf,
		Unknown:        n.ResolvConf == nil,
		ClusterDNS:     i.clusterDNS(v, n),
		AutopathSuffix: strings.TrimSuffix(i.settings.DNS.Autopath.Suffix, "."),
	}
	if len(node.ClusterDNS) == 0 {
		node.ClusterDNS = []netip.Addr{usualClusterDNS}
	}
	if domains := i.Domains(); len(domains) > 0 {
		node.ClusterDomain = domains[0]
	}
	if s.Pod == nil || s.Pod.Node == "" {
		return node
	}
	node.Hostname = s.Pod.Node
	if known := v.Node(s.Pod.Node); known != nil {
		node.Addrs = slices.Clone(known.Addresses)
	}
	return node
}

// Subject returns the Pod or workload that a reference names.
func (i *Inspector) Subject(r dnsconfig.Reference) (s dnsconfig.Subject, err error) {
	i.store.View(func(v *cluster.View) { s, err = r.Find(v) })
	return s, err
}

// SubjectIn reads manifests and returns the Pod or workload that a reference names, or
// their only one if r is nil.
func SubjectIn(f source.Files, r *dnsconfig.Reference) (s dnsconfig.Subject, report manifest.Report, err error) {
	store := cluster.NewStore()
	report, err = source.ReadFiles(f, store)
	if err == nil {
		store.View(func(v *cluster.View) { s, err = chosen(v, r) })
	}
	return s, report, err
}

// OnlySubject returns the only Pod or workload of the cluster.
func (i *Inspector) OnlySubject() (s dnsconfig.Subject, err error) {
	i.store.View(func(v *cluster.View) { s, err = chosen(v, nil) })
	return s, err
}

// chosen returns the Pod or workload that a reference names, or the only one if r is
// nil.
func chosen(v *cluster.View, r *dnsconfig.Reference) (dnsconfig.Subject, error) {
	all := dnsconfig.Subjects(v)
	switch {
	case r != nil:
		return r.Find(v)
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return dnsconfig.Subject{}, errors.New("there are no Pods and no workloads")
	}
	return dnsconfig.Subject{}, fmt.Errorf("there are %s; name one of them", dnsconfig.JoinSubjects(all))
}

// ResolvConf is a Pod's resolv.conf, its hostname, and the problems with them.
type ResolvConf struct {
	dnsconfig.Resolution
	Hostname dnsconfig.Hostname
	// Refused are the API server's errors for the Pod.
	Refused []*dnsconfig.FieldError
	// NotStarted is the reason why the Pod does not start; nil if it does.
	NotStarted error
}

// ResolvConf computes the resolv.conf and the hostname of a Subject's Pods.
func (i *Inspector) ResolvConf(s *dnsconfig.Subject, n NodeSettings) (r ResolvConf) {
	i.store.View(func(v *cluster.View) {
		pod, node := s.Settings(), i.node(v, s, n)
		r.Resolution = dnsconfig.Resolve(pod, node)
		r.Warnings = append(dnsconfig.CheckNode(node), r.Warnings...)
		r.Refused = dnsconfig.Validate(pod)
		r.Hostname, r.NotStarted = dnsconfig.HostnameOf(pod, node)
	})
	return r
}

// ServiceEnv computes the environment variables for Services of a Subject's Pods.
func (i *Inspector) ServiceEnv(s *dnsconfig.Subject) (e serviceenv.Environment) {
	i.store.View(func(v *cluster.View) { e = serviceenv.Compute(v, s.Namespace, s.Spec) })
	return e
}
