{{/* Made by go test ./test/deploy -run RestartKeys -update, from the table of keys.
     The keys of the server, and of the agents, that need a restart. */}}
{{- define "portolan.restartKeys" -}}
- manifests
- simulate.enabled
- simulate.nodePorts
- simulate.maxEndpointsPerSlice
- kubernetes.kubeconfig
- kubernetes.namespaces
- kubernetes.serviceSelector
- kubernetes.qps
- kubernetes.burst
- kubernetes.watchList
- kubernetes.silence
- snapshot.file
- snapshot.settle
- admin.listen
- admin.probes
- admin.coreDNSMetrics
- admin.debug
- admin.pprof
- admin.maxStaleness
- lameduck
- log.format
- dns.listen
- dns.pods
- dns.endpointPodNames
- dns.serviceCIDRs
- dns.podCIDRs
- dns.multicluster
- dns.external.zones
- dns.external.sources
- dns.udpSteering
- dns.tcp.maxConnections
- dns.tcp.maxInFlight
- dns.tcp.maxQueries
- dns.tcp.idle
- dns.tls.listen
- dns.tls.certificate
- dns.tls.key
- dns.tls.clientCA
- dns.https.listen
- dns.https.path
- proxy.nodeName
- proxy.detectLocal.mode
- proxy.detectLocal.clusterCIDRs
- proxy.detectLocal.interface
- proxy.masqueradeAll
- proxy.masqueradeBit
- proxy.nodePortAddresses
- proxy.slowStart
- proxy.endpointChoice
- proxy.table
- proxy.counters
- proxy.replaceKubeProxy
- proxy.healthz
- proxy.healthLimit
- proxy.conntrack.maxPerCore
- proxy.conntrack.min
- proxy.conntrack.tcpEstablishedTimeout
- proxy.conntrack.tcpCloseWaitTimeout
- proxy.conntrack.tcpBeLiberal
- proxy.conntrack.udpTimeout
- proxy.conntrack.udpStreamTimeout
- proxy.conntrack.resetTCP
- policy.table
- policy.existing
- policy.podRanges
- policy.daemonSet
- policy.cni.socket
- policy.cni.install
- policy.cni.binDir
- policy.cni.confDir
- policy.domains.leastTTL
- policy.domains.grace
- policy.domains.maxAddresses
- policy.log.group
- policy.log.rate
{{- end }}
{{- define "portolan.nodeRestartKeys" -}}
- manifests
- simulate.enabled
- simulate.nodePorts
- simulate.maxEndpointsPerSlice
- kubernetes.kubeconfig
- kubernetes.namespaces
- kubernetes.serviceSelector
- kubernetes.qps
- kubernetes.burst
- kubernetes.watchList
- kubernetes.silence
- snapshot.file
- snapshot.settle
- admin.listen
- admin.probes
- admin.coreDNSMetrics
- admin.debug
- admin.pprof
- admin.maxStaleness
- lameduck
- log.format
- dns.listen
- dns.zones
- dns.serviceCIDRs
- dns.podCIDRs
- dns.multicluster
- dns.external.zones
- dns.udpSteering
- dns.tcp.maxConnections
- dns.tcp.maxInFlight
- dns.tcp.maxQueries
- dns.tcp.idle
- dns.tls.listen
- dns.tls.certificate
- dns.tls.key
- dns.tls.clientCA
- dns.https.listen
- dns.https.path
- dns.transfer.allow
- dns.transfer.keys
- dns.transfer.history.changes
- dns.transfer.history.memory
- dns.transfer.maxTransfers
- dns.transfer.memory
- dns.transfer.notify
- dns.transfer.notifyService
- node.parts
- node.mode
- node.addresses
- node.port
- node.device
- node.servers
- node.option
- node.primaries
- node.key
- node.ca
- node.notify
- node.file
- node.name
- node.check
- node.stale
- proxy.nodeName
- proxy.detectLocal.mode
- proxy.detectLocal.clusterCIDRs
- proxy.detectLocal.interface
- proxy.masqueradeAll
- proxy.masqueradeBit
- proxy.nodePortAddresses
- proxy.slowStart
- proxy.endpointChoice
- proxy.table
- proxy.counters
- proxy.replaceKubeProxy
- proxy.healthz
- proxy.healthLimit
- proxy.conntrack.maxPerCore
- proxy.conntrack.min
- proxy.conntrack.tcpEstablishedTimeout
- proxy.conntrack.tcpCloseWaitTimeout
- proxy.conntrack.tcpBeLiberal
- proxy.conntrack.udpTimeout
- proxy.conntrack.udpStreamTimeout
- proxy.conntrack.resetTCP
- policy.table
- policy.existing
- policy.podRanges
- policy.daemonSet
- policy.cni.socket
- policy.cni.install
- policy.cni.binDir
- policy.cni.confDir
- policy.domains.leastTTL
- policy.domains.grace
- policy.domains.maxAddresses
- policy.log.group
- policy.log.rate
{{- end }}

{{/* A sum of the values of these keys of a config. */}}
{{- define "portolan.restartSum" -}}
{{- $values := dict -}}
{{- range $path := .keys -}}
{{- $at := $.config -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- $_ := set $values $path $at -}}
{{- end -}}
{{ toJson $values | sha256sum }}
{{- end }}
