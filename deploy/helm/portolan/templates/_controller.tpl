{{/* The values below controller.NAME, as those below webhook. Of a list: the root, and the name. */}}
{{- define "portolan.controllerValues" -}}
{{- $given := get (get (first .).Values "controller" | default dict) (last .) | default dict -}}
{{- $chart := dict "enabled" false "replicas" 2 "config" dict
  "resources" (dict "requests" (dict "cpu" "50m" "memory" "64Mi") "limits" (dict "memory" "512Mi")) -}}
{{- if ne (last .) "slices" }}
{{- $_ := set $chart "resources" (dict "requests" (dict "cpu" "20m" "memory" "32Mi") "limits" (dict "memory" "128Mi")) -}}
{{- end }}
{{- if eq (last .) "nodes" }}{{ $_ := set $chart "admin" "0.0.0.0:9157" }}{{ end -}}
{{- $values := mergeOverwrite $chart (deepCopy $given) -}}
{{- $gives := dict "nodes" "clusterCIDRs" "loadBalancer" "pools" -}}
{{- if and (hasKey $gives (last .)) (include "portolan.wholeNetwork" (first .)) (dig (last .) (get $gives (last .)) "" $values.config) -}}
{{- $_ := set $values "enabled" true -}}
{{- end -}}
{{ toYaml $values }}
{{- end }}

{{/* The objects of a controller. root; controller, the command; section, of its values; rules of its ClusterRole;
     hostNetwork: its Pods are in the network of their nodes; api: the address of the API server, unless empty. */}}
{{- define "portolan.controller" -}}
{{- $root := .root }}
{{- $hostNetwork := get . "hostNetwork" }}
{{- $values := include "portolan.controllerValues" (list $root .section) | fromYaml }}
{{- $name := printf "%s-%s" $root.Release.Name .controller }}
{{- $selector := printf "app.kubernetes.io/name: %s" $name }}
{{- $labels := printf "%s\n%s" $selector (omit (include "portolan.labels" $root | fromYaml) "app.kubernetes.io/name" | toYaml) }}
{{- $settings := $values.config }}
{{- $election := get $settings "leaderElection" | default dict }}
{{- $_ := set $election "namespace" $root.Release.Namespace }}
{{- $_ := set $election "name" $name }}
{{- $_ := set $settings "leaderElection" $election }}
{{- if and (gt (int $values.replicas) 1) (eq (get $election "enabled" | toString) "false") }}
{{- fail (printf "controller.%s.config.leaderElection.enabled: without an election there must be one replica alone" .section) }}
{{- end }}
{{- $config := pick (deepCopy $root.Values.config) "admin" "kubernetes" "log" }}
{{- if and (eq .section "loadBalancer") (get $config "kubernetes") }}{{/* it needs all Services */}}
{{- $_ := set $config "kubernetes" (omit $config.kubernetes "namespaces" "serviceSelector") }}
{{- end }}
{{- $admin := get $values "admin" }}
{{- with $admin }}
{{- $_ := set $config "admin" (merge (dict "listen" .) (get $config "admin" | default dict)) }}
{{- end }}
{{- $port := $admin | default "0.0.0.0:9153" | include "portolan.port" }}
{{- $_ := set $config "controller" $settings }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
data:
  config.yaml: | {{- toYaml $config | nindent 4 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
automountServiceAccountToken: false # the Deployment mounts it
{{- if $root.Values.rbac.create }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create] # cannot be restricted by name
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ $name }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  strategy:
    type: RollingUpdate
    {{- if $hostNetwork }}
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0} # Pods of one node would want one port
    {{- else }}
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  selector:
    matchLabels: {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- with $root.Values.commonLabels }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- $selector | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: portolan
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ $port | quote }}
        checksum/restart: {{ toJson $config | sha256sum }} # read only at a start
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with $root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $hostNetwork }}
      hostNetwork: true # no Pod has an address before it has worked
      {{- end }}
      dnsPolicy: Default # it resolves no names
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- $tolerations := $root.Values.tolerations | default list }}
      {{- if $hostNetwork }}
      {{- $tolerations = append $tolerations (dict "key" "node.kubernetes.io/not-ready" "operator" "Exists") }}
      {{- $tolerations = append $tolerations (dict "key" "node.kubernetes.io/network-unavailable" "operator" "Exists") }}
      {{- end }}
      {{- with $tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - topologyKey: kubernetes.io/hostname
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- $selector | nindent 14 }}
          matchLabelKeys: [pod-template-hash] # ignore Pods of the old revision
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: portolan
          image: {{ include "portolan.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [controller, {{ .controller }}, --config, /etc/portolan/config.yaml]
          {{- with get . "api" }}
          env:
            - {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
            - {name: KUBERNETES_SERVICE_PORT, value: {{ .port | int | quote }}}
          {{- end }}
          ports:
            - {name: metrics, containerPort: {{ $port }}, protocol: TCP}
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 5
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 3
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: config, mountPath: /etc/portolan, readOnly: true}
      volumes:
        - name: config
          configMap: {name: {{ $name }}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow # Pods that are not ready do not block a drain
  selector:
    matchLabels: {{- $selector | nindent 6 }}
{{- if and $root.Values.networkPolicy.enabled (not $hostNetwork) }}
---
# Probes need no rule: traffic from the Pod's own node is always allowed.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- $selector | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- with $root.Values.networkPolicy.metricsFrom }}{{/* an empty list would admit all */}}
  ingress:
    - from: {{- toYaml . | nindent 8 }}
      ports:
        - {port: {{ $port }}, protocol: TCP}
  {{- end }}
  egress: {{- toYaml $root.Values.networkPolicy.egress | nindent 4 }}
{{- end }}
{{- end }}
