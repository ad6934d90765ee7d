{{- /* Settings of a section as lines of TOML, from YAML. Texts, numbers, booleans and lists are the same in JSON. */}}
{{- define "umbo.settings" -}}
{{- range $key, $value := . }}
    {{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}

{{- /* Where the pods of a role run, and by what they pull: `include "umbo.placement" (list $ VALUES)`. */}}
{{- define "umbo.placement" -}}
{{- $role := index . 1 }}
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $role.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $role.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $role.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* Further items of a list: `include "umbo.items" LIST`. */}}
{{- define "umbo.items" -}}
{{- range . }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- /*
How the kubelet asks a port of a dispatcher: `include "umbo.probe" (list $ PATH PORT)`. It has no certificate to show:
where clients need one, a pod is ready while its port is open.
*/}}
{{- define "umbo.probe" -}}
{{- $tls := (index . 0).Values.settings.tls | default dict }}
{{- if $tls.client_ca }}tcpSocket: {port: {{ index . 2 }}}
{{- else }}httpGet: {path: {{ index . 1 }}, port: {{ index . 2 }}{{ if $tls.certificate }}, scheme: HTTPS{{ end }}}
{{- end }}
{{- end }}
