"""What `spark-submit` runs: an audit in whatever session the cluster gives.

    spark-submit --py-files logmend-audit.zip audit_job.py --manifest fleet.csv --out hdfs:///audits

Ends with the status of the audit: 0 clean, 1 findings, 3 replicas disagree, 5 part could not be read.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from pyspark.sql import SparkSession

from audit.spark.job import run
from audit.tables.options import AuditOptions
from storage.base.errors import LogmendError

NUMBERS = ("cycle", "task_bytes", "split_bytes", "wave_tasks")


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description="Audit the log directories of a manifest.")
    parser.add_argument("--manifest", required=True, help="CSV, JSON lines or Parquet: cluster, broker, log_dir")
    parser.add_argument("--out", required=True, help="where the tables go: driver and executors must be able to write")
    parser.add_argument("--depth", choices=("quick", "full", "records"), default="full")
    parser.add_argument("--audit-id", default="")
    parser.add_argument("--previous", help="an audit to take unchanged segments from; `latest` for the newest")
    parser.add_argument("--topic", action="append", dest="topics", default=[], metavar="GLOB")
    for name in NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    return parser.parse_args()


def main() -> int:
    """Run the audit and say in a line what came of it."""
    asked = vars(arguments()) | {}
    manifest = asked.pop("manifest")
    known = {field.name for field in fields(AuditOptions)}
    chosen = {name: value for name, value in asked.items() if name in known and value is not None}
    options = AuditOptions(**(chosen | {"topics": tuple(asked["topics"])}))
    spark = SparkSession.builder.appName("logmend audit").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        result = run(spark, manifest, options)
    except LogmendError as error:
        sys.stderr.write(f"logmend: {error}\n")
        return error.status.value
    finally:
        spark.stop()
    told = ", ".join(f"{number} {verdict}" for verdict, number in sorted(result.verdicts.items())) or "no partitions"
    read = f"{result.bytes_read} bytes in {result.tasks} tasks, scanner {result.kernel}"
    lines = [
        f"audit {result.audit_id}: {told}; {read}",
        *(f"not read: {place}: {why}" for place, why in result.unreadable),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return result.status.value


if __name__ == "__main__":
    sys.exit(main())
