package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/pod/lint"
)

// setFQDN is a PodSpec with its FQDN as hostname, in a subdomain.
const setFQDN = `{"setHostnameAsFQDN": true, "subdomain": "sub"}`

// named is an object of a name, with a spec.
func named(name, spec string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": %s}`, name, spec)
}

// template is a spec with a Pod's, and more.
func templateOf(podSpec, more string) string {
	return fmt.Sprintf(`{%s"template": {"spec": %s}}`, more, podSpec)
}

// letters is a name of so many.
func letters(n int) string { return strings.Repeat("n", n) }

func manySearches(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"s%d.example"`, i))
	}
	return `{"dnsPolicy": "ClusterFirst", "dnsConfig": {"searches": [` + strings.Join(list, ", ") + `]}}`
}

// older are the warnings of many searches.
var older = []string{"pod-dns-older-limit: ", "pod-dns-older-limit: ", "pod-dns-older-limit: ", "pod-dns-older-limit: "}

// The suffix of FQDNs in these tests is .sub.shop.svc.cluster.local, of 27
// octets: 37 are left for the hostname.
var validations = map[string]struct {
	resource metav1.GroupVersionResource
	object   string
	want     []string // the beginning of each finding
}{
	"a Pod that fits":          {pods, named(letters(37), setFQDN), nil},
	"a Pod that does not":      {pods, named(letters(38), setFQDN), []string{"pod-fqdn-too-long: spec.setHostnameAsFQDN: failed to construct FQDN"}},
	"a Pod without FQDN":       {pods, named(letters(63), `{"subdomain": "sub"}`), nil},
	"a Pod of the node":        {pods, named(letters(63), `{"setHostnameAsFQDN": true, "subdomain": "sub", "hostNetwork": true}`), []string{"pod-fqdn-no-effect: spec.setHostnameAsFQDN: ", "pod-host-network-policy: spec.dnsPolicy: "}},
	"a Pod without a name yet": {pods, `{"metadata": {"generateName": "` + letters(33) + `"}, "spec": ` + setFQDN + `}`, []string{"pod-fqdn-too-long: "}},
	"a Deployment that fits":   {apps("deployments"), named(letters(20), templateOf(setFQDN, "")), nil},
	"a Deployment":             {apps("deployments"), named(letters(21), templateOf(setFQDN, "")), []string{"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: "}},
	"a hostname in a template": {apps("deployments"), named(letters(60), templateOf(`{"setHostnameAsFQDN": true, "subdomain": "sub", "hostname": "h"}`, "")), nil},
	"a ReplicaSet that fits":   {apps("replicasets"), named(letters(31), templateOf(setFQDN, "")), nil},
	"a ReplicaSet":             {apps("replicasets"), named(letters(32), templateOf(setFQDN, "")), []string{"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: "}},
	"a DaemonSet that fits":    {apps("daemonsets"), named(letters(31), templateOf(setFQDN, "")), nil},
	"a DaemonSet":              {apps("daemonsets"), named(letters(32), templateOf(setFQDN, "")), []string{"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: "}},
	"a StatefulSet that fits":  {apps("statefulsets"), named(letters(35), templateOf(`{"setHostnameAsFQDN": true}`, `"serviceName": "sub", "replicas": 10, `)), nil},
	"a StatefulSet of eleven":  {apps("statefulsets"), named(letters(35), templateOf(`{"setHostnameAsFQDN": true}`, `"serviceName": "sub", "replicas": 11, `)), []string{"pod-fqdn-too-long: "}},
	"a StatefulSet from ten":   {apps("statefulsets"), named(letters(35), templateOf(`{"setHostnameAsFQDN": true}`, `"serviceName": "sub", "ordinals": {"start": 10}, `)), []string{"pod-fqdn-too-long: "}},
	"a Job that fits":          {batch("jobs"), named(letters(31), templateOf(setFQDN, "")), nil},
	"a Job":                    {batch("jobs"), named(letters(32), templateOf(setFQDN, "")), []string{"pod-fqdn-too-long: spec.template.spec.setHostnameAsFQDN: "}},
	"an indexed Job that fits": {batch("jobs"), named(letters(35), templateOf(setFQDN, `"completionMode": "Indexed", "completions": 10, `)), nil},
	"an indexed Job":           {batch("jobs"), named(letters(35), templateOf(setFQDN, `"completionMode": "Indexed", "completions": 11, `)), []string{"pod-fqdn-too-long: "}},
	"a CronJob that fits":      {batch("cronjobs"), named(letters(22), `{"jobTemplate": {"spec": `+templateOf(setFQDN, "")+`}}`), nil},
	"a CronJob":                {batch("cronjobs"), named(letters(23), `{"jobTemplate": {"spec": `+templateOf(setFQDN, "")+`}}`), []string{"pod-fqdn-too-long: spec.jobTemplate.spec.template.spec.setHostnameAsFQDN: "}},

	"searches that fit":            {pods, named("p", manySearches(29)), older}, // ClusterFirst has three
	"one search too many":          {pods, named("p", manySearches(30)), []string{"pod-dns-limit: spec.dnsConfig.searches: 1 search domain is left out"}},
	"searches in a template":       {apps("deployments"), named("p", templateOf(manySearches(30), "")), []string{"pod-dns-limit: spec.template.spec.dnsConfig.searches: "}},
	"one nameserver too many":      {pods, named("p", `{"dnsConfig": {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}}`), []string{"pod-dns-limit: spec.dnsConfig.nameservers: "}},
	"both in one":                  {apps("deployments"), named(letters(60), templateOf(strings.Replace(manySearches(30), "{", `{"setHostnameAsFQDN": true, "subdomain": "sub", `, 1), "")), []string{"pod-dns-limit: ", "pod-fqdn-too-long: "}},
	"None with many searches":      {pods, named("p", strings.NewReplacer("ClusterFirst", "None", `{"searches`, `{"nameservers": ["192.0.2.1"], "searches`).Replace(manySearches(32))), older},
	"an ExternalName":              {services, named("s", `{"type": "ExternalName", "externalName": "db.example"}`), nil},
	"an address":                   {services, named("s", `{"type": "ExternalName", "externalName": "192.0.2.1"}`), []string{"externalname-address: spec.externalName: 192.0.2.1 is an IP address"}},
	"an address with a dot":        {services, named("s", `{"type": "ExternalName", "externalName": "192.0.2.1."}`), []string{"externalname-address: "}},
	"an address of IPv6":           {services, named("s", `{"type": "ExternalName", "externalName": "2001:db8::1"}`), []string{"externalname-address: "}},
	"an address and no target":     {services, named("s", `{"type": "ClusterIP", "externalName": "192.0.2.1"}`), nil},
	"a ReplicaSet of a Deployment": {apps("replicasets"), strings.Replace(named(letters(60), templateOf(setFQDN, "")), "{", `{"metadata": {"name": "n", "ownerReferences": [{"controller": true}]}, "was": {`, 1) + "}", nil},
	"a Namespace":                  {core("namespaces"), `{"metadata": {"name": "shop"}}`, nil},
	"a Namespace of services":      {core("namespaces"), `{"metadata": {"name": "svc"}}`, []string{"namespace-named-svc: metadata.name: "}},
	"ports without names":          {services, named("s", `{"ports": [{"port": 80}, {"port": 81}]}`), []string{"service-port-names: spec.ports[0]: ", "service-port-names: spec.ports[1]: "}},
	"another kind":                 {metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}, named("n", `{}`), nil},
}

// TestValidate checks that a finding is a warning, a denial or ignored, as its rule is
// configured.
func TestValidate(t *testing.T) {
	begins := func(got, want []string) bool {
		return slices.EqualFunc(got, want, strings.HasPrefix)
	}
	warn, warned := newTestHandler(settings, nil)
	cfg := settings
	cfg.Deny = ruleIDs()
	deny, denied := newTestHandler(cfg, nil)
	cfg = settings
	cfg.Ignore = ruleIDs()
	ignore, ignored := newTestHandler(cfg, nil)
	for claim, tt := range validations {
		t.Run(claim, func(t *testing.T) {
			r := request(tt.resource, "shop", tt.object)
			results := [3]string{ResultUnchanged, ResultUnchanged, ResultUnchanged}
			if len(tt.want) > 0 {
				results = [3]string{ResultWarned, ResultDenied, ResultUnchanged}
			}
			response := ask(t, warn, "/validate", r)
			if !response.Allowed || !begins(response.Warnings, tt.want) {
				t.Errorf("by default: allowed %t, warnings %q, want %q", response.Allowed, response.Warnings, tt.want)
			}
			response = ask(t, deny, "/validate", r)
			var said []string
			if !response.Allowed {
				said = strings.Split(response.Result.Message, "; ")
			}
			if len(response.Warnings) > 0 || len(tt.want) > 0 && (len(said) == 0 || !strings.HasPrefix(said[0], tt.want[0])) || len(tt.want) == 0 && said != nil {
				t.Errorf("denying: %q, warnings %q, want %q", said, response.Warnings, tt.want)
			}
			if response = ask(t, ignore, "/validate", r); !response.Allowed || len(response.Warnings) > 0 {
				t.Errorf("passed over: allowed %t, warnings %q", response.Allowed, response.Warnings)
			}
			for i, s := range []*seen{warned, denied, ignored} {
				if told := s.last(t); !strings.HasSuffix(told, " "+results[i]) {
					t.Errorf("told %q, want %s", told, results[i])
				}
			}
		})
	}
}

// TestValidateOperations checks that updates are reviewed, too, and no other operations.
func TestValidateOperations(t *testing.T) {
	h, _ := newTestHandler(settings, nil)
	for operation, want := range map[admissionv1.Operation]int{admissionv1.Create: 1, admissionv1.Update: 1, admissionv1.Delete: 0, admissionv1.Connect: 0} {
		r := request(services, "shop", named("s", `{"type": "ExternalName", "externalName": "192.0.2.1"}`))
		r.Operation = operation
		if got := ask(t, h, "/validate", r); len(got.Warnings) != want || !got.Allowed {
			t.Errorf("%s: warnings %q, want %d", operation, got.Warnings, want)
		}
	}
	r := request(services, "shop", named("s", `{"type": "ExternalName", "externalName": "192.0.2.1"}`))
	r.SubResource = "status"
	if got := ask(t, h, "/validate", r); len(got.Warnings) != 0 {
		t.Errorf("status: warnings %q, want none", got.Warnings)
	}
}

// TestExistingObjectsAreNotDenied checks that objects that exist already or are created
// by controllers are not denied but warned about, and that deleted ones are ignored.
func TestExistingObjectsAreNotDenied(t *testing.T) {
	const (
		address      = `{"type": "ExternalName", "externalName": "192.0.2.1"}`
		otherAddress = `{"type": "ExternalName", "externalName": "192.0.2.2"}`
		name         = `{"type": "ExternalName", "externalName": "db.example"}`
		ports        = `{"ports": [{"port": 80}, {"port": 81}]}`
	)
	meta := func(more, spec string) string { return `{"metadata": {"name": "s"` + more + `}, "spec": ` + spec + `}` }
	owned := func(kind string) string {
		return fmt.Sprintf(`, "ownerReferences": [{"kind": %q, "name": "o", "controller": true}]`, kind)
	}
	pod, job := named(letters(38), setFQDN), named(letters(32), templateOf(setFQDN, ""))
	with := func(object, more string) string { return strings.Replace(object, `"}`, `"`+more+`}`, 1) }
	cfg := settings
	cfg.Deny = ruleIDs()
	h, _ := newTestHandler(cfg, nil)
	for claim, tt := range map[string]struct {
		resource metav1.GroupVersionResource
		old, new string // old is "" for what is created
		denied   bool
		warnings int
	}{
		"a finalizer goes":               {services, meta(`, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]`, address), meta(`, "deletionTimestamp": "2026-01-01T00:00:00Z"`, address), false, 0},
		"what goes changes":              {services, meta(`, "deletionTimestamp": "2026-01-01T00:00:00Z"`, name), meta(`, "deletionTimestamp": "2026-01-01T00:00:00Z"`, address), false, 0},
		"a label comes":                  {services, meta("", address), meta(`, "labels": {"a": "b"}`, address), false, 1},
		"a Deployment is scaled":         {apps("deployments"), named(letters(21), templateOf(setFQDN, "")), named(letters(21), templateOf(setFQDN, `"replicas": 3, `)), false, 1},
		"as bad as before":               {services, meta("", address), meta("", otherAddress), false, 1},
		"the trouble is new":             {services, meta("", name), meta("", address), true, 0},
		"the trouble ends":               {services, meta("", address), meta("", name), false, 0},
		"it moves":                       {services, meta("", ports), meta("", `{"ports": [{"name": "a", "port": 79}, {"port": 80}, {"port": 81}]}`), false, 2},
		"more comes":                     {services, meta("", ports), meta("", `{"ports": [{"port": 80}, {"port": 81}, {"port": 82}]}`), true, 0},
		"a Pod":                          {pods, "", pod, true, 0},
		"a Pod of an older ReplicaSet":   {pods, "", with(pod, owned("ReplicaSet")), false, 1},
		"a Pod that somebody else owns":  {pods, "", with(pod, strings.Replace(owned("Group"), `, "controller": true`, "", 1)), true, 0},
		"a mirror Pod":                   {pods, "", with(pod, `, "annotations": {"kubernetes.io/config.mirror": "x"}`), false, 1},
		"a Job":                          {batch("jobs"), "", job, true, 0},
		"a Job of a CronJob":             {batch("jobs"), "", with(job, owned("CronJob")), false, 1},
		"a StatefulSet of an operator's": {apps("statefulsets"), "", with(named(letters(60), templateOf(setFQDN, `"serviceName": "sub", `)), owned("Database")), false, 1},
	} {
		r := request(tt.resource, "shop", tt.new)
		if tt.old != "" {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(tt.old)
		}
		got := ask(t, h, "/validate", r)
		if got.Allowed == tt.denied || len(got.Warnings) != tt.warnings {
			t.Errorf("%s: %+v, want denied %t and %d warnings", claim, got, tt.denied, tt.warnings)
		}
	}
}

// TestNotesAreReportedIfDenied: a note is told only where it is denied.
func TestNotesAreReportedIfDenied(t *testing.T) {
	cfg := settings
	cfg.Deny = []string{"b"}
	h, _ := newJudgedHandler(cfg, func(namespace string, _ runtime.Object) []lint.Finding {
		return []lint.Finding{
			{Rule: "a", Severity: lint.Warning, Field: "spec.x", Message: "in " + namespace}, {Rule: "b", Message: "no\nmore"}, {Rule: "c", Message: "a note"},
		}
	})
	got := ask(t, h, "/validate", request(pods, "shop", aPod))
	if got.Allowed || got.Result.Message != "b: no?more" || !slices.Equal(got.Warnings, []string{"a: spec.x: in shop"}) {
		t.Errorf("allowed %t, %+v, warnings %q", got.Allowed, got.Result, got.Warnings)
	}
}

func ruleIDs() (ids []string) {
	for _, r := range Rules() {
		ids = append(ids, r.ID)
	}
	return ids
}
