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
