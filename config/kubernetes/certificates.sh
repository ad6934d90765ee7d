#!/usr/bin/env bash
# Makes an authority and the one certificate that shard nodes and dispatchers show each other:
# `certificates.sh FOLDER`. For a start; an authority of your own is better.
set -euo pipefail
folder=${1:?"say into which folder"}
days=365
names="DNS:umbo-dispatcher,DNS:umbo-shard-0.umbo-shards.umbo.svc.cluster.local"
names+=",DNS:umbo-shard-1.umbo-shards.umbo.svc.cluster.local"
names+=",DNS:umbo-shard-2.umbo-shards.umbo.svc.cluster.local"

umask 077
mkdir -p "$folder"
authority=$(mktemp -d)
trap 'rm -rf "$authority"' EXIT
curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${curve[@]}" -days "$days" -subj "/CN=Umbo cluster" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout "$authority/ca.key" -out "$folder/ca.crt"
openssl req "${curve[@]}" -subj "/CN=umbo" -keyout "$folder/tls.key" -out "$authority/tls.csr"
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n' \
    "$names" >"$authority/extensions"
openssl x509 -req -in "$authority/tls.csr" -CA "$folder/ca.crt" -CAkey "$authority/ca.key" \
    -CAserial "$authority/ca.srl" -CAcreateserial -days "$days" -extfile "$authority/extensions" -out "$folder/tls.crt"
echo "written: $folder/ca.crt, $folder/tls.crt, $folder/tls.key; the authority's own key is thrown away"
