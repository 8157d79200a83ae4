#!/usr/bin/env bash
# Brings one Kafka client of the client matrix from the registry of its language and prints what its driver runs with: the
# interpreter of a virtual environment of its own, the folder for NODE_PATH, or a Java class path.
# usage: clients.sh kafka-python-2.0.2|kafka-python-3.0.12|aiokafka-0.14.0|kafkajs-2.2.4|java
# cache: ${LOGMEND_CLIENTS_CACHE:-~/.cache/logmend-clients}/CLIENT
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
client=${1:?"usage: $(sed -n '4s/^# usage: //p' "$0")"}
home=${LOGMEND_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/logmend-clients}

codecs=()
case $client in
  kafka-python-*) codecs=(python-snappy lz4 zstandard) ;;
  aiokafka-*) codecs=(cramjam) ;;
  kafkajs-*) codecs=(kafkajs-snappy@1.1.0 zstd-codec@0.1.5) ;;
  java)
    libs=$("$here/tests/interop/fetch-jars.sh" | tail -1)
    source=$here/tests/clients/drivers/JavaDriver.java
    client=java-$(sha256sum "$source" | cut -c1-16)
    ;;
  *) sed -n '4s/^# //p' "$0" >&2 && exit 2 ;;
esac

mkdir -p "$home/$client"
exec 9> "$home/$client/.lock"
flock 9 # several test workers may ask at the same time
cd "$home/$client"

case $client in
  kafka-python-* | aiokafka-*)
    if [ ! -e complete ]; then
      "${PYTHON:-python3}" -m venv --clear venv >&2
      venv/bin/python -m pip install --quiet --disable-pip-version-check "${client%-*}==${client##*-}" "${codecs[@]}" >&2
    fi
    echo "$PWD/venv/bin/python"
    ;;
  kafkajs-*)
    if [ ! -e complete ]; then
      npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$PWD" "${client%-*}@${client##*-}" "${codecs[@]}" >&2
    fi
    echo "$PWD/node_modules"
    ;;
  java-*)
    [ -e complete ] || javac -nowarn -Xlint:none -cp "$libs/*" -d classes "$source" >&2
    echo "$libs/*:$PWD/classes" # in this order the archive of Kafka's classes fits
    ;;
esac
touch complete
