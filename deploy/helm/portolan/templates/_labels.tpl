{{/* The labels that select the Pods; a Deployment's selector cannot be changed. */}}
{{- define "portolan.selector" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}

{{- define "portolan.labels" -}}
{{ include "portolan.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of the Service that a ServiceMonitor selects. */}}
{{- define "portolan.metricsLabels" -}}
app.kubernetes.io/name: {{ .Release.Name }}-metrics
{{ omit (include "portolan.labels" . | fromYaml) "app.kubernetes.io/name" | toYaml }}
{{- end }}

{{/* The name of the servers' service account. */}}
{{- define "portolan.account" -}}
{{ .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The port of the first address in dns.tls.listen or dns.https.listen of a config; empty if there is none. */}}
{{- define "portolan.listenPort" -}}
{{- $section := get (get (first .) "dns" | default dict) (last .) | default dict -}}
{{- with get $section "listen" -}}
{{- $port := include "portolan.port" (first .) -}}
{{- if not (regexMatch "^[0-9]+$" $port) }}{{ fail (printf "config.dns.%s.listen: %s has no port" (last $) (first .)) }}{{ end -}}
{{ $port }}
{{- end -}}
{{- end }}

{{- define "portolan.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What the values of a Service say of its spec. */}}
{{- define "portolan.serviceType" -}}
type: {{ .type }}
{{- with .clusterIPs }}
clusterIP: {{ first . | quote }}
clusterIPs: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .ipFamilyPolicy | default (gt (len (.clusterIPs | default list)) 1 | ternary "RequireDualStack" "") }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- $service := . }}
{{- range $field := list "externalIPs" "externalTrafficPolicy" "internalTrafficPolicy" "loadBalancerClass" "loadBalancerIP" "loadBalancerSourceRanges" }}
{{- with get $service $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The spec of a HorizontalPodAutoscaler. */}}
{{- define "portolan.autoscaler" -}}
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .deployment }}}
{{- with .values }}
minReplicas: {{ .minReplicas }}
maxReplicas: {{ .maxReplicas }}
metrics:
  - type: Resource
    resource:
      name: cpu
      target: {type: Utilization, averageUtilization: {{ .targetCPUUtilizationPercentage }}}
{{- with .behavior }}
behavior: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The values below webhook. --reuse-values knows none of an older chart, and a
     part of them with --set: those of values.yaml stand for the others. */}}
{{- define "portolan.webhook" -}}
{{- $given := get .Values "webhook" | default dict -}}
{{- $chart := dict "enabled" false "replicas" 2 "failurePolicy" "Ignore" "timeoutSeconds" 2
  "config" (dict "listen" "0.0.0.0:8443" "clusterDNS" list)
  "resources" (dict "requests" (dict "cpu" "20m" "memory" "32Mi") "limits" (dict "memory" "128Mi")) -}}
{{- mergeOverwrite $chart (deepCopy $given) | toYaml }}
{{- end }}

{{/* The same for the webhook's objects. */}}
{{- define "portolan.webhookSelector" -}}
app.kubernetes.io/name: {{ .Release.Name }}-webhook
{{- end }}

{{- define "portolan.webhookLabels" -}}
{{ include "portolan.webhookSelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Excludes kube-system and the webhook's own Namespace. */}}
{{- define "portolan.webhookElsewhere" -}}
key: kubernetes.io/metadata.name
operator: NotIn
values: {{ list "kube-system" .Release.Namespace | uniq | toJson }}
{{- end }}

{{- define "portolan.webhookCalls" -}}
admissionReviewVersions: [v1]
sideEffects: None
failurePolicy: {{ .failurePolicy }}
timeoutSeconds: {{ .timeoutSeconds }}
{{- end }}

{{/* The values below node, as those below webhook. */}}
{{- define "portolan.node" -}}
{{- $given := get .Values "node" | default dict -}}
{{- $chart := dict "enabled" false "parts" (list "dns") "admin" "0.0.0.0:9154" "serversClusterIPs" list "maxSurge" 1
  "existingSecret" "" "stateDir" "/var/lib/portolan-node" "notify" "0.0.0.0:9155"
  "config" (dict "mode" "secondary" "addresses" (list "169.254.20.10"))
  "priorityClassName" "system-node-critical" "nodeSelector" (dict "kubernetes.io/os" "linux") "tolerations" (list (dict "operator" "Exists"))
  "resources" (dict "requests" (dict "cpu" "25m" "memory" "64Mi") "limits" (dict "memory" "256Mi")) -}}
{{- $node := mergeOverwrite $chart (deepCopy $given) -}}
{{- if include "portolan.wholeNetwork" . -}}
{{- $_ := set $node "enabled" true -}}
{{- $_ := set $node "parts" (list "dns" "proxy" "network" "policy") -}}
{{- end -}}
{{ toYaml $node }}
{{- end }}

{{/* Non-empty if the agents have all parts, and the controllers run that have something to give. */}}
{{- define "portolan.wholeNetwork" -}}
{{- if get (get .Values "wholeNetwork" | default dict) "enabled" }}yes{{ end -}}
{{- end }}

{{/* Non-empty if the agents' Pods are the service proxy, too. */}}
{{- define "portolan.nodeProxies" -}}
{{- $node := include "portolan.node" . | fromYaml -}}
{{- if and $node.enabled (has "proxy" $node.parts) }}yes{{ end -}}
{{- end }}

{{/* Non-empty if the agents' Pods enforce policies, too. */}}
{{- define "portolan.nodePolicies" -}}
{{- $node := include "portolan.node" . | fromYaml -}}
{{- if and $node.enabled (has "policy" $node.parts) }}yes{{ end -}}
{{- end }}

{{/* Non-empty if the agents' Pods make the network of the node's Pods, too. */}}
{{- define "portolan.nodeNetworks" -}}
{{- $node := include "portolan.node" . | fromYaml -}}
{{- if and $node.enabled (has "network" $node.parts) }}yes{{ end -}}
{{- end }}

{{/* The values below network, as those below webhook. */}}
{{- define "portolan.network" -}}
{{- $given := get .Values "network" | default dict -}}
{{- $chart := dict "config" dict "memoryLimit" "512Mi" "namespaces" "/var/run/netns"
  "cni" (dict "install" true "binDir" "/opt/cni/bin" "confDir" "/etc/cni/net.d") -}}
{{- mergeOverwrite $chart (deepCopy $given) | toYaml }}
{{- end }}

{{/* The section network of the agents' configuration. */}}
{{- define "portolan.networkConfig" -}}
{{- $network := include "portolan.network" . | fromYaml -}}
{{- $config := $network.config -}}
{{- $_ := set $config "cni" (merge $network.cni (get $config "cni" | default dict)) -}}
{{- if and (include "portolan.wholeNetwork" .) (include "portolan.controllerValues" (list . "loadBalancer") | fromYaml).enabled -}}
{{- $_ := set $config "announce" (mergeOverwrite (dict "enabled" true) (get $config "announce" | default dict)) -}}
{{- end -}}
{{ toYaml $config }}
{{- end }}

{{/* The rules of a role with which the agents read what the network needs, and whose addresses they announce. The
     service proxy reads the same. */}}
{{- define "portolan.networkRules" -}}
- apiGroups: [""]
  resources: [services, nodes]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [servicecidrs]
  verbs: [list, watch]
{{- end }}

{{/* The values below policy, as those below webhook. */}}
{{- define "portolan.policy" -}}
{{- $given := get .Values "policy" | default dict -}}
{{- $chart := dict "config" dict "memoryLimit" "512Mi"
  "cni" (dict "install" true "binDir" "/opt/cni/bin" "confDir" "/etc/cni/net.d") -}}
{{- mergeOverwrite $chart (deepCopy $given) | toYaml }}
{{- end }}

{{/* The section policy of the agents' configuration. */}}
{{- define "portolan.policyConfig" -}}
{{- $policy := include "portolan.policy" . | fromYaml -}}
{{- $config := merge (dict "daemonSet" (printf "%s-node" .Release.Name)) $policy.config -}}
{{- $cni := get $policy.config "cni" | default dict -}}
{{- if $policy.cni.install -}}
{{- $cni = merge (deepCopy $policy.cni) $cni -}}
{{- end -}}
{{- with $cni }}{{ $_ := set $config "cni" . }}{{ end -}}
{{- if include "portolan.nodeNetworks" . }}{{/* its plugin is the only one, and asks for policies, too */}}
{{- $config = omit $config "cni" -}}
{{- end -}}
{{ toYaml $config }}
{{- end }}

{{/* Where the CNI plugin of the agents is, on the node and in their containers: socketDir, empty if there is none, and
     binDir and confDir, if they install it. */}}
{{- define "portolan.cni" -}}
{{- $socketDir := "" -}}
{{- $cni := dict "install" false -}}
{{- if include "portolan.nodeNetworks" . -}}
{{- $cni = (include "portolan.networkConfig" . | fromYaml).cni -}}
{{- $socketDir = dir (get $cni "socket" | default "/run/portolan/cni.sock") -}}
{{- else if include "portolan.nodePolicies" . -}}
{{- $cni = (include "portolan.policy" . | fromYaml).cni -}}
{{- $socketDir = include "portolan.policySocketDir" . -}}
{{- end -}}
{{ mergeOverwrite (deepCopy $cni) (dict "socketDir" $socketDir) | toYaml }}
{{- end }}

{{/* The directory of the socket that the CNI plugin asks at, on the node and in the agents' containers; empty if
     there is none. */}}
{{- define "portolan.policySocketDir" -}}
{{- $cni := get (include "portolan.policyConfig" . | fromYaml) "cni" | default dict -}}
{{- $socket := dig "socket" "/run/portolan/cni.sock" $cni -}}
{{- if $socket }}{{ dir $socket }}
{{- else if (include "portolan.policy" . | fromYaml).cni.install }}
{{- fail "policy.cni.install needs policy.config.cni.socket: without it no Pod would start" }}
{{- end -}}
{{- end }}

{{/* The rules of a role with which the agents read what policies need. */}}
{{- define "portolan.policyRules" -}}
- apiGroups: [""]
  resources: [pods, namespaces, nodes, services]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [clusternetworkpolicies]
  verbs: [list, watch]
{{- end }}

{{/* The environment of agents: their Node, and the API server itself where it is given. Without a service proxy
     in the same Pods its Service is reached as well. */}}
{{- define "portolan.nodeEnv" -}}
{{- $proxy := include "portolan.proxy" . | fromYaml -}}
{{- if or (include "portolan.nodeProxies" .) $proxy.api.host -}}
{{ include "portolan.proxyEnv" . }}
{{- else -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end -}}
{{- end }}

{{/* The port of an address. */}}
{{- define "portolan.port" -}}
{{ splitList ":" . | last }}
{{- end }}

{{/* Non-empty if there are agents that zones are transferred to. */}}
{{- define "portolan.transfers" -}}
{{- $node := include "portolan.node" . | fromYaml -}}
{{- if and $node.enabled (ne $node.config.mode "cache") }}yes{{ end -}}
{{- end }}

{{- define "portolan.transferSecret" -}}
{{- $node := include "portolan.node" . | fromYaml -}}
{{ $node.existingSecret | default (printf "%s-transfer" .Release.Name) }}
{{- end }}

{{/* The TSIG key of transfers, for servers and agents. */}}
{{- define "portolan.transferKey" -}}
name: {{ .Release.Name }}-node
algorithm: hmac-sha256
secretFile: /etc/portolan-transfer/key
{{- end }}

{{/* The server's config.yaml: agents may have its zones, are told of changes, and keep connections. */}}
{{- define "portolan.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if include "portolan.transfers" . -}}
{{- $dns := get $config "dns" | default dict -}}
{{- $transfer := get $dns "transfer" | default dict -}}
{{- $key := include "portolan.transferKey" . | fromYaml -}}
{{- $_ := set $transfer "keys" (append (get $transfer "keys" | default list) $key) -}}
{{- $_ := set $transfer "allow" (append (get $transfer "allow" | default list) (dict "key" $key.name)) -}}
{{- if not (get $transfer "notifyService") -}}
{{- $_ := set $transfer "notifyService" (printf "%s/%s-node" .Release.Namespace .Release.Name) -}}
{{- end -}}
{{- $_ := set $dns "transfer" $transfer -}}
{{- $tcp := get $dns "tcp" | default dict -}}
{{- $_ := set $dns "tcp" (merge $tcp (dict "maxConnections" 5000)) -}}
{{- $_ := set $config "dns" $dns -}}
{{- end -}}
{{ toYaml $config }}
{{- end }}

{{/* The same for the agents' objects. */}}
{{- define "portolan.nodeSelector" -}}
app.kubernetes.io/name: {{ .Release.Name }}-node
{{- end }}

{{- define "portolan.nodeLabels" -}}
{{ include "portolan.nodeSelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The values below proxy, as those below webhook. */}}
{{- define "portolan.proxy" -}}
{{- $given := get .Values "proxy" | default dict -}}
{{- $chart := dict "enabled" false "admin" "127.0.0.1:10249" "api" (dict "host" "" "port" 6443) "maxUnavailable" "10%"
  "config" (dict "detectLocal" (dict "mode" "NodeCIDR") "healthz" "0.0.0.0:10256" "replaceKubeProxy" true)
  "priorityClassName" "system-node-critical" "nodeSelector" (dict "kubernetes.io/os" "linux") "tolerations" (list (dict "operator" "Exists"))
  "resources" (dict "requests" (dict "cpu" "50m" "memory" "64Mi") "limits" (dict "memory" "512Mi")) -}}
{{- mergeOverwrite $chart (deepCopy $given) | toYaml }}
{{- end }}

{{/* The rules of a role with which a proxy reads what it needs. */}}
{{- define "portolan.proxyRules" -}}
- apiGroups: [""]
  resources: [services, nodes]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [servicecidrs]
  verbs: [list, watch]
- apiGroups: [events.k8s.io] # a Service's health check port is taken
  resources: [events]
  verbs: [create]
{{- end }}

{{/* The environment of a proxy: its Node, and the API server itself, whose Service is reached
     only once the proxy works. */}}
{{- define "portolan.proxyEnv" -}}
{{- $proxy := include "portolan.proxy" . | fromYaml -}}
{{- if not $proxy.api.host -}}
{{- fail "proxy.api.host is empty: give the API server's own address; the proxy cannot reach it by its Service" -}}
{{- end -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ $proxy.api.host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $proxy.api.port | int | quote }}}
{{- end }}

{{/* The same for the proxy's objects. */}}
{{- define "portolan.proxySelector" -}}
app.kubernetes.io/name: {{ .Release.Name }}-proxy
{{- end }}

{{- define "portolan.proxyLabels" -}}
{{ include "portolan.proxySelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The values below gateway, as those below webhook. */}}
{{- define "portolan.gateway" -}}
{{- $given := get .Values "gateway" | default dict -}}
{{- $chart := dict "enabled" false "kind" "Deployment" "replicas" 2 "ports" (list 80 443) "config" dict
  "autoscaling" (dict "enabled" false "minReplicas" 2 "maxReplicas" 10 "targetCPUUtilizationPercentage" 80 "behavior" dict)
  "service" (dict "type" "LoadBalancer" "labels" dict "annotations" dict "clusterIPs" list "ipFamilyPolicy" "" "externalIPs" list
    "externalTrafficPolicy" "" "loadBalancerClass" "" "loadBalancerIP" "" "loadBalancerSourceRanges" list)
  "ingressClass" (dict "create" true "name" "portolan" "default" false) "gatewayClass" (dict "create" "auto" "name" "portolan")
  "admin" "0.0.0.0:9156" "handoverDir" "/run/portolan-gateway" "maxSurge" 1 "terminationGracePeriodSeconds" 45
  "priorityClassName" "system-cluster-critical" "nodeSelector" (dict "kubernetes.io/os" "linux") "tolerations" list
  "extraVolumes" list "extraVolumeMounts" list
  "resources" (dict "requests" (dict "cpu" "100m" "memory" "128Mi") "limits" (dict "memory" "512Mi")) -}}
{{- mergeOverwrite $chart (deepCopy $given) | toYaml }}
{{- end }}

{{/* The gateway's config.yaml. */}}
{{- define "portolan.gatewayConfig" -}}
{{- $gateway := include "portolan.gateway" . | fromYaml -}}
{{- $name := printf "%s-gateway" .Release.Name -}}
{{- $own := printf "%s/%s" .Release.Namespace $name -}}
{{- $config := pick (deepCopy .Values.config) "admin" "kubernetes" "lameduck" "log" -}}
{{- $settings := deepCopy $gateway.config -}}
{{- $_ := set $settings "lease" $own -}}
{{- /* Each Secret with a certificate has a request of its own. */ -}}
{{- $_ := set $config "kubernetes" (merge (get $config "kubernetes" | default dict) (dict "qps" 500 "burst" 1000)) -}}
{{- $_ := set $settings "tls" (merge (get $settings "tls" | default dict) (dict "ticketSecret" (printf "%s-tickets" $own))) -}}
{{- if eq $gateway.kind "DaemonSet" -}}
{{- $_ := set $config "admin" (merge (dict "listen" $gateway.admin "probes" (list "unix:/run/portolan/probes")) (get $config "admin" | default dict)) -}}
{{- $_ := set $settings "handover" (printf "%s/socket" $gateway.handoverDir) -}}
{{- $settings = merge $settings (dict "listen" (list "[::]") "portOffset" 0) -}}
{{- if not (get $settings "publish") }}{{ $_ := set $settings "publish" (dict "node" true) }}{{ end -}}
{{- else -}}
{{- $settings = merge $settings (dict "listen" (list "[::]") "portOffset" 8000) -}}
{{- if not (get $settings "publish") }}{{ $_ := set $settings "publish" (dict "service" $own) }}{{ end -}}
{{- end -}}
{{- $_ := set $config "gateway" $settings -}}
{{ toYaml $config }}
{{- end }}

{{/* The name of a port of the gateway. */}}
{{- define "portolan.gatewayPort" -}}
{{- get (dict "80" "http" "443" "https") (toString .) | default (printf "port-%v" .) -}}
{{- end }}

{{/* The same for the gateway's objects. */}}
{{- define "portolan.gatewaySelector" -}}
app.kubernetes.io/name: {{ .Release.Name }}-gateway
{{- end }}

{{- define "portolan.gatewayLabels" -}}
{{ include "portolan.gatewaySelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
