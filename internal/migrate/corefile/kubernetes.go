package corefile

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// kubernetesVerdicts are on options of the plugin kubernetes, some of which are
// of former releases.
var kubernetesVerdicts = map[string]verdict{
	"apiserver_max_inflight": {Done, "there is one watch for each kind of object, or for each kind and Namespace of kubernetes.namespaces"},
	"endpoint":               {Missing, "the API is named by a kubeconfig file: write one, and name it in kubernetes.kubeconfig"},
	"ignore":                 {Missing, "a Service with a cluster IP has its address, whatever its endpoints"},
	"multicluster":           {Missing, "ServiceImports have no names"},
	"namespace_labels":       {Missing, "Namespaces are chosen by name, in kubernetes.namespaces: all are served"},
	"noendpoints":            {Missing, "endpoints are always read, and have names"},
	"resyncperiod":           {Done, "watches are never read again without need"},
	"startup_timeout":        {Done, "it serves at once, and answers SERVFAIL to what is not loaded yet"},
	"tls":                    {Missing, "the API is named by a kubeconfig file, which has its certificates: write one, and name it in kubernetes.kubeconfig"},
	"transfer":               {Missing, "not translated; transfer in docs/configuration.md says who may have the zones"},
	"upstream":               {Done, "names that ExternalName Services lead to are asked for, of the routes of forward"},
	"zonal":                  {Missing, "zones of the topology have no names"},
}

func (t *translator) kubernetes(b *block, s *statement) {
	if t.cluster != nil {
		if !sameStatement(t.cluster, s) {
			t.note(Missing, s, "there is one cluster, that of line %d", t.cluster.line)
		}
		return
	}
	t.cluster = s
	t.Config.DNS.Pods = "disabled" // unless it says otherwise
	for i := range s.options {
		if o := &s.options[i]; !t.kubernetesOption(o) {
			t.judge(o, kubernetesVerdicts)
		}
	}
	t.clusterZones(b, s)
}

// kubernetesOption translates an option that becomes a setting.
func (t *translator) kubernetesOption(o *statement) bool {
	c := &t.Config
	switch o.name {
	case "pods":
		c.DNS.Pods = t.one(o)
		if !slices.Contains([]string{"disabled", "insecure", "verified"}, c.DNS.Pods) {
			t.fail(o, "%q is not disabled, insecure or verified", c.DNS.Pods)
		}
		t.from(o, "dns.pods")
	case "ttl":
		c.DNS.TTL = t.number(o, t.one(o), 0, 3600)
		t.from(o, "dns.ttl")
	case "endpoint_pod_names":
		c.DNS.EndpointPodNames = true
		t.from(o, "dns.endpointPodNames")
	case "namespaces":
		if len(o.args) == 0 {
			t.fail(o, "no Namespace")
		}
		for _, ns := range o.args {
			if !slices.Contains(c.Kubernetes.Namespaces, ns) {
				c.Kubernetes.Namespaces = append(c.Kubernetes.Namespaces, ns)
			}
		}
		t.from(o, "kubernetes.namespaces")
	case "labels":
		c.Kubernetes.ServiceSelector = strings.Join(o.args, " ")
		t.from(o, "kubernetes.serviceSelector")
		t.note(Differs, o, "it selects Services alone, not EndpointSlices and Pods")
	case "kubeconfig":
		t.kubeconfig(o)
	case "apiserver_qps":
		t.requests(o, "kubernetes.qps", &c.Kubernetes.QPS)
	case "apiserver_burst":
		t.requests(o, "kubernetes.burst", &c.Kubernetes.Burst)
	case "fallthrough":
		t.fallthroughOption(o)
	default:
		return false
	}
	return true
}

func (t *translator) kubeconfig(o *statement) {
	if len(o.args) == 0 || len(o.args) > 2 {
		t.fail(o, "a file is wanted, and perhaps a context")
		return
	}
	t.Config.Kubernetes.Kubeconfig = o.args[0]
	t.from(o, "kubernetes.kubeconfig")
	if len(o.args) == 2 {
		t.note(Missing, o, "the current context of the file counts, and not %s", o.args[1])
	}
}

// requests are so many a second, or at once; 0 is the default.
func (t *translator) requests(o *statement, key string, to *int) {
	n, err := strconv.ParseFloat(t.one(o), 32)
	switch {
	case err != nil || !(n >= 0) || n > math.MaxInt32:
		t.fail(o, "%q is not a number of requests", o.args)
	case n > 0:
		*to = int(math.Ceil(n))
		t.from(o, key)
	}
}

// fallthroughOption is about names that are not there. Reverse names that are in
// no range of the cluster are asked of others anyway.
func (t *translator) fallthroughOption(o *statement) {
	t.fallen = []string{""}
	if len(o.args) > 0 {
		t.fallen = t.zonesOf(nil, o, o.args)
	}
	for _, z := range t.fallen {
		if _, reverse := isReverse(z); !reverse {
			t.note(Missing, o, "the cluster's names that are not there are denied, and nobody else is asked for them; only reverse names fall through")
			return
		}
	}
}

// clusterZones are those that the cluster's names are in, and its ranges.
func (t *translator) clusterZones(b *block, s *statement) {
	texts := s.args
	if len(texts) == 0 {
		texts = b.texts
	}
	t.Config.DNS.Zones = nil
	t.from(s, "dns.zones")
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Bits() > 0 {
			t.addRange(s, prefix.Masked())
			continue
		}
		for _, z := range t.zonesOf(b, s, []string{text}) {
			prefix, reverse := isReverse(z)
			switch {
			case !reverse && z == "":
				t.fail(s, "the root can't be a cluster's zone; name a zone, such as cluster.local")
			case !reverse && !slices.Contains(t.Config.DNS.Zones, z):
				t.Config.DNS.Zones = append(t.Config.DNS.Zones, z)
			case reverse && prefix.Bits() == 0:
				t.whole = true
			case reverse:
				t.addRange(s, prefix)
			}
		}
	}
	if len(t.Config.DNS.Zones) == 0 {
		t.fail(s, "no zone that is not one of reverse names")
		t.Config.DNS.Zones = []string{"cluster.local"}
	}
}

// addRange adds addresses whose reverse names nobody else is asked for; without
// it others are.
func (t *translator) addRange(s *statement, prefix netip.Prefix) {
	if t.falls(prefix) || slices.Contains(t.Config.DNS.ServiceCIDRs, prefix.String()) {
		return
	}
	t.Config.DNS.ServiceCIDRs = append(t.Config.DNS.ServiceCIDRs, prefix.String())
	t.from(s, "dns.serviceCIDRs")
}

// falls reports whether reverse names in a range fall through.
func (t *translator) falls(prefix netip.Prefix) bool {
	return slices.ContainsFunc(t.fallen, func(z string) bool {
		of, reverse := isReverse(z)
		return z == "" || reverse && of.Overlaps(prefix) && of.Bits() <= prefix.Bits()
	})
}

// noteUnsaid notes what CoreDNS does by default, and is not done here.
func (t *translator) noteUnsaid() {
	if t.cluster == nil || len(t.Config.DNS.Forward.Routes) == 0 {
		return
	}
	if t.whole && len(t.fallen) == 0 {
		t.note(Differs, t.cluster, "reverse names that nobody knows are asked of others, but for those in dns.serviceCIDRs and dns.podCIDRs: say what ranges are the cluster's")
	}
	if t.cache == nil {
		t.note(Differs, t.first["forward"], "answers are kept for as long as their TTLs say; with dns.cache.size 0 they are not")
	}
}
