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

{{- /* `config` without the sections in which nothing is said, as YAML. */ -}}
{{- define "tenure.config" -}}
{{- $said := dict -}}
{{- range $section, $keys := .Values.config }}{{ if $keys }}{{ $_ := set $said $section $keys }}{{ end }}{{ end -}}
{{- $elsewhere := dig "lease" "namespace" "" $said -}}
{{- if and $elsewhere (ne $elsewhere .Release.Namespace) -}}
{{- fail "config.lease.namespace: the Lease, and the rights to it, are in the namespace of the release: install it there" -}}
{{- end -}}
{{- toYaml $said -}}
{{- end }}

{{- define "tenure.lease" -}}
{{- dig "lease" "name" "" (include "tenure.config" . | fromYaml) | default (include "tenure.name" .) -}}
{{- end }}

{{- define "tenure.listen" -}}
{{- dig "http" "listen" "" (include "tenure.config" . | fromYaml) | default "0.0.0.0:8080" -}}
{{- end }}

{{- define "tenure.binary" -}}
{{- if .Values.inject.repository }}/opt/tenure/tenure{{ else }}/tenure{{ end -}}
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
{{- $config := include "tenure.config" . | fromYaml -}}
{{- $name := printf "%s%s" (dig "lease" "prefix" "" $config) (include "tenure.lease" .) | lower -}}
{{- include "tenure.slots" (dict "config" $config "name" (regexReplaceAll "-*[.][-.]*" (regexReplaceAll "[^a-z0-9.-]" $name "-") "." | trimAll "-.")) -}}
{{- end }}

{{- define "tenure.file" -}}
{{- $fixed := dict "http" (dict "listen" (include "tenure.listen" .)) "lease" (dict "name" (include "tenure.lease" .)) -}}
{{- toYaml (mergeOverwrite (include "tenure.config" . | fromYaml) $fixed) -}}
{{- end }}
