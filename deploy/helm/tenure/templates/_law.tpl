{{- /*
The numbers of `tenure check`, and what it refuses. Spans are nanoseconds. `tenure.value` and `tenure.span` take a list: the
configuration, a key, and the default.
*/ -}}
{{- define "tenure.value" -}}
{{- $at := index . 0 -}}
{{- range splitList "." (index . 1) }}{{ $at = get ($at | default dict) . }}{{ end -}}
{{- if has (toString $at) (list "" "[]" "map[]" "<nil>") }}{{ index . 2 }}{{ else }}{{ $at }}{{ end -}}
{{- end }}

{{- define "tenure.span" -}}
{{- $written := include "tenure.value" . -}}
{{- if not (regexMatch "^([0-9]+([.][0-9]+)?(h|m|s|ms|us|ns))+$" $written) -}}
  {{- fail (printf "config.%s: %q is not a duration that the chart reads: write 15s, 1m30s or 200ms" (index . 1) $written) -}}
{{- end -}}
{{- $begin := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (dateModify (print "+" $written) $begin).UnixNano $begin.UnixNano -}}
{{- end }}

{{- /* The seconds from SIGTERM to SIGKILL: withdrawal of the address, grace, kill, release, and the last spans. */ -}}
{{- define "tenure.grace" -}}
{{- $config := include "tenure.config" . | fromYaml -}}
{{- $attempt := include "tenure.span" (list $config "lease.attemptTimeout" "2s") -}}
{{- $needed := add 2000000000 (mul 2 $attempt) (include "tenure.span" (list $config "workload.stop.grace" "20s")) (include "tenure.span" (list $config "workload.stop.killMargin" "1s")) -}}
{{- if include "tenure.value" (list $config "service.endpointSlice" "") }}{{ $needed = add $needed 500000000 }}{{ end -}}
{{- if eq "delete" (include "tenure.value" (list $config "lease.release" "clear")) -}}
  {{- $needed = add $needed $attempt -}}
  {{- if ne "0" (include "tenure.span" (list $config "lease.creationWait" "1s")) -}}
    {{- $period := include "tenure.span" (list $config "lease.renewPeriod" "3s") -}}
    {{- $needed = add $needed $period (div $period 10) 200000000 -}}
  {{- end -}}
{{- end -}}
{{- div (add $needed 999999999) 1000000000 -}}
{{- end }}

{{- /* The failures of the liveness probe, one each 5 s, that leave init lease.duration and 2 s to replace a hung elector. */ -}}
{{- define "tenure.failures" -}}
{{- $config := include "tenure.config" . | fromYaml -}}
{{- add 1 (div (add (include "tenure.span" (list $config "lease.duration" "15s")) 6999999999) 5000000000) -}}
{{- end }}

{{- /* One line for each thing that tenure or the cluster would refuse. */ -}}
{{- define "tenure.refused" -}}
{{- $config := include "tenure.config" . | fromYaml -}}
{{- $duration := include "tenure.span" (list $config "lease.duration" "15s") | int64 -}}
{{- $period := include "tenure.span" (list $config "lease.renewPeriod" "3s") | int64 -}}
{{- $attempt := include "tenure.span" (list $config "lease.attemptTimeout" "2s") | int64 -}}
{{- $margin := include "tenure.span" (list $config "workload.stop.killMargin" "1s") | int64 -}}
{{- $lossGrace := include "tenure.span" (list $config "workload.stop.lossGrace" "4s") | int64 -}}
{{- $grace := include "tenure.span" (list $config "workload.stop.grace" "20s") | int64 -}}
{{- $wait := include "tenure.span" (list $config "lease.creationWait" "0s") | int64 -}}
{{- $percent := include "tenure.value" (list $config "lease.clockDrift" "1%") | trim | trimSuffix "%" | trim }}
{{- $drift := round (mulf $percent 10000) 0 | int64 -}}
{{- range list (list "lease.duration" $duration 3000000000 "3s") (list "lease.renewPeriod" $period 1000000000 "1s") (list "lease.attemptTimeout" $attempt 10000000 "10ms") (list "workload.stop.killMargin" $margin 100000000 "100ms") }}
  {{- if lt (index . 1) (index . 2 | int64) }}
    config.{{ index . 0 }}: {{ index . 3 }} is the shortest
  {{- end }}
{{- end }}
{{- range list (list "lease.duration" $duration) (list "lease.creationWait" $wait) }}
  {{- if or (mod (index . 1) 1000000000) (gt (index . 1) 2147483647000000000) }}
    config.{{ index . 0 }}: write whole seconds, 2147483647s at most
  {{- end }}
{{- end }}
{{- if or (lt $drift 100) (gt $drift 200000) }}
  config.lease.clockDrift: write a percentage from 0.01% to 20%
{{- else }}
  {{- /* S has to leave two attempts, and more than 1.2 times the period; the period is a third of the duration at most. */}}
  {{- $soft := max (add $period (mul 2 (add $attempt 200000000))) (add 1 (div (mul 6 $period) 5)) }}
  {{- $second := sub 1000000000 (mul 1000 $drift) }}
  {{- $least := max (div (sub (add $soft $lossGrace $margin $second) 1) $second) (div (add (mul 3 $period) 999999999) 1000000000) }}
  {{- if lt $duration (mul $least 1000000000) }}
    config.lease.duration: two attempts to renew do not fit before the workload must be stopped, or lease.renewPeriod is more than a third: write {{ $least }}s or more, or shorten lease.renewPeriod, lease.attemptTimeout or workload.stop.lossGrace
  {{- end }}
{{- end }}
{{- $namespace := include "tenure.value" (list $config "lease.namespace" .Release.Namespace) }}
{{- if ne $namespace .Release.Namespace }}
  config.lease.namespace: the Lease, and the rights to it, are in the namespace of the release: install it there
{{- end }}
{{- $name := include "tenure.leases" . | fromJsonArray | first }}
{{- if not $name }}
  config.lease.name: use a to z and 0 to 9, with hyphens and dots between
{{- end }}
{{- $slots := include "tenure.value" (list $config "lease.slots" "1") | int }}
{{- if or (lt $slots 1) (gt $slots 64) }}
  config.lease.slots: write a number from 1 to 64
{{- else if and (gt $slots 1) (gt (len $name) 63) }}
  config.lease.name: with several slots write at most 63 characters, lease.prefix included
{{- end }}
{{- if eq "false" (include "tenure.value" (list $config "lease.enabled" "true")) }}
  config.lease.enabled: without a Lease tenure answers no probes: use a Deployment of your own
{{- end }}
{{- if and .Values.witness (eq "keep" (include "tenure.value" (list $config "lease.release" "clear"))) }}
  config.lease.release: with keep a witness has nothing to do: set witness to false, or the release to clear
{{- end }}
{{- if not (or .Values.args (include "tenure.value" (list $config "workload.command" ""))) }}
  args, or config.workload.command, is required
{{- end }}
{{- $runs := include "tenure.value" (list $config "workload.runs" "leading") }}
{{- $acknowledge := include "tenure.value" (list $config "workload.acknowledge" "") }}
{{- $standby := include "tenure.value" (list $config "standby.command" "") }}
{{- if ne $runs "always" }}
  {{- range list "signals.onLead" "signals.onFollow" "workload.acknowledge" }}
    {{- if include "tenure.value" (list $config . "") }}
      config.{{ . }}: set workload.runs to always, or remove this key
    {{- end }}
  {{- end }}
{{- else }}
  {{- if not $acknowledge }}
    config.workload.acknowledge: with runs: always write hook, notify or none
  {{- end }}
  {{- range list (list "signals.onLead" "afterLead") (list "signals.onFollow" "beforeFollow") }}
    {{- $hook := include "tenure.value" (list $config (printf "hooks.%s.command" (index . 1)) "") }}
    {{- if not (or $hook (include "tenure.value" (list $config (index . 0) ""))) }}
      config.{{ index . 0 }}: nothing tells the workload its role: set this, or hooks.{{ index . 1 }}
    {{- else if and (eq $acknowledge "hook") (not $hook) }}
      config.workload.acknowledge: hook needs both hooks: set hooks.{{ index . 1 }}.command
    {{- end }}
  {{- end }}
{{- end }}
{{- if and $standby (ne $runs "leading") }}
  config.standby.command: standbys run the workload itself: remove this key, or set workload.runs to leading
{{- end }}
{{- range $hook := list "beforeLead" "afterLead" "beforeFollow" "afterFollow" }}
  {{- $keys := dict "hook" (dig "hooks" dict $config | default dict | dig $hook dict | default dict) }}
  {{- $timeout := include "tenure.span" (list $keys "hook.timeout" "10s") | int64 }}
  {{- if include "tenure.value" (list $keys "hook.command" "") }}
    {{- if not $timeout }}
      config.hooks.{{ $hook }}.timeout: write a duration such as 10s
    {{- else if and (eq $hook "beforeFollow") (ne $runs "always") (ge $timeout $grace) }}
      config.hooks.{{ $hook }}.timeout: it is a part of workload.stop.grace: make it shorter
    {{- end }}
  {{- else if or (ne $timeout 10000000000) (ne "abort" (include "tenure.value" (list $keys "hook.onFailure" "abort"))) }}
    config.hooks.{{ $hook }}: write the command that it runs
  {{- end }}
{{- end }}
{{- $asked := "" }}
{{- range $probe := list "liveness" "readiness" }}
  {{- $ways := list }}
  {{- $said := false }}
  {{- range list (list "exec.command" "") (list "http.port" "0") (list "tcp.port" "0") (list "file.path" "") (list "notify" "false") }}
    {{- $way := include "tenure.value" (list $config (printf "workload.%s.%s" $probe (index . 0)) (index . 1)) }}
    {{- if ne $way (index . 1) }}{{ $ways = append $ways (index . 0) }}{{ end }}
  {{- end }}
  {{- $asked = join ", " $ways }}
  {{- range list (list "initialDelay" "0s") (list "period" "10s") (list "timeout" "1s") (list "successThreshold" "1") (list "failureThreshold" "3") }}
    {{- $value := include "tenure.value" (list $config (printf "workload.%s.%s" $probe (index . 0)) (index . 1)) }}
    {{- if ne $value (index . 1) }}{{ $said = true }}{{ end }}
    {{- if and (ne (index . 0) "initialDelay") (has $value (list "0" "0s" "0ms")) }}
      config.workload.{{ $probe }}.{{ index . 0 }}: 0 leaves no time or is never reached
    {{- end }}
  {{- end }}
  {{- if gt (len $ways) 1 }}
    config.workload.{{ $probe }}: a probe has only one way to ask: remove one of {{ $asked }}
  {{- else if and $said (not $ways) }}
    config.workload.{{ $probe }}: set notify, exec, http, tcp or file
  {{- else if and $ways (eq $probe "liveness") (eq $runs "frozen") }}
    config.workload.liveness: a frozen workload cannot answer: remove the probe
  {{- end }}
{{- end }}
{{- range list (list "workload.startTimeout" "") (list "workload.candidate" "any") (list "http.ready" "always") }}
  {{- if and (not $asked) (ne (include "tenure.value" (list $config (index . 0) (index . 1))) (index . 1)) }}
    config.{{ index . 0 }}: set workload.readiness too
  {{- end }}
{{- end }}
{{- if and (eq $runs "leading") (eq "ready" (include "tenure.value" (list $config "workload.candidate" "any"))) }}
  config.workload.candidate: a standby runs no workload that could be ready: set workload.runs to always or frozen
{{- end }}
{{- $slice := include "tenure.value" (list $config "service.endpointSlice" "") }}
{{- $published := dig "service" "ports" "" $config }}
{{- if and $slice (not $published) }}
  config.service.ports: write the ports of the workload
{{- else if and $published (not $slice) }}
  config.service.endpointSlice: write the name of the EndpointSlice in which the ports are published
{{- end }}
{{- if has (include "tenure.value" (list $config "workload.stop.signal" "TERM") | trimPrefix "SIG") (list "KILL" "STOP") }}
  config.workload.stop.signal: this signal cannot be caught: for a kill without grace set grace and lossGrace to 0s
{{- end }}
{{- range .Values.ports }}
  {{- if eq (toString .containerPort) (include "tenure.port" $) }}
    ports: tenure itself listens on {{ .containerPort }}: set config.http.listen to another port, such as 0.0.0.0:8079
  {{- end }}
{{- end }}
{{- if regexMatch "^(127[.]|localhost:|\\[[0:]*(:ffff:(127[.]|7f)|:0*1\\]))" (include "tenure.listen" . | lower) }}
  config.http.listen: the kubelet's probes reach the pod's address, and no loopback address: write 0.0.0.0:{{ include "tenure.port" . }}
{{- end }}
{{- range $key, $image := dict "image" .Values.image "inject" .Values.inject }}
  {{- if and $image.repository (not (or $image.tag $image.digest)) }}
    {{ $key }}: set tag or digest, so that all nodes run the same image
  {{- end }}
{{- end }}
{{- $own := splitList " " "POD_NAME POD_NAMESPACE POD_IPS POD_UID NODE_NAME" }}
{{- range .Values.env }}
  {{- if regexMatch "^TENURE_(CONFIG$|(LEASE|HTTP|SERVICE|EVENTS|WORKLOAD__STOP)__)" .name }}
    env: {{ .name }} would override what the chart computes from config: set the key in config
  {{- else if has .name $own }}
    env: the chart sets {{ .name }} itself: remove it
  {{- end }}
{{- end }}
{{- range list (list "podLabels" "app.kubernetes.io/name") (list "podLabels" "app.kubernetes.io/instance") (list "podAnnotations" "checksum/config") }}
  {{- if hasKey (get $.Values (index . 0) | default dict) (index . 1) }}
    {{ index . 0 }}: the chart sets {{ index . 1 }} itself: remove it
  {{- end }}
{{- end }}
{{- /* Of two entries with one name or path an upgrade by Helm 3 drops one without a word. */}}
{{- $parts := list "ports tenure" "volumes config" "volumes tmp" "volumeMounts /etc/tenure" "volumeMounts /tmp" }}
{{- if .Values.inject.repository }}{{ $parts = concat $parts (list "volumes tenure" "initContainers install" "volumeMounts /opt/tenure") }}{{ end }}
{{- if .Values.witness }}{{ $parts = concat $parts (list "volumes witness" "initContainers witness" "volumeMounts /run/tenure") }}{{ end }}
{{- if has (printf "initContainers %s" (include "tenure.called" .)) $parts }}
  nameOverride: the chart has an init container {{ include "tenure.called" . }}: use another name
{{- end }}
{{- $parts = append $parts (printf "initContainers %s" (include "tenure.called" .)) }}
{{- range $key := list "ports" "volumes" "volumeClaimTemplates" "initContainers" "volumeMounts" }}
  {{- range get $.Values $key | default list }}
    {{- $name := .mountPath | default .name | default (dig "metadata" "name" "" .) }}
    {{- if has (printf "%s %s" ($key | replace "volumeClaimTemplates" "volumes") (clean $name)) $parts }}
      {{ $key }}: the chart has {{ $name }} itself: use another {{ ternary "path" "name" (eq $key "volumeMounts") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $longest := ternary 52 63 (eq .Values.kind "StatefulSet") }}
{{- /* A StatefulSet has a Service of its name, which begins with a letter and has no dot. */}}
{{- $isNamed := or (ne .Values.kind "StatefulSet") (regexMatch "^[a-z][-a-z0-9]*$" (include "tenure.name" .)) }}
{{- if not (and $isNamed (le (include "tenure.name" . | len) $longest) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" (include "tenure.called" .))) }}
  nameOverride: with the name of the release it makes {{ include "tenure.name" . }}: use a to z, 0 to 9 and hyphens, {{ $longest }} characters at most
{{- end }}
{{- if not (regexMatch "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[1-9][0-9]*$" (include "tenure.listen" .)) }}
  config.http.listen: the probes need an address and a port: write [::]:8080
{{- end }}
{{- if and .Values.volumeClaimTemplates (ne .Values.kind "StatefulSet") }}
  volumeClaimTemplates: set kind to StatefulSet
{{- end }}
{{- $needed := include "tenure.grace" . | int64 }}
{{- if and .Values.terminationGracePeriodSeconds (lt (int64 .Values.terminationGracePeriodSeconds) $needed) }}
  terminationGracePeriodSeconds: config needs {{ $needed }} or more
{{- end }}
{{- $needed := include "tenure.failures" . | int64 }}
{{- if and .Values.livenessFailureThreshold (lt (int64 .Values.livenessFailureThreshold) $needed) }}
  livenessFailureThreshold: config needs {{ $needed }} or more
{{- end }}
{{- end }}
