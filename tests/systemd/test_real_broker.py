"""A real broker on a machine that boots: cut off while it ran, its directory is recovered before it starts again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.kafka_lab import KAFKA, LOG4J2, OPENS, jars
from support.batches import batch_v2
from support.machine import Machine
from support.needs import program

UNITS = Path(__file__).resolve().parents[2] / "systemd"
NAME = "00000000000000000000.log"
DATA = "/var/lib/kafka/data"
PROPERTIES = f"""log.dirs={DATA}
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
offsets.topic.replication.factor=1
log.dir.failure.timeout.ms=30000
"""
JAVA = (
    f"/opt/java/bin/java -Xmx384m {' '.join(OPENS)} -Dlog4j2.configurationFile=/opt/test/log4j2.yaml -cp '/opt/kafka/*'"
)
FORMAT = f"{JAVA} kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c /etc/kafka/server.properties"
UNIT = f"""[Service]
ExecStart=/bin/sh -c "exec {JAVA} kafka.Kafka /etc/kafka/server.properties"
User=kafka
SuccessExitStatus=143
"""


pytestmark = [
    pytest.mark.systemd,
    pytest.mark.deep,
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("java", "mvn"),
    pytest.mark.usefixtures("machines"),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.bind(Path(program("java")).resolve().parents[1], "/opt/java")
    # What lies in there may be a link to where Debian keeps its settings.
    for place in ("/etc/java-17-openjdk", "/usr/share/java"):
        if Path(place).is_dir():
            made.bind(Path(place), place)
    made.bind(Path(jars(KAFKA).removesuffix("/*")), "/opt/kafka")
    made.put("/etc/systemd/system/logmend-recover.service", (UNITS / "logmend-recover.service").read_bytes())
    made.put("/etc/systemd/system/kafka.service", UNIT)
    made.put("/usr/lib/sysusers.d/logmend.conf", (UNITS / "logmend.sysusers").read_bytes())
    made.put("/usr/lib/tmpfiles.d/logmend.conf", (UNITS / "logmend.tmpfiles").read_bytes())
    made.put("/opt/test/log4j2.yaml", LOG4J2)
    made.put("/etc/kafka/server.properties", PROPERTIES)
    made.put("/etc/systemd/system/kafka.service.d/logmend.conf", (UNITS / "kafka.service.d/logmend.conf").read_bytes())
    made.enable("logmend-recover.service", "kafka.service.requires")
    try:
        made.boot()
        yield made
    finally:
        made.end()


def test_a_broker_that_was_cut_off_starts_after_the_hook_and_has_nothing_left_to_recover(machine: Machine) -> None:
    machine.run("runuser", "-u", "kafka", "--", "/bin/sh", "-c", FORMAT)
    machine.run("systemctl", "start", "kafka")
    machine.until(lambda: "Kafka Server started" in machine.journal("-u", "kafka"), 180)
    tool = f"{JAVA} org.apache.kafka.tools.TopicCommand --bootstrap-server 127.0.0.1:9092 --create --topic orders"
    machine.run("/bin/sh", "-c", tool)
    machine.until(lambda: machine.run("find", f"{DATA}/orders-0", "-name", NAME, check=False))
    machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "kafka")
    machine.until(lambda: machine.show("kafka", "ActiveState") in ("failed", "inactive"))
    torn = (batch_v2(0, 2) + batch_v2(2, 2)[:-5]).hex()
    write = f"open('{DATA}/orders-0/{NAME}', 'ab').write(bytes.fromhex('{torn}'))"
    machine.run("runuser", "-u", "kafka", "--", "python3", "-c", write)
    machine.run("systemctl", "reset-failed", "kafka")
    machine.run("systemctl", "start", "kafka")
    machine.until(lambda: machine.journal("-u", "kafka").count("Kafka Server started") == 2, 180)
    hook = machine.journal("-u", "logmend-recover")
    assert "torn_tail" in hook
    size = machine.run("stat", "-c", "%s", f"{DATA}/orders-0/{NAME}").strip()
    assert int(size) == len(batch_v2(0, 2))
    second = machine.journal("-u", "kafka").rpartition("Started kafka.service")[2]
    assert "Found invalid messages" not in second
    assert "truncated" not in second.lower().replace("truncated to 0", "")
    machine.run("systemctl", "stop", "kafka")
    assert machine.show("kafka", "Result") == "success"
