{{/* The version of the cluster without the suffix of its provider. */}}
{{- define "outboard.kubernetes" -}}
{{ regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- end }}

{{/* The configuration file of Outboard: of the preset, or of config. */}}
{{- define "outboard.config" -}}
{{- if .Values.config }}{{ include "outboard.own" . }}
{{- else -}}
{{ include "outboard.head" . }}
    allowedClients: [system:kube-scheduler]
admin:
  address: 0.0.0.0:8081
  expose: Metrics # the rest only for kubectl port-forward and kubectl exec
{{ $preset := .Files.Get (printf "presets/%s.yaml" .Values.preset) | required "preset: must be placement, gpu-sharing, gpushare, licenses or utilization" }}
{{- /* Without the second scheduler, pods of the cluster's own one use Outboard, whatever its name. */}}
{{- if not .Values.scheduler.enabled }}{{ $preset = regexReplaceAll "(?m)^  schedulerNames: .*\n" $preset "" }}{{ end }}
{{- with .Values.simulatedGPUs }}{{ if .count }}
{{- if or (ne $.Values.preset "gpu-sharing") (not $.Values.scheduler.enabled) }}{{ fail "simulatedGPUs needs preset=gpu-sharing and scheduler.enabled" }}{{ end }}
{{- $preset = $preset | replace "GPUFractioning}" (printf "GPUFractioning, simulatedGPUs: {count: %d, memory: %d}}" (int .count) (mul .memory 1024)) }}
{{- end }}{{ end }}
{{- trim $preset }}
{{- end }}
{{- end }}

{{/* What depends on the objects of the chart. */}}
{{- define "outboard.head" -}}
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving:
  address: 0.0.0.0:8443
  tls:
    certFile: /etc/outboard/tls/tls.crt
    keyFile: /etc/outboard/tls/tls.key
    clientCAFile: /etc/outboard/tls/ca.crt
{{- end }}

{{/* The value config as the file of Outboard. Addresses and files of certificates are those of the chart. */}}
{{- define "outboard.own" -}}
{{- $own := include "outboard.parsed" (dict "name" "config" "text" .Values.config) | fromYaml }}
{{- $head := include "outboard.head" . | fromYaml }}
{{- if .Values.validateConfig }}
{{- $errors := include "outboard.errors" (dict "schema" (.Files.Get "configuration.schema.json" | fromJson) "value" (merge (deepCopy $own) $head) "at" "") }}
{{- if $errors }}
{{- fail (printf "config is not valid; outboard check reports all errors:%s" $errors) }}
{{- end }}
{{- end }}
{{- $serving := merge (get $head "serving") (omit (default dict (get $own "serving")) "insecure") }}
{{- $admin := dict "address" "0.0.0.0:8081" "expose" "Metrics" }}
{{- merge (dict "serving" $serving "admin" $admin) (omit $own "serving" "admin") $head | toYaml }}
{{- end }}

{{/* The fields of the file that take effect only when Outboard starts. */}}
{{- define "outboard.startConfig" -}}
{{ omit (include "outboard.config" . | fromYaml) "profiles" "signals" | toYaml }}
{{- end }}

{{/* The configuration file of kube-scheduler. */}}
{{- define "outboard.scheduler" -}}
{{- if .Values.scheduler.config }}{{ .Values.scheduler.config }}
{{- else if .Values.config }}{{ fail "scheduler.config is required with config: print it with outboard setup scheduler --for service" }}
{{- else }}{{ .Files.Get (printf "presets/%s-scheduler.yaml" .Values.preset) | replace "outboard-system" .Release.Namespace }}
{{- end }}
{{- end }}

{{/* What the configuration needs from the API server, in addition to nodes, pods and disruption budgets. A policy that the chart does
not know may make allocations. */}}
{{- define "outboard.needs" -}}
{{- $config := include "outboard.config" . | fromYaml }}
{{- $withoutAllocations := list "Cost" "HardwareHealth" "ImageLocality" "PodLimit" "RemoteClusters" "ResourceClaims" "Rules" "Utilization" }}
{{- $needs := dict "allocations" false "unhealthyGPUs" false "devices" false "metrics" false "bind" (not .Values.scheduler.enabled) }}
{{- range get $config "profiles" }}{{ range .policies }}
{{- if not (has .type $withoutAllocations) }}{{ $_ := set $needs "allocations" true }}{{ end }}
{{- if eq .type "GPUMemory" }}{{ $_ := set $needs "unhealthyGPUs" true }}{{ end }}
{{- if eq .type "ResourceClaims" }}{{ $_ := set $needs "devices" true }}{{ end }}
{{- end }}{{ end }}
{{- range default list (get $config "signals") }}
{{- if get . "metrics" }}{{ $_ := set $needs "metrics" true }}{{ end }}
{{- end }}
{{- if .Values.scheduler.enabled }}
{{- range default list (get (include "outboard.scheduler" . | fromYaml) "extenders") }}
{{- if get . "bindVerb" }}{{ $_ := set $needs "bind" true }}{{ end }}
{{- end }}
{{- end }}
{{- $_ := set $needs "touch" (or $needs.allocations (ne (dig "requeue" "perSecond" 20.0 $config) 0.0)) }}
{{- toYaml $needs }}
{{- end }}

{{/* For pods of the restricted Pod Security Standard. */}}
{{- define "outboard.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "outboard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods run and which registries they may use. */}}
{{- define "outboard.podFields" -}}
{{- $fields := dict "imagePullSecrets" .root.imagePullSecrets "nodeSelector" .values.nodeSelector "affinity" .values.affinity "tolerations" .values.tolerations }}
{{- range $name, $value := $fields }}{{ if not $value }}{{ $_ := unset $fields $name }}{{ end }}{{ end }}
{{- if $fields }}{{ toYaml $fields }}{{ end }}
{{- end }}

{{/* The files of a certificate: pods do not start before the Secret has all of them. */}}
{{- define "outboard.keys" -}}
items: [{key: ca.crt, path: ca.crt}, {key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
