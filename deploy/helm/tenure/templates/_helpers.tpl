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

{{- /* A name, and those of the further slots, as JSON. The Lease's own is made valid as tenure does it. */ -}}
{{- define "tenure.slots" -}}
{{- $names := list .name -}}
{{- range $slot := untilStep 1 (dig "lease" "slots" 1 .config | int) 1 -}}
{{- $names = append $names (printf "%s-slot-%d" $.name $slot) -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{- define "tenure.leases" -}}
{{- $name := printf "%s%s" (dig "lease" "prefix" "" .Values.config) (include "tenure.lease" .) | lower -}}
{{- include "tenure.slots" (dict "config" .Values.config "name" (regexReplaceAll "-*[.][-.]*" (regexReplaceAll "[^a-z0-9.-]" $name "-") "." | trimAll "-.")) -}}
{{- end }}

{{- define "tenure.file" -}}
{{- $http := dict "http" (dict "listen" "0.0.0.0:8080") -}}
{{- $lease := dict "lease" (dict "name" (include "tenure.lease" .)) -}}
{{- toYaml (merge (deepCopy .Values.config) $http $lease) -}}
{{- end }}
