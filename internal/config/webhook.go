package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// Bounds of the webhook's settings. API servers wait for 30 s at most.
const (
	maxReviewTime = Duration(30 * time.Second)
)

// compileWebhook comes behind the zones: the first is the cluster's domain.
func (c *Config) compileWebhook(made *Compiled) (err error) {
	w := &c.Webhook
	made.Webhook = admission.Config{
		ClusterDomain:   strings.TrimSuffix(made.DNS.Zone.Zones[0].String(), "."),
		Timeout:         time.Duration(w.Timeout),
		MaxInFlight:     w.MaxInFlight,
		CertificateLife: time.Duration(w.CertificateLife),
		Deny:            w.Deny,
		Ignore:          w.Ignore,
		AutopathSuffix:  suffixOf(made.DNS.Autopath.Suffix),
	}
	if made.Webhook.Listen, err = netip.ParseAddrPort(w.Listen); err != nil {
		return badValue("webhook.listen", "%q is not an address and port, such as 0.0.0.0:8443", w.Listen)
	}
	namespace, name, _ := strings.Cut(w.Service, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return badValue("webhook.service", "%q is not namespace/name", w.Service)
	}
	made.Webhook.Service = admission.ServiceName{Namespace: namespace, Name: name}
	if err := c.compileNameservers(made); err != nil {
		return err
	}
	if w.Timeout <= 0 || w.Timeout > maxReviewTime {
		return badValue("webhook.timeout", "%s is not more than 0s and at most %s", time.Duration(w.Timeout), time.Duration(maxReviewTime))
	}
	return c.checkWebhookRules()
}

// suffixOf is the suffix without its closing dot; "" where names have none, which is
// the KEP's to Pods.
func suffixOf(suffix dnsname.Name) string { return strings.TrimSuffix(suffix.String(), ".") }

// compileNameservers reads whom Pods ask.
func (c *Config) compileNameservers(made *Compiled) error {
	w, m := &c.Webhook, &made.Webhook
	for i, text := range w.ClusterDNS {
		addr, err := admission.ParseNameserver(text)
		if err != nil {
			return badItem("webhook.clusterDNS", i, "%v", err)
		}
		m.ClusterDNS = append(m.ClusterDNS, addr)
	}
	if len(w.ClusterDNS) > dnsconfig.MaxNameservers {
		return badValue("webhook.clusterDNS", "%d addresses; a Pod has at most %d", len(w.ClusterDNS), dnsconfig.MaxNameservers)
	}
	for i, text := range w.NodeDNS {
		addr, err := admission.ParseNameserver(text)
		if err != nil {
			return badItem("webhook.nodeDNS", i, "%v", err)
		}
		if slices.Contains(m.ClusterDNS, addr) {
			return badItem("webhook.nodeDNS", i, "%s is in webhook.clusterDNS, too; who asks that reaches the agent", addr)
		}
		m.NodeDNS = append(m.NodeDNS, addr)
	}
	if n := len(w.NodeDNS) + len(w.ClusterDNS); len(w.NodeDNS) > 0 && n > dnsconfig.MaxNameservers {
		return badValue("webhook.nodeDNS", "%d addresses with webhook.clusterDNS; a Pod has at most %d", n, dnsconfig.MaxNameservers)
	}
	return nil
}

func (c *Config) checkWebhookRules() error {
	known := func(rule string) bool {
		return slices.ContainsFunc(admission.Rules(), func(r lint.Rule) bool { return r.ID == rule })
	}
	for _, list := range []struct {
		key   string
		rules []string
	}{{"webhook.deny", c.Webhook.Deny}, {"webhook.ignore", c.Webhook.Ignore}} {
		for i, rule := range list.rules {
			if !known(rule) {
				return badItem(list.key, i, "%q is no rule of the webhook's; docs/webhook.md lists them", rule)
			}
		}
	}
	for i, rule := range c.Webhook.Ignore {
		if slices.Contains(c.Webhook.Deny, rule) {
			return badItem("webhook.ignore", i, "%s is in webhook.deny, too", rule)
		}
	}
	return nil
}
