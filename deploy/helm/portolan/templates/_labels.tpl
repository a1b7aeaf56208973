{{/* What selects the Pods; it can't change while a Deployment lives. */}}
{{- define "portolan.selector" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}

{{- define "portolan.labels" -}}
{{ include "portolan.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "portolan.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
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
{{- end }}

{{/* Not of kube-system, nor of the webhook's own Namespace. */}}
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
