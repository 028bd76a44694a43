{{/* The version of the cluster without the suffix of its provider. */}}
{{- define "outboard.kubernetes" -}}
{{ regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- end }}

{{/* The configuration of Outboard without serving and admin. */}}
{{- define "outboard.policies" -}}
{{- if .Values.config }}{{ .Values.config }}
{{- else }}{{ .Files.Get (printf "presets/%s.yaml" .Values.preset) | required "preset: must be placement, gpu-sharing, licenses or utilization" }}
{{- end }}
{{- end }}

{{/* The configuration of kube-scheduler. */}}
{{- define "outboard.scheduler" -}}
{{- if .Values.scheduler.config }}{{ .Values.scheduler.config }}
{{- else if .Values.config }}{{ fail "scheduler.config is required with config: print it with outboard scheduler-config --for service" }}
{{- else }}{{ .Files.Get (printf "presets/%s-scheduler.yaml" .Values.preset) | replace "outboard-system" .Release.Namespace }}
{{- end }}
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
