package app

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// Found is a finding with its position in the manifests.
type Found struct {
	Rule     string        `json:"rule"`
	Severity lint.Severity `json:"severity"`
	// Object is kind and key, such as "service shop/web"; "" for a document that does
	// not name its object.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// File and Line, from 1, are the position; "" and 0 for a cluster read from the
	// API.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// Findings checks the loaded cluster by the wanted rules, and reports the problems of
// its manifests. The findings are ordered by file and line or, without files, by object
// and rule.
func (i *Inspector) Findings(l source.Loaded, n NodeSettings, wanted func(rule string) bool) []Found {
	var all []Found
	i.store.View(func(v *cluster.View) {
		for _, f := range i.rules(v, n).CheckAll() {
			if ignored(l, &f) {
				continue
			}
			found := Found{
				Rule: f.Rule, Severity: f.Severity, Object: f.Object.String(), Field: f.Field, Message: f.Message,
				Fix: f.Fix,
			}
			found.File, found.Line = place(l, &f)
			all = append(all, found)
		}
	})
	all = append(all, inManifests(l, all)...)
	all = slices.DeleteFunc(all, func(f Found) bool { return !wanted(f.Rule) })
	slices.SortStableFunc(
		all, func(a, b Found) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) },
	)
	return all
}

// ignored reports whether an annotation of the object lists the rule as ignored.
func ignored(l source.Loaded, f *lint.Finding) bool {
	for _, list := range l.Annotations(f.Object.Kind, f.Object.Key, lint.IgnoreAnnotation) {
		for rule := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(rule) == f.Rule {
				return true
			}
		}
	}
	return false
}

// place returns the position of a finding. For an EndpointSlice that mirrors legacy
// Endpoints it is the position of its Service. For any other object that no file
// declares, such as the Namespace of objects, it is the position of an object of that
// namespace: GitHub rejects results without a position.
func place(l source.Loaded, f *lint.Finding) (file string, line int) {
	file, line, ok := l.Where(f.Object.Kind, f.Object.Key, f.Field)
	if ok {
		return file, line
	}
	if f.Object.Kind == cluster.KindEndpointSlice {
		name, _, _ := strings.Cut(f.Object.Name, "-mirror-")
		if file, line, ok = l.Where(cluster.KindService, cluster.Key{Namespace: f.Object.Namespace, Name: name}, ""); ok {
			return file, line
		}
	}
	if f.Object.Kind == cluster.KindNamespace {
		return l.Near(f.Object.Name)
	}
	return l.Near(f.Object.Namespace)
}

// inManifests returns the problems of documents as findings, except those that a rule
// reports as well.
func inManifests(l source.Loaded, told []Found) (all []Found) {
	for _, p := range l.Problems {
		if slices.ContainsFunc(told, func(f Found) bool {
			return f.Rule == lint.ClusterIPShared && p.Field == "" && !p.Rejected && f.Object == p.Object
		}) {
			continue
		}
		all = append(all, foundIn(p))
	}
	return all
}

// foundIn returns a problem of a document as a finding.
func foundIn(p manifest.Problem) Found {
	f := Found{
		Rule: lint.ManifestWarning, Severity: lint.Warning, Object: p.Object, Field: p.Field, File: p.File, Line: p.Line,
		Message: strings.ReplaceAll(p.Err.Error(), "\n", " "),
	}
	if p.Rejected {
		f.Rule, f.Severity = lint.ManifestRejected, lint.Error
	}
	return f
}

// Misread returns the documents of the manifests that are not read as they are written, as findings.
func (i *Inspector) Misread() []Found { return Misread(i.loaded.Problems) }

// Misread returns the problems of documents that are not read as they are written, as findings.
func Misread(problems []manifest.Problem) (all []Found) {
	for _, p := range problems {
		if isMisread(p) {
			f := foundIn(p)
			f.Severity = lint.Error
			all = append(all, f)
		}
	}
	return all
}

// isMisread reports whether a document is left out, or a policy lacks what its document says: with a misspelled
// selector it is one for all Pods.
func isMisread(p manifest.Problem) bool {
	isPolicy := p.Kind == cluster.KindNetworkPolicy.String() || p.Kind == cluster.KindClusterNetworkPolicy.String()
	of, _, _ := strings.Cut(p.Field, ".")
	return p.Rejected || isPolicy && of != "" && of != "metadata" && of != "status"
}

// served returns the domains besides the cluster's that the server answers for or has a
// route for, in lower case and without a dot at the end.
func (i *Inspector) served() (domains []string) {
	d := &i.settings.DNS
	all := append([]string{d.Multicluster}, d.External.Zones...)
	for _, z := range d.LocalZones {
		all = append(all, z.Zone)
	}
	for _, r := range d.Forward.Routes {
		all = append(all, r.Suffix)
	}
	for _, domain := range all {
		if domain = strings.ToLower(strings.TrimSuffix(domain, ".")); domain != "" { // one is for all names
			domains = append(domains, domain)
		}
	}
	return domains
}

// rules returns a Linter for the model.
func (i *Inspector) rules(v *cluster.View, n NodeSettings) *lint.Linter {
	c := &lint.Linter{
		View: v, DNSService: i.dnsService(), Observed: i.observed, Served: i.served(), Gateway: i.gateway(), Now: time.Now(),
		Unread: i.unread,
	}
	for _, domain := range i.Domains() {
		c.Domains = append(c.Domains, strings.ToLower(domain))
	}
	nodes := make(map[string]dnsconfig.NodeSettings) // by name; "" if the node is unknown
	c.Node = func(s *dnsconfig.Subject) dnsconfig.NodeSettings {
		name := ""
		if s.Pod != nil {
			name = s.Pod.Node
		}
		node, ok := nodes[name]
		if !ok {
			node = i.node(v, s, n)
			nodes[name] = node
		}
		return node
	}
	return c
}
