"""One Kafka client behind a pipe: `DRIVER BOOTSTRAP`, then one JSON request a line, one JSON answer a line.

A request is `{"do": operation, ...}`; the answer is `{"ok": result}`, or `{"error": kind, "message": words}` where the
client said no: `kind` is the client's own name of the error. A driver's operations are the public methods of its class;
../README.md lists them. Standard library only: a driver runs in the environment of its client.

Values are `r<number>`, filled up with dots to `size`; keys are `k<number>`. Records are read as `[offset, value]`, by
partition, the dots gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

QUIET_SECONDS = 0.3
"""How long a reader that has all it was promised looks whether there is more."""
PATIENCE_SECONDS = float(os.environ.get("LOGMEND_CLIENTS_PATIENCE", "90"))
Found = dict[str, list[list[Any]]]


class Refused(Exception):
    """The client was told no: `kind` is its name of the error."""

    def __init__(self, kind: str, message: object = "") -> None:
        super().__init__(str(message))
        self.kind = kind


def value(number: int, size: int = 0) -> bytes:
    return f"r{number}".encode().ljust(size, b".")


def key(number: int) -> bytes:
    return f"k{number}".encode()


def text(data: bytes | None) -> str | None:
    return None if data is None else data.rstrip(b".").decode()


def numbered(first: int, count: int, partitions: list[int]) -> Iterable[tuple[int, int]]:
    """Yield each number and the partition it goes to, in turns."""
    for at in range(count):
        yield first + at, partitions[at % len(partitions)]


class Reading:
    """What was read so far, and whether to go on: until `count` have come and then all was quiet for a moment."""

    def __init__(self, count: int, patience: float = PATIENCE_SECONDS) -> None:
        self.count, self.seen = count, 0
        self.found: Found = {}
        self._until = time.monotonic() + patience
        if count == 0:
            self._until = time.monotonic() + 3

    def add(self, partition: int, offset: int, data: bytes | None) -> None:
        self.found.setdefault(str(partition), []).append([offset, text(data)])
        self.seen += 1
        if self.seen == self.count:
            self._until = time.monotonic() + QUIET_SECONDS

    def wants_more(self) -> bool:
        return time.monotonic() < self._until


class Member(threading.Thread):
    """A consumer in a group, on a thread of its own, for most consumers are for one thread only.

    Subclasses give `open`, which subscribes, `step`, which polls for a moment and calls `took`, `assigned`, `commit`
    (synchronous) and `close`. The driver's thread asks `state`, or has `commit` and `close` called by `ask`.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.records: Found = {}
        self.partitions: list[str] = []
        self.error = ""
        self._asked: list[tuple[Callable[[], Any], threading.Event, list[Any]]] = []
        self._ended = False

    def took(self, partition: object, offset: int, data: bytes | None) -> None:
        self.records.setdefault(str(partition), []).append([offset, text(data)])

    def open(self) -> None:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def assigned(self) -> Iterable[str]:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.open()
            while not self._ended:
                if self._asked:
                    call, done, result = self._asked.pop(0)
                    try:
                        result.append(call())
                    except Exception as error:  # noqa: BLE001 (told to who asked)
                        result.append(error)
                    done.set()
                    continue
                self.step()
                self.partitions = sorted(self.assigned())
        except Exception as error:  # noqa: BLE001 (told to who asks)
            self.error = f"{type(error).__name__}: {error}"

    def ask(self, call: Callable[[], Any]) -> None:
        done, result = threading.Event(), list[Any]()
        self._asked.append((call, done, result))
        while not done.wait(0.1):
            if not self.is_alive() and not done.is_set():  # its last answer may have come right after we looked
                raise Refused("MemberEnded", self.error)
        if isinstance(result[0], Exception):
            raise result[0]

    def end(self) -> None:
        def close() -> None:
            self._ended = True
            self.close()

        self.ask(close)
        self.join(PATIENCE_SECONDS)

    def state(self) -> dict[str, Any]:
        return {"assigned": self.partitions, "records": dict(self.records), "error": self.error}


class Grouping:
    """The operations about one member, for a driver that makes it with `member`."""

    _member: Member
    member: Callable[..., Member]

    def join(self, **asked: Any) -> None:
        self._member = self.member(**asked)
        self._member.start()

    def state(self) -> dict[str, Any]:
        return self._member.state()

    def commit(self) -> None:
        self._member.ask(self._member.commit)

    def leave(self) -> None:
        self._member.end()


def serve(make: Callable[[str], Any], kind_of: Callable[[Exception], str] = lambda error: type(error).__name__) -> None:
    """Answer the requests of standard input until it ends; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    driver = make(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(driver, request.pop("do"))(**request)}
        except Refused as refused:
            answer = {"error": refused.kind, "message": str(refused)}
        except Exception as error:  # noqa: BLE001 (it is the answer)
            answer = {"error": kind_of(error), "message": f"{error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # consumers that were left open must not keep the process
