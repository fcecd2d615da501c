{{/* The name of all objects. */}}
{{- define "lumen.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods: of this release alone. */}}
{{- define "lumen.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "lumen.labels" -}}
{{ include "lumen.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* name and labels of an object. */}}
{{- define "lumen.metadata" -}}
name: {{ include "lumen.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "lumen.labels" . | nindent 2 }}
{{- end -}}

{{- define "lumen.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Lumen's settings: `config`, and what other values say of TLS. */}}
{{- define "lumen.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.tls.secret -}}
{{- $pair := dict "cert" "/etc/lumen-tls/tls.crt" "key" "/etc/lumen-tls/tls.key" -}}
{{- $tls := dict "port" (int .Values.tls.port) "only" .Values.tls.only "certificates" (list $pair) -}}
{{- $server := $config.server | default dict -}}
{{- $_ := set $config "server" (merge (dict "tls" (merge ($server.tls | default dict) $tls)) $server) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Numbers of `config` that the pods are made by; Lumen's defaults where it names none. */}}
{{- define "lumen.port" -}}
{{- int (dig "server" "port" 8000 .Values.config) -}}
{{- end -}}
{{- define "lumen.metricsPort" -}}
{{- $port := dig "server" "metrics_port" "auto" .Values.config | toString -}}
{{- if eq $port "auto" -}}8002{{- else -}}{{- int $port -}}{{- end -}}
{{- end -}}
{{- define "lumen.graceSeconds" -}}
{{- $unready := dig "server" "unready_seconds" 5 .Values.config -}}
{{- $drain := dig "server" "drain_seconds" 5 .Values.config -}}
{{- add (ceil (addf $unready $drain)) (int .Values.terminationBeyondSeconds) -}}
{{- end -}}

{{/* Rights of each container, as YAML. */}}
{{- define "lumen.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Rights of each pod, as YAML. */}}
{{- define "lumen.podRights" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: {{ .Values.seccompProfile.type }}
  {{- if eq .Values.seccompProfile.type "Localhost" }}
  localhostProfile: {{ .Values.seccompProfile.localhostProfile }}
  {{- end }}
{{- end -}}

{{/* How the service is reached. */}}
{{- define "lumen.scheme" -}}
{{- ternary "https" "http" .Values.tls.only -}}
{{- end -}}
{{- define "lumen.servicePort" -}}
{{- int (ternary .Values.tls.port .Values.service.port .Values.tls.only) -}}
{{- end -}}

{{/* A probe's question. */}}
{{- define "lumen.ask" -}}
httpGet:
  path: /v2/health/{{ .question }}
  port: {{ include "lumen.scheme" .root }}
  {{- if .root.Values.tls.only }}
  scheme: HTTPS
  {{- end }}
{{- end -}}

{{/* What would come up in a cluster that cannot work, said before. */}}
{{- define "lumen.validate" -}}
{{- if and .Values.models.claim .Values.models.init -}}
{{- fail "models.claim and models.init are both set: expected one of them" -}}
{{- end -}}
{{- if and .Values.tls.only (not .Values.tls.secret) -}}
{{- fail "tls.only is set, and no tls.secret" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (eq (include "lumen.metricsPort" .) "0") -}}
{{- fail "serviceMonitor.enabled is set, and config.server.metrics_port is 0" -}}
{{- end -}}
{{- end -}}
