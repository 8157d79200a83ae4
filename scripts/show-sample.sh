#!/usr/bin/env bash
# Recovers a log directory that a real Kafka broker left: killed, then damaged. Shows every step.
# usage: show-sample.sh DIR       replaces DIR by the content of tests/golden/crashed-sample.tar.gz
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
# --depth full: one of the damages is a rotten index of a flushed segment, which no crash causes.
show 1 verify --depth full "$sample"
show 1 plan --depth full "$sample"
show 0 recover --depth full "$sample"
show 0 quarantine list "$sample"
show 0 recover --depth full "$sample" # nothing is left to do
