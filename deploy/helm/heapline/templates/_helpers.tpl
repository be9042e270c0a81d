{{- define "heapline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "heapline.labels" -}}
app.kubernetes.io/name: heapline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* User 0 with the capabilities of a list, and no others. The API server takes SYS_ADMIN as an escalation that must be allowed. */}}
{{- define "heapline.security" -}}
runAsUser: 0
privileged: false
allowPrivilegeEscalation: {{ has "SYS_ADMIN" . }}
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: {{ toJson . }}
{{- end -}}

{{- define "heapline.node" -}}
automountServiceAccountToken: false
priorityClassName: {{ .Values.priorityClassName }}
nodeSelector: {{ toJson .Values.nodeSelector }}
tolerations: {{ toJson .Values.tolerations }}
imagePullSecrets: {{ toJson .Values.imagePullSecrets }}
{{- end -}}
