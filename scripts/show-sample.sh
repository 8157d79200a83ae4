#!/usr/bin/env bash
# Recovers a log directory that a real Kafka broker wrote, that was killed and then damaged; shows every step.
# usage: show-sample.sh DIR       DIR is made anew from tests/golden/crashed-sample.tar.gz
set -euo pipefail
sample=$1
case $sample in "" | / | .) echo "give the sample a directory of its own" >&2 && exit 2 ;; esac

show() { # show STATUS ARGUMENT...: run logmend, which must end with STATUS
  local expected=$1 status=0
  shift
  printf '\n$ logmend %s\n' "$*"
  logmend "$@" || status=$?
  if [ "$status" != "$expected" ]; then
    echo "logmend $* ended with $status where $expected was expected" >&2
    exit 1
  fi
}

rm -rf -- "$sample"
mkdir -p -- "$sample"
tar -xzf tests/golden/crashed-sample.tar.gz -C "$sample"
show 1 verify "$sample"
show 1 plan "$sample"
show 0 recover "$sample"
show 0 quarantine list "$sample"
show 0 recover "$sample" # nothing is left to do
show 0 verify "$sample"
