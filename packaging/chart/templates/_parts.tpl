{{- define "liqod.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "liqod.labels" -}}
app.kubernetes.io/name: liqod
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "liqod.selector" -}}
app.kubernetes.io/name: liqod
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Variables override the configuration file, see etc/liqod.toml: what the chart decides is said once, here. */}}
{{- define "liqod.environment" -}}
- {name: LIQOD_KUBERNETES__NAMESPACE, value: {{ .Release.Namespace | quote }}}
{{- with .Values.clusterName }}
- {name: LIQOD_CLUSTER__NAME, value: {{ . | quote }}}
{{- end }}
- {name: LIQOD_KUBERNETES__MANAGE_CRDS, value: "false"}
- {name: LIQOD_NETWORK__MODE, value: "none"}
{{- if .Values.webhook.service }}
- {name: LIQOD_WEBHOOK__SERVICE, value: "{{ .Release.Namespace }}/liqod-webhook"}
{{- end }}
{{- end }}

{{- define "liqod.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "liqod.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "liqod.volumes" -}}
- name: configuration
  configMap: {name: {{ . }}}
- name: scratch
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{- define "liqod.mounts" -}}
- {name: configuration, mountPath: /etc/liqod, readOnly: true}
- {name: scratch, mountPath: /tmp}
{{- end }}
