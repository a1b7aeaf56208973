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
failurePolicy: {{ .Values.webhook.failurePolicy }}
timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
{{- end }}
