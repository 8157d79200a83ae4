#!/usr/bin/env bash
# Makes a Debian root that systemd boots in a container, with Python and nothing of ours. As root; about a minute.
# usage: make-root.sh DIR     prints DIR; one that is there already is kept
set -euo pipefail
root=$1
mkdir -p "$(dirname "$root")"
exec 9> "$root.lock"
flock 9 # several test workers may ask at the same time
if [ ! -e "$root.complete" ]; then
  rm -rf --one-file-system "$root"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,procps,python3,libffi8 bookworm "$root" >&2
  rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
  touch "$root.complete"
fi
echo "$root"
