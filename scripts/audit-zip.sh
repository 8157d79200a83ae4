#!/usr/bin/env bash
# Packs what Spark's executors need of logmend into a zip for spark-submit --py-files; the same code gives the same bytes.
# usage: audit-zip.sh [FILE]      FILE: dist/logmend-audit.zip
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-dist/logmend-audit.zip}
mkdir -p "$(dirname "$target")"
PYTHONPATH=. "${PYTHON:-python3}" - "$target" << 'CODE'
import sys
from pathlib import Path

from audit.spark.session import write_zip

print(write_zip(Path(sys.argv[1])))
CODE
