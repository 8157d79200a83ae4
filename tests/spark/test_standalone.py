"""A standalone cluster of Spark, a master and two workers, that is given the job by `spark-submit`.

One run sends the zip to a Python that has no logmend, one uses the logmend that is installed there, with its kernel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.kafka_lab import free_port
from support.batches import batch_v2
from support.waiting import until

from audit.tables.tables import Tables

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.needs("java")]
ROOT = Path(__file__).resolve().parents[2]
SUBMIT = ROOT / "deploy" / "spark" / "standalone" / "submit.sh"
LOCAL = "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 --conf spark.ui.enabled=false"


def ended(started: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in started)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a master and two workers on loopback; return the master's URL."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    place, port = tmp_path_factory.mktemp("cluster"), free_port()
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    url = f"spark://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [["master.Master", *where, "--port", str(port)]]
    commands += [["worker.Worker", *where, "--cores", "1", "--memory", "1g", "--work-dir", str(place / f"w{n}"), url]
                 for n in range(2)]  # fmt: skip
    log = place / "log"
    started = []
    with log.open("wb") as told:
        for name, *words in commands:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
            started.append(subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True))
        try:
            until(lambda: ended(started) or log.read_text().count("Registering worker") == 2, 240, say=log.read_text)
            assert not ended(started), log.read_text()[-2000:]
            yield url
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python that has our dependencies and no logmend."""
    place = tmp_path_factory.mktemp("python")
    venv.create(place, with_pip=False)
    modules = next(place.glob("lib/python3*/site-packages"))
    (modules / "all.pth").write_text(sysconfig.get_paths()["purelib"])  # whose own .pth files are then not read
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the manifest of three brokers with the same partitions; one of them has a rotten batch."""
    place = tmp_path_factory.mktemp("fleet")
    lines = ["cluster,broker,log_dir"]
    for broker in "123":
        for partition in range(3):
            directory = place / broker / f"orders-{partition}"
            directory.mkdir(parents=True)
            data = bytearray(b"".join(batch_v2(n, 2, leader_epoch=1) for n in range(0, 2000, 2)))
            if (broker, partition) == ("3", 2):
                data[len(data) // 2 + 40] ^= 1
            (directory / f"{0:020d}.log").write_bytes(data)
        points = "".join(f"orders {partition} 2000\n" for partition in range(3))
        (place / broker / "replication-offset-checkpoint").write_text(f"0\n3\n{points}")
        (place / broker / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=abc\n")
        lines.append(f"west,{broker},{place / broker}")
    (place / "fleet.csv").write_text("\n".join([*lines, ""]))
    return place / "fleet.csv"


@pytest.mark.parametrize("kernel", ["python", "c"])
def test_a_cluster_of_two_workers_says_what_is_wrong(
    master: str, bare_python: Path, manifest: Path, tmp_path: Path, kernel: str
) -> None:
    python = str(bare_python) if kernel == "python" else sys.executable
    environment = os.environ | {
        "MASTER": master, "PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT": str(Path(sys.executable).with_name("spark-submit")), "EXECUTOR_CORES": "1",
        "EXECUTOR_MEMORY": "512m", "ZIP": str(tmp_path / "audit.zip"),
        "SPARK_ARGS": f"{LOCAL} --conf spark.sql.shuffle.partitions=2",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)
    if kernel == "c":
        environment["NATIVE"] = "1"
    else:
        packed = [str(ROOT / "scripts" / "audit-zip.sh"), environment["ZIP"]]
        subprocess.run(packed, env=environment | {"PYTHON": sys.executable}, check=True, capture_output=True)
    out = tmp_path / "audits"
    command = [str(SUBMIT), "--manifest", str(manifest), "--out", str(out), "--audit-id", "a"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr[-3000:]
    assert done.stdout.startswith("audit a: 1 degraded, 2 healthy; ")
    (run,) = Tables(str(out)).read("runs").to_pylist()
    assert run["kernel"] == kernel
