package settings

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// Webhook is the section of the admission webhook.
type Webhook struct {
	Listen string `yaml:"listen"`
	// Service is the webhook's address for the API server, as namespace/name. The
	// Secret in the same namespace and the configurations that register the webhook
	// have the same name.
	Service string `yaml:"service"`
	// ClusterDNS are the addresses of the cluster DNS. NodeDNS are those of the agent
	// on each node; Pods with the webhook's policy query them first.
	ClusterDNS []string `yaml:"clusterDNS"`
	NodeDNS    []string `yaml:"nodeDNS"`
	// Timeout limits one review. MaxInFlight is the highest number of reviews at once.
	Timeout     key.Duration `yaml:"timeout"`
	MaxInFlight int          `yaml:"maxInFlight"`
	// CertificateLife is the time for which a certificate is valid.
	CertificateLife key.Duration `yaml:"certificateLife"`
	// Deny and Ignore are rules; findings of other rules are warnings.
	Deny   []string `yaml:"deny"`
	Ignore []string `yaml:"ignore"`
}

// DefaultWebhook returns the section of a file that lacks it.
func DefaultWebhook() Webhook {
	return Webhook{
		Listen: "127.0.0.1:8443", Service: "kube-system/portolan-webhook", Timeout: key.Duration(time.Second),
		MaxInFlight: 32, CertificateLife: key.Duration(90 * 24 * time.Hour),
	}
}

// maxReviewTime is the longest time that API servers wait for a review
// (admissionregistration.k8s.io/v1, timeoutSeconds).
const maxReviewTime = 30 * time.Second

// Compile checks the section, except for the checks in WebhookKeys, and returns the
// webhook's configuration. domain is the cluster domain. suffix is the suffix of names
// that carry a search path, or the root if that is off. Its error is a *key.Error.
func (w *Webhook) Compile(domain, suffix dnsname.Name) (admission.Config, error) {
	made := admission.Config{
		ClusterDomain:   strings.TrimSuffix(domain.String(), "."),
		Timeout:         time.Duration(w.Timeout),
		MaxInFlight:     w.MaxInFlight,
		CertificateLife: time.Duration(w.CertificateLife),
		Deny:            w.Deny,
		Ignore:          w.Ignore,
		AutopathSuffix:  strings.TrimSuffix(suffix.String(), "."),
	}
	var err error
	if made.Listen, err = netip.ParseAddrPort(w.Listen); err != nil {
		return made, key.Errorf("webhook.listen", "%q is not an address and port, such as 0.0.0.0:8443", w.Listen)
	}
	if made.Service.Namespace, made.Service.Name, err = key.Object("webhook.service", w.Service); err != nil {
		return made, err
	}
	if err := w.compileNameservers(&made); err != nil {
		return made, err
	}
	if t := time.Duration(w.Timeout); t <= 0 || t > maxReviewTime {
		return made, key.Errorf("webhook.timeout", "%s is not more than 0s and at most %s", t, maxReviewTime)
	}
	return made, w.checkRules()
}

// compileNameservers compiles the name servers of Pods.
func (w *Webhook) compileNameservers(m *admission.Config) error {
	for i, text := range w.ClusterDNS {
		addr, err := admission.ParseNameserver(text)
		if err != nil {
			return key.ItemErrorf("webhook.clusterDNS", i, "%v", err)
		}
		m.ClusterDNS = append(m.ClusterDNS, addr)
	}
	if len(w.ClusterDNS) > dnsconfig.MaxNameservers {
		return key.Errorf(
			"webhook.clusterDNS", "%d addresses; a Pod has at most %d", len(w.ClusterDNS), dnsconfig.MaxNameservers,
		)
	}
	for i, text := range w.NodeDNS {
		addr, err := admission.ParseNameserver(text)
		if err != nil {
			return key.ItemErrorf("webhook.nodeDNS", i, "%v", err)
		}
		if slices.Contains(m.ClusterDNS, addr) {
			return key.ItemErrorf(
				"webhook.nodeDNS", i, "%s is in webhook.clusterDNS too; the agents' addresses must differ", addr,
			)
		}
		m.NodeDNS = append(m.NodeDNS, addr)
	}
	if n := len(w.NodeDNS) + len(w.ClusterDNS); len(w.NodeDNS) > 0 && n > dnsconfig.MaxNameservers {
		return key.Errorf(
			"webhook.nodeDNS", "%d addresses with webhook.clusterDNS; a Pod has at most %d", n, dnsconfig.MaxNameservers,
		)
	}
	return nil
}

func (w *Webhook) checkRules() error {
	known := func(rule string) bool {
		return slices.ContainsFunc(admission.Rules(), func(r lint.Rule) bool { return r.ID == rule })
	}
	for _, list := range []struct {
		key   string
		rules []string
	}{{"webhook.deny", w.Deny}, {"webhook.ignore", w.Ignore}} {
		for i, rule := range list.rules {
			if !known(rule) {
				return key.ItemErrorf(list.key, i, "%q is not a rule of the webhook; docs/webhook.md lists them", rule)
			}
		}
	}
	for i, rule := range w.Ignore {
		if slices.Contains(w.Deny, rule) {
			return key.ItemErrorf("webhook.ignore", i, "%s is in webhook.deny, too", rule)
		}
	}
	return nil
}
