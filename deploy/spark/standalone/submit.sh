#!/usr/bin/env bash
# An audit on a standalone cluster of Spark.
# usage: MASTER=spark://host:7077 submit.sh --manifest FLEET.csv --out DIR [...]       see ../audit_job.py --help
#
# On the cluster there must be: Python 3.11 or newer with pyarrow, pandas below 3 and crc32c (PYTHON names it), the log
# directories under the names that the manifest has, and DIR, shared by all and writable.
# NATIVE=1: logmend is installed in that Python, so no zip is sent, and the scanner in C is used.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${MASTER:?MASTER=spark://host:7077}"
export PYSPARK_PYTHON=${PYTHON:-python3}
code=()
if [ -z "${NATIVE:-}" ]; then
  zip=${ZIP:-$here/../../../dist/logmend-audit.zip}
  [ -f "$zip" ] || "$here/../../../scripts/audit-zip.sh" "$zip"
  code=(--py-files "$zip")
fi
# A worker of Python scans with one core and takes below 300 MB beside the heap of its executor.
exec "${SPARK_SUBMIT:-spark-submit}" \
  --master "$MASTER" \
  --name "logmend audit" \
  --executor-cores "${EXECUTOR_CORES:-4}" \
  --executor-memory "${EXECUTOR_MEMORY:-2g}" \
  --driver-memory "${DRIVER_MEMORY:-1g}" \
  --conf spark.task.maxFailures=4 \
  --conf spark.sql.session.timeZone=UTC \
  --conf spark.sql.execution.arrow.maxRecordsPerBatch=10000 \
  ${SPARK_ARGS:-} \
  "${code[@]}" \
  "$here/../audit_job.py" "$@"
