package config

import "portolan.dev/portolan/internal/config/key"

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
