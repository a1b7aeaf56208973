package dnsconfig

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// TestValidate uses the error texts of the API server of Kubernetes 1.36.
func TestValidate(t *testing.T) {
	tests := map[string]struct {
		pod  PodSettings
		want []string
	}{
		"nothing set":                 {PodSettings{}, nil},
		"all policies of Kubernetes":  {PodSettings{Policy: ClusterFirstWithHostNet, HostNetwork: true, OS: Windows}, nil},
		"the KEP's policy pass":       {PodSettings{Policy: "clusterFirstWithAutopath"}, nil},
		"an unknown policy":           {PodSettings{Policy: "<near>"}, []string{`spec.dnsPolicy: Unsupported value: "\u003cnear\u003e": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`}},
		"policies are case-sensitive": {PodSettings{Policy: "none"}, []string{`spec.dnsPolicy: Unsupported value: "none": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`}},
		"None needs dnsConfig":        {PodSettings{Policy: None}, []string{"spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"}},
		"None needs a nameserver, and nothing else is looked at": {PodSettings{Policy: None, DNSConfig: &DNSConfig{Options: options("")}}, []string{
			"spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"}},
		"Custom is held to the same": {PodSettings{Policy: Custom, Path: "spec.template.spec"}, []string{
			"spec.template.spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"}},
		"four nameservers, one of them none": {PodSettings{DNSConfig: &DNSConfig{Nameservers: []string{"::1", "::2", "dns", "::4"}}}, []string{
			`spec.dnsConfig.nameservers: Invalid value: ["::1","::2","dns","::4"]: must not have more than 3 nameservers`,
			`spec.dnsConfig.nameservers[2]: Invalid value: "dns": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		"nameservers of ambiguous forms": {PodSettings{DNSConfig: &DNSConfig{Nameservers: []string{"010.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0"}}}, []string{
			`spec.dnsConfig.nameservers[0]: Invalid value: "010.0.0.1": must not have leading 0s`,
			`spec.dnsConfig.nameservers[1]: Invalid value: "::ffff:10.0.0.1": must not be an IPv4-mapped IPv6 address`,
			`spec.dnsConfig.nameservers[2]: Invalid value: "fe80::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		"search domains that are good": {PodSettings{DNSConfig: &DNSConfig{Searches: []string{".", "a.", "_tcp.a_b.example", strings.Repeat("x", 70)}}}, nil},
		"search domains that are not": {PodSettings{DNSConfig: &DNSConfig{Searches: []string{"A", ""}}}, []string{
			`spec.dnsConfig.searches[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')`,
			`spec.dnsConfig.searches[1]: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')`}},
		"32 search domains": {PodSettings{DNSConfig: &DNSConfig{Searches: names(32, 5)}}, nil},
		"33 search domains": {PodSettings{DNSConfig: &DNSConfig{Searches: slices.Repeat([]string{"a"}, 33)}}, []string{
			`spec.dnsConfig.searches: Invalid value: ["a"` + strings.Repeat(`,"a"`, 32) + `]: must not have more than 32 search paths`}},
		"2,048 characters": {PodSettings{DNSConfig: &DNSConfig{Searches: append(names(8, 227), strings.Repeat("x", 224))}}, nil},
		"2,049 characters": {PodSettings{DNSConfig: &DNSConfig{Searches: append(slices.Repeat([]string{strings.Repeat("x", 227)}, 8), strings.Repeat("x", 225))}}, []string{
			`spec.dnsConfig.searches: Invalid value: [` + strings.Repeat(`"`+strings.Repeat("x", 227)+`",`, 8) + `"` + strings.Repeat("x", 225) + `"]: must not have more than 2048 characters (including spaces) in the search list`}},
		"254 characters in one": {PodSettings{DNSConfig: &DNSConfig{Searches: []string{strings.Repeat("x", 254)}}}, []string{
			`spec.dnsConfig.searches[0]: Invalid value: "` + strings.Repeat("x", 254) + `": must be no more than 253 characters`}},
		"an option needs a name": {PodSettings{DNSConfig: &DNSConfig{Options: []resolvconf.Option{{Name: "a"}, {Value: "1"}}}}, []string{
			`spec.dnsConfig.options[1]: Required value: must not be empty`}},
		"hostname and subdomain": {PodSettings{Hostname: "a.b", Subdomain: "-"}, []string{
			`spec.hostname: Invalid value: "a.b": must not contain dots`,
			`spec.subdomain: Invalid value: "-": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}},
		"a long hostname": {PodSettings{Hostname: strings.Repeat("h", 64)}, []string{`spec.hostname: Invalid value: "` + strings.Repeat("h", 64) + `": must be no more than 63 characters`}},
		"hostnameOverride": {PodSettings{HostnameOverride: new(strings.Repeat("h", 65)), HostNetwork: true, SetHostnameAsFQDN: true}, []string{
			"spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
			"spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
			"spec.hostnameOverride: Too long: may not be more than 64 bytes"}},
		"a hostnameOverride that is empty": {PodSettings{HostnameOverride: new("")}, []string{
			`spec.hostnameOverride: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
		"an unknown system": {PodSettings{OS: "plan9"}, []string{`spec.os: Unsupported value: "plan9": supported values: "linux", "windows"`}},
		"in the API server's order": {PodSettings{Policy: "x", OS: "y", Subdomain: "a.b", DNSConfig: &DNSConfig{Nameservers: []string{""}}}, []string{
			`spec.dnsPolicy: Unsupported value: "x": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`,
			`spec.dnsConfig.nameservers[0]: Invalid value: "": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`spec.subdomain: Invalid value: "a.b": must not contain dots`,
			`spec.os: Unsupported value: "y": supported values: "linux", "windows"`}},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			if got := texts(Validate(test.pod)); !slices.Equal(got, test.want) {
				t.Errorf("Validate(%+v) =\n%s\nwant\n%s", test.pod, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func texts(errs []*FieldError) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Error())
	}
	return list
}

// TestValidateAgreesWithTheLibrary compares the errors for valid and invalid names and
// addresses, word for word, with those of the Kubernetes library.
func TestValidateAgreesWithTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 2))
	spec := field.NewPath("spec")
	errors := 0
	for range 20000 {
		name, addr := spell(random, "ab0-_.A ü", 6), spell(random, "01209.:fF%.", 14)
		if random.IntN(100) == 0 {
			name = strings.Repeat("a", 60) + "." + strings.Repeat("b", 189+random.IntN(8))
		}
		if random.IntN(2) == 0 {
			addr = podrand.Pick(random, "", "::ffff:", "::", "2001:db8::") + podrand.Pick(random, "10", "010", "000", "256", "0000") + "." + podrand.Pick(random, "0.0.1", "00.0.1", "1.2", "09.08.7", "1.2.3.4", "0x1.2.3")
		}
		p := PodSettings{
			Hostname: name, Subdomain: name, HostnameOverride: &name,
			DNSConfig: &DNSConfig{Searches: []string{name}, Nameservers: []string{addr}, Options: options("")},
		}
		want := validation.IsValidIPForLegacyField(spec.Child("dnsConfig", "nameservers").Index(0), addr, true, nil)
		if name != "." {
			search := strings.TrimSuffix(name, ".")
			want = append(want, invalid(spec.Child("dnsConfig", "searches").Index(0), search, validation.IsDNS1123SubdomainWithUnderscore(search))...)
		}
		want = append(want, field.Required(spec.Child("dnsConfig", "options").Index(0), "must not be empty"))
		if len(name) > 64 {
			want = append(want, field.TooLong(spec.Child("hostnameOverride"), "", 64))
		}
		want = append(want, invalid(spec.Child("hostnameOverride"), name, validation.IsDNS1123Subdomain(name))...)
		if name != "" {
			want = append(want, invalid(spec.Child("hostname"), name, validation.IsDNS1123Label(name))...)
			want = append(want, invalid(spec.Child("subdomain"), name, validation.IsDNS1123Label(name))...)
		}
		var wantTexts []string
		for _, err := range want {
			wantTexts = append(wantTexts, err.Error())
		}
		got := texts(Validate(p))
		if !slices.Equal(got, wantTexts) {
			t.Fatalf("Validate with the name %q and the address %q =\n%s\nwant\n%s", name, addr, strings.Join(got, "\n"), strings.Join(wantTexts, "\n"))
		}
		errors += len(got)
	}
	if errors < 20000 {
		t.Errorf("%d errors", errors)
	}
	policy := field.NotSupported(spec.Child("dnsPolicy"), new(corev1.DNSPolicy("<x>")), []corev1.DNSPolicy{
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone})
	if got := texts(Validate(PodSettings{Policy: "<x>"})); !slices.Equal(got, []string{policy.Error()}) {
		t.Errorf("Validate of the policy <x> = %q, want %q", got, policy.Error())
	}
}

func invalid(path *field.Path, value string, details []string) field.ErrorList {
	var list field.ErrorList
	for _, detail := range details {
		list = append(list, field.Invalid(path, value, detail))
	}
	return list
}

// spell returns up to n random characters of the given ones.
func spell(random *rand.Rand, characters string, n int) string {
	all := []rune(characters)
	var b strings.Builder
	for range random.IntN(n + 1) {
		b.WriteRune(podrand.Pick(random, all...))
	}
	return b.String()
}
