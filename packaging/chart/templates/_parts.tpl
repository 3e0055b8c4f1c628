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

{{- /* The daemon is all of liqod, or control where other pods have a part of it (docs/decisions.md, "Three processes"). */}}
{{- define "liqod.role" -}}
{{ ternary "control" "all" (or .Values.network.enabled .Values.names.enabled) }}
{{- end }}

{{- /* Variables override the configuration file, see etc/liqod.toml: what the chart decides is said once, here. */}}
{{- define "liqod.environment" -}}
- {name: LIQOD_KUBERNETES__NAMESPACE, value: {{ .Release.Namespace | quote }}}
{{- with .Values.clusterName }}
- {name: LIQOD_CLUSTER__NAME, value: {{ . | quote }}}
{{- end }}
- {name: LIQOD_KUBERNETES__MANAGE_CRDS, value: "false"}
{{- if not .Values.network.enabled }}
- {name: LIQOD_NETWORK__MODE, value: "none"}
{{- end }}
{{- if .Values.names.enabled }}
- {name: LIQOD_NAMES__ENABLED, value: "true"}
{{- end }}
{{- if .Values.webhook.service }}
- {name: LIQOD_WEBHOOK__SERVICE, value: "{{ .Release.Namespace }}/liqod-webhook"}
{{- end }}
{{- if and .Values.webhook.service (not .Values.hostNetwork) }}
- {name: LIQOD_KUBERNETES__LEADER_SERVICES, value: '["liqod-webhook", "liqod-peers"]'}
{{- else if .Values.webhook.service }}
- {name: LIQOD_KUBERNETES__LEADER_SERVICES, value: '["liqod-webhook"]'}
{{- else if not .Values.hostNetwork }}
- {name: LIQOD_KUBERNETES__LEADER_SERVICES, value: '["liqod-peers"]'}
{{- end }}
{{- end }}

{{- /* The pages of the daemon, which other pods and the probes of kubelets reach: with TLS, and for whom the cluster lets. */}}
{{- define "liqod.pages" -}}
- {name: LIQOD_METRICS__LISTEN, value: "tcp:{{ .Values.metrics.port }}"}
- {name: LIQOD_METRICS__TLS, value: own}
- {name: LIQOD_METRICS__AUTHENTICATION, value: kubernetes}
{{- end }}

{{- /* Each pod says who it is, and where its node, or the cluster, reaches it. */}}
{{- define "liqod.place" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: LIQOD_LEADER__IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: LIQOD_KUBELET__NODE_ADDRESS
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{- define "liqod.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* What may change the network of its node, as the unit of the network agent may: no more, unless it is privileged. */}}
{{- define "liqod.networker" -}}
runAsUser: 0
runAsGroup: 0
readOnlyRootFilesystem: true
{{- if .Values.network.privileged }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- end }}

{{- /* Asks a process for names in its own pod, where no kubelet gets to; a page with a problem is an error. A program that
       starts every few seconds imports little. */}}
{{- define "liqod.asks" -}}
[/opt/liqod/bin/python3, -I, -S, -c, "import socket, sys; asked = socket.create_connection(('127.0.0.1', 5878), 10); asked.sendall(b'GET /{{ . }} HTTP/1.0\\r\\n\\r\\n'); answer = asked.recv(4096).decode(); sys.exit(0 if ' 200 ' in answer[:16] else answer)"]
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

{{- /* Virtual nodes are other clusters: nothing of this cluster's liqod runs there. */}}
{{- define "liqod.real" -}}
{key: liqo.io/type, operator: NotIn, values: [virtual-node]}
{{- end }}
