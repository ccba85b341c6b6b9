#!/bin/sh
# Makes a mirrored database by REST and publishes one Parquet file with curl, as any HTTP client would.
#
#   lakemirror access /srv/lake add shop --role sales=contribute > shop.json
#   sh first-publisher.sh https://localhost:8443 /srv/lake/.lakemirror/tls/ca.pem shop.json orders.parquet
set -eu
lake=$1 ca=$2 principal=$3 file=$4

field() { python3 -c "import json, sys; found = json.load(sys.stdin); print(found.get('$1') or sys.exit(found))"; }
call() { curl -sS --fail-with-body --cacert "$ca" -H "Authorization: Bearer $token" "$@"; }

# a token: the secret goes by a file, so that no process list shows it
printf 'grant_type=client_credentials&scope=https://storage.azure.com/.default&client_id=%s&client_secret=%s' \
    "$(field client_id < "$principal")" "$(field client_secret < "$principal")" > "$principal.form"
token=$(curl -sS --fail-with-body --cacert "$ca" "$lake/adfs/oauth2/v2.0/token" -d @"$principal.form" | field access_token)
rm "$principal.form"

# a mirrored database, started
definition=$(printf '{"properties": {"source": {"type": "GenericMirror", "typeProperties": {}},
    "target": {"type": "MountedRelationalDatabase", "typeProperties": {"format": "Delta"}}}}' | base64 | tr -d '\n')
databases=$lake/v1/workspaces/sales/mirroredDatabases
id=$(call "$databases" -d '{"displayName": "shop", "definition": {"parts": [
    {"path": "mirroring.json", "payload": "'"$definition"'", "payloadType": "InlineBase64"}]}}' | field id)
call -X POST "$databases/$id/startMirroring"

# the table: its keys, then the first change file under another name, renamed when it is complete
orders=$lake/sales/$id/Files/LandingZone/orders
put() { # FILE NAME
    call -X PUT "$orders/$2?resource=file" -H 'Content-Length: 0'
    call -X PATCH "$orders/$2?action=append&position=0" --data-binary @"$1"
    call -X PATCH "$orders/$2?action=flush&position=$(wc -c < "$1" | tr -d ' ')" -H 'Content-Length: 0'
}
printf '{"keyColumns": ["id"]}' > "$principal.metadata"
put "$principal.metadata" _metadata.json
rm "$principal.metadata"
put "$file" _upload.parquet
call -X PUT "$orders/00000000000000000001.parquet" -H 'Content-Length: 0' \
    -H "x-ms-rename-source: /sales/$id/Files/LandingZone/orders/_upload.parquet"

# what became of it
for _ in 1 2 3 4 5 6 7 8 9 10; do
    status=$(call -X POST "$databases/$id/getTablesMirroringStatus")
    case $status in *'"processedRows": 0'* | *'"data": []'*) sleep 1 ;; *) break ;; esac
done
printf '%s\n' "$status"
