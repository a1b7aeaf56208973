package corefile

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// kubernetesNotes are the notes on options of the plugin kubernetes, including those of
// former releases.
var kubernetesNotes = map[string]pluginNote{
	"apiserver_max_inflight": {Done, "there is one watch per kind, or per kind and Namespace in kubernetes.namespaces"},
	"endpoint":               {Missing, "the API server must be in a kubeconfig file, set in kubernetes.kubeconfig"},
	"ignore":                 {Missing, "a Service with a cluster IP has an address regardless of its endpoints"},
	"namespace_labels":       {Missing, "Namespaces are selected by name, in kubernetes.namespaces: all are served"},
	"noendpoints":            {Missing, "endpoints are always read and served"},
	"resyncperiod":           {Done, "there are no periodic resyncs"},
	"startup_timeout": {
		Done, "the server starts immediately, and answers SERVFAIL for names that are not loaded yet",
	},
	"tls": {
		Missing, "the API server and its certificates must be in a kubeconfig file, set in kubernetes.kubeconfig",
	},
	"transfer": {Missing, "not translated; set transfer, see docs/configuration.md"},
	"upstream": {Done, "targets of ExternalName Services are resolved with the routes of dns.forward"},
	"zonal":    {Missing, "there are no names for topology zones"},
}

func (t *translator) kubernetes(b *block, s *statement) {
	if t.cluster != nil {
		if !sameStatement(t.cluster, s) {
			t.note(Missing, s, "there is one cluster: line %d applies", t.cluster.line)
		}
		return
	}
	t.cluster = s
	t.Config.DNS.Pods = "disabled" // the default of the plugin
	for i := range s.options {
		if o := &s.options[i]; !t.kubernetesOption(o) {
			t.noteOption(o, kubernetesNotes)
		}
	}
	t.setClusterZones(b, s)
}

// kubernetesOption translates an option that becomes a setting.
func (t *translator) kubernetesOption(o *statement) bool {
	c := &t.Config
	switch o.name {
	case "pods":
		c.DNS.Pods = t.oneArg(o)
		if !slices.Contains([]string{"disabled", "insecure", "verified"}, c.DNS.Pods) {
			t.fail(o, "%q is not disabled, insecure or verified", c.DNS.Pods)
		}
		t.setOrigin(o, "dns.pods")
	case "ttl":
		c.DNS.TTL = t.number(o, t.oneArg(o), 0, 3600)
		t.setOrigin(o, "dns.ttl")
	case "endpoint_pod_names":
		c.DNS.EndpointPodNames = true
		t.setOrigin(o, "dns.endpointPodNames")
	case "namespaces":
		if len(o.args) == 0 {
			t.fail(o, "must have a Namespace")
		}
		for _, ns := range o.args {
			if !slices.Contains(c.Kubernetes.Namespaces, ns) {
				c.Kubernetes.Namespaces = append(c.Kubernetes.Namespaces, ns)
			}
		}
		t.setOrigin(o, "kubernetes.namespaces")
	case "labels":
		c.Kubernetes.ServiceSelector = strings.Join(o.args, " ")
		t.setOrigin(o, "kubernetes.serviceSelector")
		t.note(Differs, o, "it selects Services only, not EndpointSlices and Pods")
	case "kubeconfig":
		t.kubeconfig(o)
	case "apiserver_qps":
		t.setRate(o, "kubernetes.qps", &c.Kubernetes.QPS)
	case "apiserver_burst":
		t.setRate(o, "kubernetes.burst", &c.Kubernetes.Burst)
	case "fallthrough":
		t.fallthroughOption(o)
	case "multicluster":
		t.multicluster(o)
	default:
		return false
	}
	return true
}

func (t *translator) kubeconfig(o *statement) {
	if len(o.args) == 0 || len(o.args) > 2 {
		t.fail(o, "must have a file, and optionally a context")
		return
	}
	t.Config.Kubernetes.Kubeconfig = o.args[0]
	t.setOrigin(o, "kubernetes.kubeconfig")
	if len(o.args) == 2 {
		t.note(Missing, o, "the file's current context is used, not %s", o.args[1])
	}
}

// setRate sets a number of requests per second, or at once. 0 means the default.
func (t *translator) setRate(o *statement, key string, to *int) {
	n, err := strconv.ParseFloat(t.oneArg(o), 32)
	switch {
	case err != nil || !(n >= 0) || n > math.MaxInt32:
		t.fail(o, "%q is not a number of requests", o.args)
	case n > 0:
		*to = int(math.Ceil(n))
		t.setOrigin(o, key)
	}
}

// fallthroughOption translates the option fallthrough. Reverse names outside the
// cluster's ranges are always forwarded.
func (t *translator) fallthroughOption(o *statement) {
	t.fallthroughZones = []string{""}
	if len(o.args) > 0 {
		t.fallthroughZones = t.zonesOf(nil, o, o.args)
	}
	for _, z := range t.fallthroughZones {
		if _, reverse := isReverse(z); !reverse {
			t.note(Missing, o, "queries for the cluster's zones are never forwarded; only reverse names fall through")
			return
		}
	}
}

// setClusterZones sets the cluster's zones and, from its reverse zones, its address
// ranges.
func (t *translator) setClusterZones(b *block, s *statement) {
	texts := s.args
	if len(texts) == 0 {
		texts = b.texts
	}
	t.Config.DNS.Zones = nil
	t.setOrigin(s, "dns.zones")
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Bits() > 0 {
			t.appendRange(s, prefix.Masked())
			continue
		}
		for _, z := range t.zonesOf(b, s, []string{text}) {
			prefix, reverse := isReverse(z)
			switch {
			case !reverse && z == "":
				t.fail(s, "the root cannot be a cluster zone; write a zone such as cluster.local")
			case z == t.Config.DNS.Multicluster: // which is listed beside the cluster's
			case !reverse && !slices.Contains(t.Config.DNS.Zones, z):
				t.Config.DNS.Zones = append(t.Config.DNS.Zones, z)
			case reverse && prefix.Bits() == 0:
				t.allReverse = true
			case reverse:
				t.appendRange(s, prefix)
			}
		}
	}
	if len(t.Config.DNS.Zones) == 0 {
		t.fail(s, "must have a zone that is not a reverse zone")
		t.Config.DNS.Zones = []string{"cluster.local"}
	}
}

// appendRange adds a range whose reverse names are not forwarded, unless they fall
// through.
func (t *translator) appendRange(s *statement, prefix netip.Prefix) {
	if t.fallsThrough(prefix) || slices.Contains(t.Config.DNS.ServiceCIDRs, prefix.String()) {
		return
	}
	t.Config.DNS.ServiceCIDRs = append(t.Config.DNS.ServiceCIDRs, prefix.String())
	t.setOrigin(s, "dns.serviceCIDRs")
}

// fallsThrough reports whether queries for reverse names in a range fall through.
func (t *translator) fallsThrough(prefix netip.Prefix) bool {
	return slices.ContainsFunc(t.fallthroughZones, func(z string) bool {
		of, reverse := isReverse(z)
		return z == "" || reverse && of.Overlaps(prefix) && of.Bits() <= prefix.Bits()
	})
}

// noteDefaults adds notes on defaults of CoreDNS that differ.
func (t *translator) noteDefaults() {
	if t.cluster == nil || len(t.Config.DNS.Forward.Routes) == 0 {
		return
	}
	if t.allReverse && len(t.fallthroughZones) == 0 {
		t.note(Differs, t.cluster, "queries for unknown reverse names are forwarded, except for addresses in "+
			"dns.serviceCIDRs and dns.podCIDRs: set these to the cluster's ranges")
	}
	if t.cache == nil {
		t.note(Differs, t.first["forward"], "answers are cached for their TTL; dns.cache.size: 0 disables this")
	}
}
