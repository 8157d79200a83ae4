"""Healing from a broker that speaks TLS and wants to know who asks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from interop.kafka_lab import Cluster, free_port
from interop.test_recover_live_broker import logmend

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC = "kept"
LOG = f"{TOPIC}-0/{0:020d}.log"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USER, PASSWORD = "healer", 'a "quoted" secret'
MECHANISMS = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}


def make_certificate(directory: Path) -> None:
    """Write a key and a certificate for loopback that vouches for itself."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    subprocess.run(words, check=True, capture_output=True)
    (directory / "both.pem").write_text(key.read_text() + certificate.read_text())


def jaas(module: str, **options: str) -> str:
    """Return a line of JAAS as a properties file has it."""
    told = " ".join(f'{key}="{value}"' for key, value in ((k, v.replace('"', '\\"')) for k, v in options.items()))
    return f"{module} {told};".replace("\\", "\\\\")


@pytest.fixture(scope="module")
def secured(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path, str]]:
    """A broker with a topic, a copy of its log directory with a bad sector, and its address for whom it knows."""
    directory = tmp_path_factory.mktemp("secured")
    make_certificate(directory)
    cluster = Cluster(directory / "kafka")
    port, broker = free_port(), cluster[0]
    cluster.config |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SASL_SSL://127.0.0.1:{port},"
        f"CONTROLLER://127.0.0.1:{broker.controller_port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "both.pem"),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(
            PLAIN, username="x", password="x", **{f"user_{USER}": PASSWORD}
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    }
    with cluster:
        cluster.create_topic(TOPIC)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 4000})
        for number in range(300):
            producer.produce(TOPIC, f"{number:04}".encode() * 100, partition=0)
        assert producer.flush(60) == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            told = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([told])[USER].result(60)
        broker.stop()
        shutil.copytree(broker.log_dirs[0], directory / "copy")
        broker.start()
        with (directory / "copy" / LOG).open("r+b") as log:
            log.seek(20_000)
            log.write(b"rot" * 100)
        yield cluster, directory, f"127.0.0.1:{port}"


def properties(directory: Path, mechanism: str, password: str, **more: str) -> Path:
    """Write what a Kafka client would be given; the certificate is known unless said otherwise."""
    told = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(MECHANISMS[mechanism], username=USER, password=password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "certificate.pem"),
        **more,
    }
    path = directory / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    return path


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_hole_is_filled_over_tls_by_whom_the_broker_knows(
    secured: tuple[Cluster, Path, str], tmp_path: Path, mechanism: str
) -> None:
    cluster, directory, address = secured
    victim = shutil.copytree(directory / "copy", tmp_path / "victim")
    config = properties(directory, mechanism, PASSWORD)
    done = logmend("recover", "--depth", "full", "--heal-from", address, "--heal-config", config, victim)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (victim / LOG).read_bytes() == (cluster[0].log_dirs[0] / LOG).read_bytes()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sasl.jaas.config": jaas(SCRAM, username=USER, password="no")}, "uthentication failed"),
        ({"ssl.truststore.location": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "it speaks TLS"),
    ],
)
def test_whom_the_broker_does_not_know_and_which_broker_we_do_not_know_is_said(
    secured: tuple[Cluster, Path, str], tmp_path: Path, wrong: dict[str, str], reason: str
) -> None:
    _, directory, address = secured
    victim = shutil.copytree(directory / "copy", tmp_path / "victim")
    was = (victim / LOG).read_bytes()
    config = properties(directory, "SCRAM-SHA-256", PASSWORD, **wrong)
    done = logmend("recover", "--depth", "full", "--heal-from", address, "--heal-config", config, victim)
    assert done.returncode not in (0, 1), done.stdout + done.stderr
    assert reason in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (victim / LOG).read_bytes() == was
