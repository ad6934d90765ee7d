#!/usr/bin/env bash
# Makes an authority and two certificates that it signs, of the shard nodes and of the dispatchers:
# `certificates.sh FOLDER [RELEASE [NAMESPACE [NODES [DOMAIN]]]]`. For a start; an authority of your own is better.
# DOMAIN is the cluster's.
#
# TRUSTED=FILE, to renew: ca.crt has the authorities in that file too, so that both ends know old and new certificates.
#
# A shard node is known by its host in the map, a dispatcher by the name of its role, wherever it runs.
set -euo pipefail
folder=${1:?"say into which folder"}
release=${2:-umbo}
namespace=${3:-umbo}
nodes=${4:-3}
domain=${5:-cluster.local}
days=365

umask 077
authority=$(mktemp -d)
trap 'rm -rf "$authority"' EXIT
curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${curve[@]}" -days "$days" -subj "/CN=Umbo cluster" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout "$authority/ca.key" -out "$authority/ca.crt"

# Makes the files of one role: `sign ROLE NAMES`.
sign() {
    mkdir -p "$folder/$1"
    openssl req "${curve[@]}" -subj "/CN=umbo-$1" -keyout "$folder/$1/tls.key" -out "$authority/$1.csr"
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n' \
        "$2" >"$authority/extensions"
    openssl x509 -req -in "$authority/$1.csr" -CA "$authority/ca.crt" -CAkey "$authority/ca.key" \
        -CAserial "$authority/ca.srl" -CAcreateserial -days "$days" -extfile "$authority/extensions" \
        -out "$folder/$1/tls.crt"
    cat "$authority/ca.crt" ${TRUSTED:+"$TRUSTED"} >"$folder/$1/ca.crt"
}

hosts=''
for ((node = 0; node < nodes; node++)); do
    hosts+=",DNS:$release-shard-$node.$release-shards.$namespace.svc.$domain"
done
sign shard "${hosts#,}"
sign dispatcher "DNS:umbo-dispatcher"
echo "written: ca.crt, tls.crt and tls.key in $folder/shard and $folder/dispatcher; the authority's own key is thrown away"
