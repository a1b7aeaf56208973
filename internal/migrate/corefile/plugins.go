package corefile

import (
	"maps"
	"slices"
)

// plugin translates a plugin in a server block.
type plugin func(t *translator, b *block, s *statement)

// plugins are the plugins that become settings, with the functions that translate them.
var plugins = map[string]plugin{
	"acl":          (*translator).acl,
	"bind":         func(*translator, *block, *statement) {}, // see hosts, in translate.go
	"bufsize":      (*translator).bufsize,
	"cache":        (*translator).cachePlugin,
	"chaos":        (*translator).chaos,
	"debug":        (*translator).debug,
	"dnstap":       (*translator).dnstap,
	"errors":       (*translator).errorsPlugin,
	"file":         (*translator).file,
	"forward":      (*translator).forward,
	"health":       (*translator).health,
	"hosts":        (*translator).hostsPlugin,
	"k8s_external": (*translator).external,
	"kubernetes":   func(*translator, *block, *statement) {}, // see translate
	"loadbalance":  (*translator).loadbalance,
	"log":          func(*translator, *block, *statement) {}, // see logPlugins
	"nsid":         (*translator).nsid,
	"pprof":        (*translator).pprof,
	"prometheus":   (*translator).prometheus,
	"ready":        (*translator).ready,
	"rewrite":      (*translator).rewrite,
	"root":         func(*translator, *block, *statement) {}, // see readBlock
	"template":     (*translator).template,
	"timeouts":     (*translator).timeouts,
	"tls":          (*translator).tls,
}

// Plugins returns the sorted names of CoreDNS' plugins that become settings or that need
// none.
func Plugins() []string {
	all := slices.Collect(maps.Keys(plugins))
	for name, v := range pluginNotes {
		if v.kind != Missing {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// pluginNotes are the notes on plugins that become no setting.
var pluginNotes = map[string]pluginNote{
	"any":    {Done, "always on: queries of type ANY get one RRset (RFC 8482)"},
	"cancel": {Done, "always on: the route's timeout limits each query"},
	"loop": {
		Done, "always on: a forwarding loop is detected at the start; the server's own addresses in a resolv.conf " +
			"are ignored",
	},
	"multisocket": {Done, "always on: one UDP socket per processor"},
	"reload": {
		Done, "always on: the file is checked every second; an invalid file leaves the current configuration in force",
	},
	"shed": {Done, "always on: excess queries are not queued"},

	"auto": {Missing, "zones are not looked for in a directory; list each with its file in dns.localZones"},
	"autopath": {
		Missing, "Pods are not identified by address; queries can carry the search path in one search domain, see " +
			"docs/webhook.md",
	},
	"azure":       {Missing, "only the cluster's zones are served"},
	"clouddns":    {Missing, "only the cluster's zones are served"},
	"dns64":       {Missing, "addresses are not translated between families"},
	"dnssec":      {Missing, "answers are not signed"},
	"dynupdate":   {Missing, "only the cluster's zones are served"},
	"erratic":     {Missing, "a plugin for tests"},
	"etcd":        {Missing, "only the cluster's zones are served"},
	"geoip":       {Missing, "the location of clients is not determined"},
	"grpc":        {Missing, "upstreams are queried over UDP, TCP, TLS or HTTPS"},
	"grpc_server": {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"header":      {Missing, "flags of responses cannot be changed"},
	"https":       {Differs, "the limits of dns.tcp apply to all connections"},
	"https3":      {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"local":       {Missing, "localhost is forwarded like other names; dns.hosts can define its addresses"},
	"metadata":    {Missing, "there is no metadata"},
	"minimal": {
		Missing, "answers have the records that the Kubernetes DNS specification requires; forwarded responses are " +
			"not changed",
	},
	"nomad":      {Missing, "only the cluster's zones are served"},
	"on":         {Missing, "commands are not run"},
	"proxyproto": {Missing, "the client is the sender of the packet"},
	"quic":       {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"route53":    {Missing, "only the cluster's zones are served"},
	"secondary":  {Missing, "zones are not transferred from other servers; dns.localZones reads them from files"},
	"sign":       {Missing, "answers are not signed"},
	"siit":       {Missing, "addresses are not translated between families"},
	"trace":      {Missing, "queries are not traced"},
	"transfer":   {Missing, "not translated; set transfer, see docs/configuration.md"},
	"tsig":       {Missing, "messages are not signed"},
	"view": {Missing, "not translated; dns.views only chooses, by the client's address, which zones it sees " +
		"and whether its queries are forwarded"},
	"whoami": {Missing, "a plugin for tests"},
}
