#!/usr/bin/env bash
# Runs mypy and compares the number of files it says it saw with the number there are: a type check that found no files
# passes as well. usage: check-types.sh DIRECTORY...
set -euo pipefail
expected=$(find "$@" -name '*.py' -o -name '*.pyi' | wc -l)
said=$(mypy --explicit-package-bases "$@") || { echo "$said"; exit 1; }
echo "$said"
if [[ $said != *"no issues found in $expected source file"* ]]; then
  echo "mypy was to check $expected files" >&2
  exit 1
fi
