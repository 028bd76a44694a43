{{/* The text of a value that is a YAML document, as canonical YAML. */}}
{{- define "outboard.parsed" -}}
{{- $documents := list }}
{{- range regexSplit "(?m)^---[ \t\r]*(?:#.*)?$" .text -1 }}
{{- $document := fromYaml . }}
{{- if hasKey $document "Error" }}{{ fail (printf "%s is not a YAML mapping: %s" $.name (get $document "Error")) }}{{ end }}
{{- if $document }}{{ $documents = append $documents $document }}{{ end }}
{{- end }}
{{- if ne (len $documents) 1 }}{{ fail (printf "%s has %d YAML documents, want one" .name (len $documents)) }}{{ end }}
{{- first $documents | toYaml }}
{{- end }}

{{/* What is wrong with a value by a JSON Schema, each on its own line. It has the keywords that outboard check --schema uses. at is
the path of the value. */}}
{{- define "outboard.errors" -}}
{{- $schema := .schema }}{{ $value := .value }}{{ $at := .at }}
{{- $kind := get (dict "map" "object" "slice" "array" "string" "string" "bool" "boolean" "float64" "number" "invalid" "null") (kindOf $value) }}
{{- $types := kindIs "slice" (get $schema "type") | ternary (get $schema "type") (list (default $kind (get $schema "type"))) }}
{{- if and (eq $kind "number") (has "integer" $types) (eq (floor $value) $value) }}{{ $kind = "integer" }}{{ end }}
{{- if not (has $kind $types) }}
  {{ $at }}: must be {{ without $types "null" | join " or " }}
{{- else if and (hasKey $schema "enum") (not (has $value $schema.enum)) }}
  {{ $at }}: {{ toJson $value }} is not one of {{ without $schema.enum nil | join ", " }}
{{- else if and (hasKey $schema "const") (ne (toJson $value) (toJson $schema.const)) }}
  {{ $at }}: must be {{ $schema.const }}
{{- else if eq $kind "object" }}
{{- range $name, $field := $value }}
{{- $path := printf "%s.%s" $at $name | trimPrefix "." }}
{{- $known := default dict (get $schema "properties") }}
{{- if hasKey $known $name }}{{ include "outboard.errors" (dict "schema" (get $known $name) "value" $field "at" $path) }}
{{- else if kindIs "map" (get $schema "additionalProperties") }}{{ include "outboard.errors" (dict "schema" (get $schema "additionalProperties") "value" $field "at" $path) }}
{{- else if eq (toJson (get $schema "additionalProperties")) "false" }}
  {{ $path }}: unknown field; there are {{ keys $known | sortAlpha | join ", " }}
{{- end }}
{{- end }}
{{- range default list (get $schema "required") }}{{ if not (hasKey $value .) }}
  {{ printf "%s.%s" $at . | trimPrefix "." }}: required
{{- end }}{{ end }}
{{- else if eq $kind "array" }}
{{- if lt (len $value) (int (default 0 (get $schema "minItems"))) }}
  {{ $at }}: must have at least {{ (get $schema "minItems") }}
{{- end }}
{{- range $i, $item := $value }}{{ include "outboard.errors" (dict "schema" (default dict (get $schema "items")) "value" $item "at" (printf "%s[%d]" $at $i)) }}{{ end }}
{{- else if eq $kind "string" }}
{{- if or (lt (len $value) (int (default 0 (get $schema "minLength")))) (not (regexMatch (default "" (get $schema "pattern")) $value)) }}
  {{ $at }}: {{ toJson $value }} is not valid
{{- end }}
{{- else if has $kind (list "number" "integer") }}
{{- if or (and (hasKey $schema "minimum") (lt $value $schema.minimum)) (and (hasKey $schema "maximum") (gt $value $schema.maximum)) (and (hasKey $schema "exclusiveMinimum") (le $value $schema.exclusiveMinimum)) }}
  {{ $at }}: {{ toJson $value }} is out of range
{{- end }}
{{- end }}
{{- range default list (get $schema "allOf") }}{{ include "outboard.errors" (dict "schema" . "value" $value "at" $at) }}{{ end }}
{{- if (get $schema "if") }}{{ if not (include "outboard.errors" (dict "schema" (get $schema "if") "value" $value "at" $at)) }}
{{- include "outboard.errors" (dict "schema" (get $schema "then") "value" $value "at" $at) }}
{{- end }}{{ end }}
{{- if get $schema "not" }}{{ if not (include "outboard.errors" (dict "schema" (get $schema "not") "value" $value "at" $at)) }}
  {{ $at }}: must not be {{ toJson $value }}
{{- end }}{{ end }}
{{- range $keyword := list "anyOf" "oneOf" }}
{{- $valid := 0 }}{{ $names := list }}
{{- range default list (get $schema $keyword) }}
{{- if not (include "outboard.errors" (dict "schema" . "value" $value "at" $at)) }}{{ $valid = add1 $valid }}{{ end }}
{{- $names = concat $names (default list (get . "required")) }}
{{- end }}
{{- if and $names (or (eq (int $valid) 0) (and (eq $keyword "oneOf") (gt (int $valid) 1))) }}
  {{ $at }}: must have {{ eq $keyword "oneOf" | ternary "exactly" "at least" }} one of {{ join ", " $names }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails if another release has installed Outboard in the cluster, which only commands with a cluster know. */}}
{{- define "outboard.checkRelease" -}}
{{- $role := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "outboard" }}
{{- $name := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $role }}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $role }}
{{- if and $name (or (ne $name .Release.Name) (ne $namespace .Release.Namespace)) }}
{{- fail (printf "the release %s in the namespace %s serves this cluster, and a cluster has one release: add profiles to its configuration, each with its own path" $name $namespace) }}
{{- end }}
{{- end }}

{{/* Fails if the kube-scheduler that the chart installs cannot use its configuration, or calls what Outboard does not serve. */}}
{{- define "outboard.checkScheduler" -}}
{{- $namespace := .Release.Namespace }}
{{- $scheduler := include "outboard.parsed" (dict "name" "scheduler.config" "text" (include "outboard.scheduler" .)) | fromYaml }}
{{- $print := printf "print it with outboard setup scheduler --for service --outboard-namespace %s" $namespace }}
{{- if ne (toString (get $scheduler "kind")) "KubeSchedulerConfiguration" }}{{ fail (printf "scheduler.config is not a KubeSchedulerConfiguration: %s" $print) }}{{ end }}
{{- $election := default dict (get $scheduler "leaderElection") }}
{{- if and (ne (toString (get $election "leaderElect")) "false") (or (ne (toString (get $election "resourceNamespace")) $namespace) (not (get $election "resourceName"))) }}
{{- fail (printf "scheduler.config: leaderElection needs a resourceName, and the resourceNamespace %s: %s" $namespace $print) }}
{{- end }}
{{- $served := list }}
{{- range get (include "outboard.config" . | fromYaml) "profiles" }}
{{- $path := default "/" (get . "path") }}
{{- if get . "verb" }}{{ $served = append $served (clean $path) }}
{{- else }}{{ range list "filter" "prioritize" "preempt" "bind" }}{{ $served = append $served (clean (printf "%s/%s" $path .)) }}{{ end }}
{{- end }}
{{- end }}
{{- range default list (get $scheduler "extenders") }}
{{- $url := urlParse (get . "urlPrefix") }}
{{- if regexMatch "^outboard[.][^.]+[.]svc($|[.:])" $url.host }}
{{- if or (ne (index (splitList "." $url.host) 1) $namespace) (ne $url.scheme "https") (ne (toString (get . "enableHTTPS")) "true") }}
{{- fail (printf "scheduler.config: urlPrefix %s: must be https://outboard.%s.svc with enableHTTPS: %s" (get . "urlPrefix") $namespace $print) }}
{{- end }}
{{- range list (get . "filterVerb") (get . "prioritizeVerb") (get . "preemptVerb") (get . "bindVerb") }}
{{- $called := clean (printf "%s/%s" $url.path .) }}
{{- if and . (not (has $called $served)) }}
{{- fail (printf "scheduler.config calls %s, which no profile of config serves: %s" $called $print) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
