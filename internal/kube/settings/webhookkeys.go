package settings

import "portolan.dev/portolan/internal/config/key"

// WebhookKeys are the keys of the section webhook, in the order of the file.
var WebhookKeys = key.Table{
	{Path: "webhook",
		Description: "The admission webhook, `portolan webhook`. See webhook.md."},
	{Path: "webhook.listen", Restart: []key.Condition{key.Always},
		Description: "Address and port for HTTPS (`--listen`)."},
	{Path: "webhook.service", Restart: []key.Condition{key.Always},
		Description: "The Service of the webhook, as namespace/name. Its Secret and its registrations have the same name."},
	{Path: "webhook.clusterDNS", Restart: []key.Condition{key.Always},
		Description: "The DNS addresses of Pods (`--cluster-dns`)."},
	{Path: "webhook.nodeDNS", Restart: []key.Condition{key.Always},
		Description: "The addresses of the agent on each node, which Pods with the policy ask first; with " +
			"`webhook.clusterDNS` three at most."},
	{Path: "webhook.timeout", Restart: []key.Condition{key.Always},
		Description: "The limit for one review; more than 0s, at most 30s."},
	{Path: "webhook.maxInFlight", Min: "1", Restart: []key.Condition{key.Always},
		Description: "Reviews at once."},
	{Path: "webhook.certificateLife", Min: "1h0m0s", Restart: []key.Condition{key.Always},
		Description: "How long a certificate is valid."},
	{Path: "webhook.deny", Restart: []key.Condition{key.Always},
		Description: "Rules whose findings deny an object; those of other rules warn."},
	{Path: "webhook.ignore", Restart: []key.Condition{key.Always},
		Description: "Rules that are not checked."},
}
