#!/usr/bin/env bash
# An audit on Kubernetes, in cluster mode, from an image made by the Dockerfile here.
# usage: MASTER=k8s://https://host:6443 IMAGE=registry.example/logmend-audit:0.1.0 submit.sh [--depth records ...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${MASTER:?MASTER=k8s://https://host:6443}" "${IMAGE:?IMAGE=registry/name:tag}"
exec "${SPARK_SUBMIT:-spark-submit}" \
  --master "$MASTER" --deploy-mode cluster \
  --name logmend-audit \
  --conf "spark.kubernetes.container.image=$IMAGE" \
  --conf "spark.kubernetes.namespace=${NAMESPACE:-default}" \
  --conf "spark.kubernetes.authenticate.driver.serviceAccountName=${SERVICE_ACCOUNT:-spark}" \
  --conf "spark.kubernetes.driver.podTemplateFile=$here/pod-template.yaml" \
  --conf "spark.kubernetes.executor.podTemplateFile=$here/pod-template.yaml" \
  --conf "spark.executor.instances=${EXECUTORS:-4}" \
  --conf "spark.executor.cores=${EXECUTOR_CORES:-4}" \
  --conf "spark.executor.memory=${EXECUTOR_MEMORY:-2g}" \
  --conf "spark.executor.memoryOverhead=${EXECUTOR_OVERHEAD:-2g}" \
  --conf spark.task.maxFailures=4 \
  --conf spark.sql.session.timeZone=UTC \
  --conf spark.sql.execution.arrow.maxRecordsPerBatch=10000 \
  ${SPARK_ARGS:-} \
  local:///opt/logmend/audit_job.py --manifest "${MANIFEST:-/manifest/fleet.csv}" --out "${OUT:-/audits}" "$@"
