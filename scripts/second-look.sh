#!/usr/bin/env bash
# Runs a make target of tests; if at most three of its tests fail, runs those again, alone, and ends with 0 if they pass.
# Tests with real brokers, disks and machines share two processors with others: what fails only then is named for
# repair, and does not refuse what has nothing to do with it. What fails twice, or fails in numbers, is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
MOST=3
export PATH="$PWD/.venv/bin:$PATH"

make "$1" && exit 0
failed=$(python - "$MOST" <<'PYTHON'
import json, pathlib, sys
names = sorted(json.loads(pathlib.Path(".pytest_cache/v/cache/lastfailed").read_text()))
if 0 < len(names) <= int(sys.argv[1]) and all("::" in name for name in names):
    print("\n".join(names))
PYTHON
)
if [ -z "$failed" ]; then
    exit 1
fi
mapfile -t names <<<"$failed"
printf '\nmake %s: a second look, alone, at:\n%s\n' "$1" "$failed"
python -m pytest --timeout 600 "${names[@]}"
printf '\nTO FIX: these failed beside other tests and passed alone:\n%s\n' "$failed"
