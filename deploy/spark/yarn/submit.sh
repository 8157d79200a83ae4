#!/usr/bin/env bash
# An audit on YARN, in cluster mode: the driver runs there, too.
# usage: submit.sh --manifest hdfs:///audits/fleet.csv --out hdfs:///audits/tables [...]
#
# The Python that executors use travels along as a packed environment, made once by
#   python3.11 -m venv env && env/bin/pip install 'logmend[audit]' venv-pack && env/bin/venv-pack -p env -o environment.tar.gz
# It has logmend installed, scanner in C included, so that no zip is needed. ENVIRONMENT= (empty) sends the zip instead;
# then every node needs Python 3.11 with pyarrow, pandas below 3 and crc32c.
# Log directories must be readable on every node: mounted, or hdfs:// or s3:// URIs in the manifest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
environment=${ENVIRONMENT-environment.tar.gz}
if [ -n "$environment" ]; then
  python=./environment/bin/python
  code=(--archives "$environment#environment")
else
  python=${PYTHON:-python3}
  zip=${ZIP:-$here/../../../dist/logmend-audit.zip}
  [ -f "$zip" ] || "$here/../../../scripts/audit-zip.sh" "$zip"
  code=(--py-files "$zip")
fi
exec "${SPARK_SUBMIT:-spark-submit}" \
  --master yarn --deploy-mode cluster \
  --name "logmend audit" \
  --num-executors "${EXECUTORS:-10}" \
  --executor-cores "${EXECUTOR_CORES:-4}" \
  --executor-memory "${EXECUTOR_MEMORY:-2g}" \
  --driver-memory "${DRIVER_MEMORY:-2g}" \
  --conf "spark.executor.memoryOverhead=${EXECUTOR_OVERHEAD:-2g}" \
  --conf "spark.yarn.appMasterEnv.PYSPARK_PYTHON=$python" \
  --conf "spark.executorEnv.PYSPARK_PYTHON=$python" \
  --conf spark.task.maxFailures=4 \
  --conf spark.sql.session.timeZone=UTC \
  --conf spark.sql.execution.arrow.maxRecordsPerBatch=10000 \
  ${SPARK_ARGS:-} \
  "${code[@]}" \
  "$here/../audit_job.py" "$@"
