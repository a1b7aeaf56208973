package corefile

import (
	"maps"
	"slices"
)

// plugin translates a plugin in a server block.
type plugin func(t *translator, b *block, s *statement)

// plugins has the plugins that become settings.
var plugins = map[string]plugin{
	"acl":         (*translator).acl,
	"bind":        func(*translator, *block, *statement) {}, // see hosts
	"bufsize":     (*translator).bufsize,
	"cache":       (*translator).cachePlugin,
	"chaos":       (*translator).chaos,
	"debug":       (*translator).debug,
	"dnstap":      (*translator).dnstap,
	"errors":      (*translator).errorsPlugin,
	"forward":     (*translator).forward,
	"health":      (*translator).health,
	"hosts":       (*translator).hostsPlugin,
	"kubernetes":  func(*translator, *block, *statement) {}, // see translate
	"loadbalance": (*translator).loadbalance,
	"log":         func(*translator, *block, *statement) {}, // see logPlugins
	"nsid":        (*translator).nsid,
	"pprof":       (*translator).pprof,
	"prometheus":  (*translator).prometheus,
	"ready":       (*translator).ready,
	"rewrite":     (*translator).rewrite,
	"root":        func(*translator, *block, *statement) {}, // see enter
	"timeouts":    (*translator).timeouts,
	"tls":         (*translator).tls,
}

// Plugins returns the plugins of CoreDNS that become settings, or that need none.
func Plugins() []string {
	all := slices.Collect(maps.Keys(plugins))
	for name, v := range verdicts {
		if v.kind != Missing {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// verdicts has the notes about the plugins that become no setting.
var verdicts = map[string]verdict{
	"any":         {Done, "queries of type ANY get one RRset (RFC 8482)"},
	"cancel":      {Done, "a name is asked for no longer than its route's timeout says"},
	"loop":        {Done, "a server that asks itself is found out at the start; its own addresses in a resolv.conf are passed over"},
	"multisocket": {Done, "each processor has a UDP socket"},
	"reload":      {Done, "the file is looked at every second; one that can't be used leaves the one before"},
	"shed":        {Done, "what is too much is not queued"},

	"auto":         {Missing, "no zones are served but the cluster's: leave it to a server of its own, and forward to that"},
	"autopath":     {Missing, "no Pod is known by its address to be searched for; Pods can say their search paths by one search domain: docs/webhook.md"},
	"azure":        {Missing, "no zones are served but the cluster's"},
	"clouddns":     {Missing, "no zones are served but the cluster's"},
	"dns64":        {Missing, "no addresses are made from others"},
	"dnssec":       {Missing, "answers are not signed"},
	"dynupdate":    {Missing, "no zones are served but the cluster's"},
	"erratic":      {Missing, "a plugin for tests"},
	"etcd":         {Missing, "no zones are served but the cluster's"},
	"file":         {Missing, "no zones are served but the cluster's: leave it to a server of its own, and forward to that; addresses alone can be in hosts"},
	"geoip":        {Missing, "where clients are is not known"},
	"grpc":         {Missing, "upstreams are asked over UDP, TCP, TLS and HTTPS"},
	"grpc_server":  {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"header":       {Missing, "flags of answers are not changed"},
	"https":        {Differs, "connections have the bounds of tcp, as all have"},
	"https3":       {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"k8s_external": {Missing, "external addresses of Services have no names"},
	"local":        {Missing, "localhost is asked for as other names are; hosts can have its addresses"},
	"metadata":     {Missing, "there is none"},
	"minimal":      {Missing, "answers have the records that the Kubernetes DNS specification names; those of others are passed on as they are"},
	"nomad":        {Missing, "no zones are served but the cluster's"},
	"on":           {Missing, "no commands are run"},
	"proxyproto":   {Missing, "clients are who sends the packet"},
	"quic":         {Missing, "DNS is served over UDP, TCP, TLS and HTTPS"},
	"route53":      {Missing, "no zones are served but the cluster's"},
	"secondary":    {Missing, "no zones are served but the cluster's"},
	"sign":         {Missing, "answers are not signed"},
	"siit":         {Missing, "no addresses are made from others"},
	"template":     {Missing, "answers are not made from templates; rewrite, hosts and block can do some of that"},
	"trace":        {Missing, "queries are not traced"},
	"transfer":     {Missing, "not translated; transfer in docs/configuration.md says who may have the zones"},
	"tsig":         {Missing, "messages are not signed"},
	"view":         {Missing, "all clients get the same answers"},
	"whoami":       {Missing, "a plugin for tests"},
}
