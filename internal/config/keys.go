package config

import (
	"strconv"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/support/evidence"
)

// manifestsKeys has the key of the cluster's source that is not the API.
var manifestsKeys = key.Table{
	{Path: "manifests", Restart: []key.Condition{key.Always},
		Description: "A directory of manifests, one file, or `-` for standard input, relative to the working directory " +
			"(`--manifests`). The cluster is read from there instead of the Kubernetes API."},
}

// processKeys has the keys of the process itself, in the order of the file.
var processKeys = key.Table{
	{Path: "admin",
		Description: "Health, metrics and dumps over HTTP."},
	{Path: "admin.listen", Restart: []key.Condition{key.Always},
		Description: "Address and port (`--admin`); empty turns the server off."},
	{Path: "admin.probes", Restart: []key.Condition{key.Always},
		Description: "Further addresses and ports, or `unix:PATH`, for CoreDNS' probes: `/health`, `/ready` and " +
			"`/metrics` only. `portolan probe` asks there."},
	{Path: "admin.coreDNSMetrics", Restart: []key.Condition{key.Always},
		Description: "Exports some metrics under CoreDNS' names as well."},
	{Path: "admin.debug", Restart: []key.Condition{key.Always},
		Description: "Serves dumps of zones and objects (/debug) on addresses other than loopback as well."},
	{Path: "admin.pprof", Restart: []key.Condition{key.Always},
		Description: "Serves profiles on addresses other than loopback as well."},
	{Path: "admin.maxStaleness", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "`/readyz` fails when the API has been lost for longer; 0s never."},
	{Path: "admin.page", Values: []string{PageProcess, PageCluster, PageOff}, Restart: []key.Condition{key.Always},
		Description: "The [page](page.md) shows what this `process` reads for its own work, or has the process read " +
			"all kinds of the `cluster` that the page shows, which needs rights and memory; `off` serves none."},
	{Path: "admin.tokenFile", Restart: []key.Condition{key.Always},
		Description: "A file with a token of at least 16 characters. Clients that are not on loopback need it for the " +
			"page and its data. It is read again when it changes; without a token in it, nobody is let in."},
	{Path: "admin.tls",
		Description: "TLS on the address of `admin.listen`, which serves connections without it as before. Tokens then " +
			"count with TLS only."},
	{Path: "admin.tls.cert", Restart: []key.Condition{key.Always},
		Description: "File with the certificate chain in PEM. It is read again when it changes."},
	{Path: "admin.tls.key", Restart: []key.Condition{key.Always},
		Description: "File with its private key."},
	{Path: "admin.tls.clientCA", Restart: []key.Condition{key.Always},
		Description: "File with certificates of authorities in PEM. Clients with a certificate of theirs may read the page " +
			"and its data without a token."},
	{Path: "admin.evidence",
		Description: "A sample of recent queries, drops and requests, each with its reason, for `portolan tail` and " +
			"`portolan top`; see [evidence.md](evidence.md)."},
	{Path: "admin.evidence.size", Min: "0", Max: strconv.Itoa(evidence.MaxSize), Restart: []key.Condition{key.Always},
		Description: "The number of events that are kept; 0 keeps none, and no counts."},
	{Path: "admin.evidence.oneIn", Min: "1", Max: "1000000", Restart: []key.Condition{key.Always},
		Description: "One in this many events is recorded; 1 records all."},
	{Path: "admin.evidence.perSecond", Min: "0", Max: "10000", Restart: []key.Condition{key.Always},
		Description: "So many failures a second are all recorded, for each reason and each socket."},
	{Path: "admin.evidence.maskClients",
		Values:  []string{string(evidence.MaskNone), string(evidence.MaskPrefix), string(evidence.MaskAll)},
		Restart: []key.Condition{key.Always},
		Description: "What is hidden of clients: nothing; all but a `prefix` of 24 bits of IPv4 and 56 of IPv6 addresses; " +
			"or all."},
	{Path: "lameduck", Min: "0s", Restart: []key.Condition{key.Always},
		Description: "Queries are answered for this time after the signal to stop, while `/readyz` fails, " +
			"and for up to a minute while an EndpointSlice lists the process as serving; 0s not at all."},
	{Path: "log",
		Description: "The log, on standard error."},
	{Path: "log.level", Values: []string{"debug", "info", "warn", "error"},
		Description: "The lowest level that is logged."},
	{Path: "log.format", Values: []string{"text", "json"}, Restart: []key.Condition{key.Always},
		Description: "The format of a line."},
}
