#!/bin/sh
# An S3 server on loopback, a bucket, and the demo in it; the server ends with the demo. The server is MinIO where
# MINIO_BINARY names it, else moto, which keeps all in memory.
set -eu
bin="$(dirname "$0")/../.venv/bin"
port=${DEMO_STORE_PORT:-9555}
export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo AWS_REGION=us-east-1
export AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true
folder=$(mktemp -d)
if [ -n "${MINIO_BINARY:-}" ]; then
  export AWS_SECRET_ACCESS_KEY=demo-secret # MinIO wants eight characters
  MINIO_ROOT_USER=demo MINIO_ROOT_PASSWORD=demo-secret \
    "$MINIO_BINARY" server --address "127.0.0.1:$port" "$folder" >/dev/null 2>&1 &
else
  "$bin/python" -m moto.server -H 127.0.0.1 -p "$port" >/dev/null 2>&1 &
fi
server=$!
trap 'kill $server; wait $server || true; rm -rf "$folder"' EXIT
"$bin/python" - <<'PYTHON'
import os
import time

import boto3

client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
for _ in range(100):
    try:
        client.create_bucket(Bucket="lake")
        break
    except Exception:
        time.sleep(0.2)
PYTHON
"$bin/lakemirror" demo --on s3://lake/demo "$@"
