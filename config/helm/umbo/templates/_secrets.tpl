{{- /*
The name of a role's secret: `include "umbo.secret" (list $ ROLE NAME)`, where NAME may be empty. Refuses an upgrade to
a secret that does not exist: pods would wait for it, and the shards of the first one would be away. The settings of
the release are looked up to know that a cluster is asked at all.
*/}}
{{- define "umbo.secret" -}}
{{- $release := (index . 0).Release }}
{{- $role := index . 1 }}
{{- $name := index . 2 | default (printf "%s-%s-tls" $release.Name $role) }}
{{- if and $release.IsUpgrade (lookup "v1" "ConfigMap" $release.Namespace (printf "%s-config" $release.Name)) }}
{{- if not (lookup "v1" "Secret" $release.Namespace $name) }}
{{- fail (printf "the secret %s is missing, so pods of this version cannot start. Before an upgrade from the version with one secret, fill it from %s-cluster-tls: see From one secret to two in config/kubernetes/README.md" $name $release.Name) }}
{{- end }}
{{- end }}
{{- $name }}
{{- end }}
