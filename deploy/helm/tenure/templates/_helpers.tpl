{{- define "tenure.called" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end }}

{{- define "tenure.name" -}}
{{- $called := include "tenure.called" . -}}
{{- if contains $called .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name $called }}{{ end -}}
{{- end }}

{{- define "tenure.account" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is required where serviceAccount.create is false" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "tenure.name" .) -}}
{{- end }}

{{- define "tenure.labels" -}}
app.kubernetes.io/name: {{ include "tenure.called" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* `config`, a map or a file, without its empty sections, as YAML. */ -}}
{{- define "tenure.config" -}}
{{- $config := .Values.config -}}
{{- if kindIs "string" $config -}}
{{- $text := $config -}}
{{- $config = fromYaml $text -}}
{{- with $config.Error }}{{ fail (printf "config: %s" .) }}{{ end -}}
{{- if regexMatch "(?m)^(---|[.]{3})(\\s|$)" (regexReplaceAll "\\A(\\s*(#[^\\n]*)?\\n)*---" $text "") }}{{ fail "config: Helm reads only the first document: remove --- and ... from it" }}{{ end -}}
{{- $keys := regexFindAll "(?m)^\\w+ *:" $text -1 -}}
{{- if ne (len $keys) (uniq $keys | len) }}{{ fail "config: a section stands there twice, and Helm drops the first: write it once" }}{{ end -}}
{{- /* Helm reads YAML 1.1: it makes a boolean or a number of each such word without quotes. As a part of another word it stays a text. */ -}}
{{- $other := fromYaml (regexReplaceAll "(?i)(^|[^\\w\\\\|>+-][-+.]*)(y|n|yes|no|on|off|[0-9][\\w.]*)\\b" $text "${1}${2}!x!") -}}
{{- if ne (regexFindAll "true|false" (toJson $config) -1 | len) (regexFindAll "true|false" (toJson $other) -1 | len) -}}
{{- fail "config: an unquoted yes, no, on, off, y or n is ambiguous: quote it, or write true or false" -}}
{{- end -}}
{{- if ne (toJson $config | replace "\"" "") (toJson $other | replace "!x!" "" | replace "\"" "") }}{{ fail "config: an unquoted number that Helm would write in another way is ambiguous: quote it, or write only its digits" }}{{ end -}}
{{- end -}}
{{- $said := dict -}}
{{- range $section, $keys := $config }}{{ if $keys }}{{ $_ := set $said $section $keys }}{{ end }}{{ end -}}
{{- toYaml $said -}}
{{- end }}

{{- define "tenure.lease" -}}
{{- dig "lease" "name" "" (include "tenure.config" . | fromYaml) | default (include "tenure.name" .) -}}
{{- end }}

{{- define "tenure.listen" -}}
{{- dig "http" "listen" "" (include "tenure.config" . | fromYaml) | default "[::]:8080" -}}
{{- end }}

{{- define "tenure.port" -}}
{{- include "tenure.listen" . | splitList ":" | last -}}
{{- end }}

{{- define "tenure.binary" -}}
{{- if .Values.inject.repository }}/opt/tenure/tenure{{ else }}/tenure{{ end -}}
{{- end }}

{{- define "tenure.image" -}}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository .tag }}{{ end -}}
{{- end }}

{{- /* The name of the first slot and those of the others, as JSON. tenure.leases makes the name valid in the same way as tenure. */ -}}
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

{{- /* The attributes of its spans that `env` sets: a list of variables may name each only once. */ -}}
{{- define "tenure.attributes" -}}
{{- range .Values.env }}{{ if eq .name "OTEL_RESOURCE_ATTRIBUTES" }}set{{ end }}{{ end -}}
{{- end }}

{{- /* What the chart's own containers may do. The pod says as which user. */ -}}
{{- define "tenure.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
