package settings

import "portolan.dev/portolan/internal/config/key"

// Keys are the keys of the section gateway, in the order of the file.
var Keys = key.Table{
	{Path: "gateway",
		Description: "Ingress and Gateway API, `portolan gateway`. See gateway.md."},
	{Path: "gateway.listen", Restart: []key.Condition{key.Always},
		Description: "The addresses at which requests are accepted (`--listen`), but those of Gateways that have " +
			"addresses of their own; `[::]`, or none, is all."},
	{Path: "gateway.portOffset", Min: "0", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "What is added to the ports of Ingresses and listeners to get those that are bound " +
			"(`--port-offset`): with 8000, port 80 is 8080, which needs no privileges."},
	{Path: "gateway.controller", Restart: []key.Condition{key.Always},
		Description: "The `spec.controllerName` of the GatewayClasses that are served."},
	{Path: "gateway.ingress",
		Description: "Ingresses."},
	{Path: "gateway.ingress.controller", Restart: []key.Condition{key.Always},
		Description: "The `spec.controller` of the IngressClasses that are served."},
	{Path: "gateway.ingress.port", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The port at which Ingresses are served over HTTP."},
	{Path: "gateway.ingress.tlsPort", Min: "1", Max: "65535", Restart: []key.Condition{key.Always},
		Description: "The port at which Ingresses are served over HTTPS, if one has `tls` or there is a `certificate`."},
	{Path: "gateway.ingress.certificate", Restart: []key.Condition{key.Always},
		Description: "The file of the certificate for hosts of Ingresses that have none, in PEM. It is read again " +
			"when it changes."},
	{Path: "gateway.ingress.key", Restart: []key.Condition{key.Always},
		Description: "The file of its key, in PEM. It is read again when it changes."},
	{Path: "gateway.ingress.annotations", Restart: []key.Condition{key.Always},
		Description: "Whose annotations of Ingresses have an effect: `nginx` is those of ingress-nginx, see " +
			"from-ingress-nginx.md; when empty none have."},
	{Path: "gateway.tls",
		Description: "TLS of clients, at all ports that have it."},
	{Path: "gateway.tls.minVersion", Values: []string{"1.2", "1.3"}, Restart: []key.Condition{key.Always},
		Description: "The lowest version of TLS."},
	{Path: "gateway.tls.cipherSuites", Restart: []key.Condition{key.Always},
		Description: "The cipher suites of TLS 1.2, such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`; which of them is " +
			"chosen does not depend on the order. Without any they are those with forward secrecy and authenticated " +
			"encryption. Those of TLS 1.3 cannot be chosen."},
	{Path: "gateway.tls.ticketSecret", Restart: []key.Condition{key.Always},
		Description: "The Secret, as `namespace/name`, with the keys of session tickets that several gateways share, so " +
			"that clients resume their sessions at any of them. The gateways make and rotate the keys; the Secret must " +
			"exist. Without it, or from manifests, each has keys of its own."},
	{Path: "gateway.pool", Restart: []key.Condition{key.Always},
		Description: "Addresses of the host of which Gateways can have some of their own: those that they name in " +
			"`spec.addresses`, or any. Without it all share those of `listen`, as Ingresses do."},
	{Path: "gateway.poolByDefault", Restart: []key.Condition{key.Always},
		Description: "Whether Gateways that request no address have one of the pool."},
	{Path: "gateway.experimental", Restart: []key.Condition{key.Always},
		Description: "Whether fields of Gateway API's experimental channel have an effect: `retry`, `sessionPersistence`, " +
			"the filter ExternalAuth and XBackendTrafficPolicies. See gateway.md."},
	{Path: "gateway.nodeName", Restart: []key.Condition{key.Always},
		Description: "The name of the Node, for topology hints of endpoints; when empty the environment variable " +
			"`NODE_NAME`."},
	{Path: "gateway.endpoints", Restart: []key.Condition{key.Always},
		Description: "Endpoints of Services in place of those of the cluster (`--endpoint`), as " +
			"`NAMESPACE/SERVICE=ADDRESS:PORT`, or `NAMESPACE/SERVICE:PORT=ADDRESS:PORT` for one port of the Service: " +
			"such as a program on the developer's machine, for manifests that have no EndpointSlices."},
	{Path: "gateway.trustedClients", Restart: []key.Condition{key.Always},
		Description: "The ranges of clients whose `X-Forwarded-For`, `-Proto` and `-Host` are passed on, such as load " +
			"balancers. Those of others are replaced."},
	{Path: "gateway.accessLog", Values: []string{"off", "json", "combined"},
		Description: "A line for each request on standard output: `json`, which says what the gateway did with it and " +
			"why, or `combined`, as web servers write it. See gateway.md."},
	{Path: "gateway.routeMetrics", Min: "0", Max: "10000", Restart: []key.Condition{key.Always},
		Description: "The highest number of Ingresses and routes that have series of their own in metrics; others " +
			"share those with the label `route=\"other\"`."},
	{Path: "gateway.tracing",
		Description: "Traces of requests (OpenTelemetry). See gateway.md."},
	{Path: "gateway.tracing.endpoint", Restart: []key.Condition{key.Always},
		Description: "The URL at which a collector takes traces by OTLP over HTTP, such as " +
			"`http://collector:4318/v1/traces`; empty turns them off."},
	{Path: "gateway.tracing.oneIn", Min: "1", Max: "1000000", Restart: []key.Condition{key.Always},
		Description: "One of how many requests that bring no trace begins one; with a trace, its client decides."},
	{Path: "gateway.limits",
		Description: "What clients can make the gateway hold."},
	{Path: "gateway.limits.connections", Min: "0", Max: "1000000", Restart: []key.Condition{key.Always},
		Description: "The highest number of connections. Of more, one of the client that has the most is closed, of its " +
			"idle ones if it has any. 0 is as many as the memory limit allows."},
	{Path: "gateway.limits.head", Min: "1Ki", Max: "1Mi", Restart: []key.Condition{key.Always},
		Description: "The largest request line and fields of a request together; with more the response is 431."},
	{Path: "gateway.limits.headTimeout", Min: "1s", Max: "10m", Restart: []key.Condition{key.Always},
		Description: "How long the head of a request may take from its first octet; then the response is 408."},
	{Path: "gateway.limits.idleTimeout", Min: "1s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "How long a connection may wait for its next request."},
	{Path: "gateway.limits.streamIdle", Min: "1s", Max: "720h", Restart: []key.Condition{key.Always},
		Description: "How long a connection of a TCPRoute or TLSRoute may be silent in both directions."},
	{Path: "gateway.limits.sessionIdle", Min: "1s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "How long a client and the endpoint that a UDPRoute leads to may be silent; what the client sends " +
			"then may go to another endpoint."},
	{Path: "gateway.limits.bodyRate", Min: "1", Max: "1000000000", Restart: []key.Condition{key.Always},
		Description: "The least octets per second at which clients must send bodies and take responses, after " +
			"`bodyGrace`. Only the time counts that the gateway waits for them."},
	{Path: "gateway.limits.bodyGrace", Min: "1s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "How much longer clients may take than `bodyRate` allows."},
	{Path: "gateway.drain",
		Description: "For how long what is under way goes on."},
	{Path: "gateway.drain.endpoint", Min: "1s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "At an endpoint that was removed: then requests are broken off."},
	{Path: "gateway.drain.upgraded", Min: "1s", Max: "720h", Restart: []key.Condition{key.Always},
		Description: "At an endpoint that was removed, for upgraded connections, such as WebSockets; at least as " +
			"long as for requests."},
	{Path: "gateway.drain.listener", Min: "0s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "At a port that no listener has any more: then requests and upgraded connections are broken off."},
	{Path: "gateway.drain.shutdown", Min: "0s", Max: "24h", Restart: []key.Condition{key.Always},
		Description: "After the signal to stop, and `lameduck`: then requests and upgraded connections, such as " +
			"WebSockets, are broken off. `terminationGracePeriodSeconds` of a Pod must be longer than both."},
	{Path: "gateway.handover", Restart: []key.Condition{key.Always},
		Description: "The path of a socket at which a process that replaces this one on the same host takes over " +
			"its ports, so that no connection is refused meanwhile; empty turns it off. The directory must be one " +
			"that only the gateway can write to."},
	{Path: "gateway.publish",
		Description: "The addresses in the statuses of Ingresses, and of Gateways without one of the pool, with " +
			"the Kubernetes API. The first of these that is set counts."},
	{Path: "gateway.publish.service", Restart: []key.Condition{key.Always},
		Description: "The Service of type LoadBalancer that leads to the gateway, as `namespace/name`: its " +
			"addresses and names, and its externalIPs."},
	{Path: "gateway.publish.addresses", Restart: []key.Condition{key.Always},
		Description: "IP addresses and hostnames."},
	{Path: "gateway.publish.node", Restart: []key.Condition{key.Always},
		Description: "The internal addresses of the Node, see `nodeName`."},
	{Path: "gateway.lease", Restart: []key.Condition{key.Always},
		Description: "The Lease by which one of several gateways is elected, which alone writes statuses, as " +
			"`namespace/name`."},
}
