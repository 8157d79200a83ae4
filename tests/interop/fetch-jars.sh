#!/usr/bin/env bash
# Brings the jars of one Kafka version through Maven and prints the folder they lie in. Of versions from 4 on, a broker
# that starts and stops leaves an archive of its classes beside them (classes.jsa), with which JVMs start faster.
# With `tiered` behind the version it prints the folder of Kafka's own test of tiered storage instead.
# usage: fetch-jars.sh [VERSION [tiered]]      cache: ${LOGMEND_KAFKA_CACHE:-~/.cache/logmend-kafka}/VERSION
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

if [ "${2:-}" = tiered ]; then
  if [ ! -e "$home/tiered/complete" ]; then
    mkdir -p "$home/tiered"
    mvn -q -B dependency:copy -Dartifact="org.apache.kafka:kafka-storage:$version:jar:test" \
      -DoutputDirectory="$home/tiered" >&2
    touch "$home/tiered/complete"
  fi
  echo "$home/tiered"
  exit
fi

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

# make_archive: where it fails, there is a smaller archive or none, and JVMs start more slowly.
make_archive() {
  local scratch port=$((20000 + RANDOM % 20000)) broker
  scratch=$(mktemp -d)
  cat > "$scratch/properties" << END
log.dirs=$scratch/data
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$((port + 1))
END
  printf 'Configuration: {Appenders: {Console: {name: OUT}}, Loggers: {Root: {level: INFO, AppenderRef: {ref: OUT}}}}' \
    > "$scratch/log4j2.yaml"
  local java=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-Dlog4j2.configurationFile=$scratch/log4j2.yaml")
  "${java[@]}" -cp "$home/libs/*" kafka.tools.StorageTool format -t kAAAAAAAAAAAAAAAAAAAAA -c "$scratch/properties"
  "${java[@]}" -XX:ArchiveClassesAtExit="$scratch/classes.jsa" -cp "$home/libs/*" kafka.Kafka "$scratch/properties" \
    > "$scratch/output" &
  broker=$!
  for ((tries = 0; tries < 300; tries++)); do
    ! grep -q 'Kafka Server started' "$scratch/output" && kill -0 $broker && sleep 0.2 || break
  done
  kill $broker
  wait $broker || true
  mv "$scratch/classes.jsa" "$home/classes.jsa"
  rm -rf "$scratch"
}
if [[ $version == 4.* && ! -e $home/classes.jsa ]]; then
  make_archive >&2 || echo "there is no archive of classes" >&2
fi
echo "$home/libs"
