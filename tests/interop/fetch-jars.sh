#!/usr/bin/env bash
# Brings the jars of one Kafka version through Maven and prints the folder they lie in.
# usage: fetch-jars.sh [VERSION]      cache: ${LOGMEND_KAFKA_CACHE:-~/.cache/logmend-kafka}/VERSION
set -euo pipefail

version=${1:-4.3.0}
scala=2.13
more=()
case $version in
  0.8.* | 0.9.* | 0.10.* | 0.11.* | 1.*) scala=2.11 ;;
  2.*) ;;
  *) more+=("org.apache.kafka:kafka-tools:$version") ;;
esac
case $version in
  0.1* | 1.*) more+=("javax.xml.bind:jaxb-api:2.3.1") ;; # left the JDK with Java 11
  4.*) more+=("org.apache.logging.log4j:log4j-slf4j-impl:2.24.3") ;;
esac

home=${LOGMEND_KAFKA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/logmend-kafka}/$version
mkdir -p "$home"
exec 9> "$home/.lock"
flock 9 # several test workers may ask at the same time

if [ ! -e "$home/complete" ]; then
  {
    echo '<project><modelVersion>4.0.0</modelVersion>'
    echo "<groupId>logmend.lab</groupId><artifactId>kafka-$version</artifactId><version>1</version>"
    echo '<packaging>pom</packaging><dependencies>'
    for artifact in "org.apache.kafka:kafka_$scala:$version" "${more[@]}"; do
      IFS=: read -r group name number <<< "$artifact"
      echo "<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$number</version></dependency>"
    done
    echo '</dependencies></project>'
  } > "$home/pom.xml"
  (cd "$home" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=libs -DincludeScope=runtime >&2)
  touch "$home/complete"
fi
echo "$home/libs"
