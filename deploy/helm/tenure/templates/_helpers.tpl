{{- define "tenure.name" -}}
{{- if contains "tenure" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-tenure" .Release.Name }}{{ end -}}
{{- end }}

{{- define "tenure.account" -}}
{{- .Values.serviceAccount.name | default (include "tenure.name" .) -}}
{{- end }}

{{- define "tenure.labels" -}}
app.kubernetes.io/name: tenure
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tenure.lease" -}}
{{- dig "lease" "name" (include "tenure.name" .) .Values.config -}}
{{- end }}

{{- define "tenure.file" -}}
{{- $http := dict "http" (dict "listen" "0.0.0.0:8080") -}}
{{- $lease := dict "lease" (dict "name" (include "tenure.lease" .)) -}}
{{- toYaml (merge (deepCopy .Values.config) $http $lease) -}}
{{- end }}
