"""What the parent knows of a log that a killed process owned, and the judgement of what lies there afterwards.

The ledger has what the process was told to be done: what was sent, what was acknowledged, up to where it was flushed.
What was flushed must be there, unaltered and once; what was acknowledged but not flushed may be missing from the end on
if it was torn off, as by a power cut; what was only sent may be there or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from soak.contents import NO_TXN, PRODUCERS, RULES, TOPICS, Send, number_of
from soak.log_files import Found

from storage.batch.record import Record

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
_SETTINGS: Final = {topic.name: topic.settings for topic in TOPICS}


@dataclass
class Txn:
    """A transaction: how its producer last asked for its end, where the marker is, and whether that is certain."""

    producer: int
    epoch: int
    state: str = OPEN
    asked: str | None = None
    offset: int | None = None
    last_data: int = -1
    """The offset of its last batch that was acknowledged: the marker stands behind it."""


@dataclass
class Client:
    """A producer as its client has it: its last batch, where that was first acknowledged, what it would send next."""

    epoch: int = 0
    sequence: int = 0
    last: Send | None = None
    place: int | None = None
    txn: int = NO_TXN


@dataclass
class PartitionLedger:
    """One partition. `known`: offset -> number of a record that was acknowledged."""

    name: str
    known: dict[int, int] = field(default_factory=dict)
    sends: dict[int, Send] = field(default_factory=dict)
    """By the number of each record, as long as it may be asked for."""
    in_flight: Send | None = None
    flushed: int = 0
    really: int = 0
    start: int = 0
    cut_asked: int = 0
    cut_done: int = 0
    torn: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    """Compacted topics: key -> offset of its last record that is flushed and visible."""

    @property
    def rule(self) -> str:
        return RULES[self.name.rpartition("-")[0]]


@dataclass
class Figures:
    """What the judge has seen in all."""

    checks: int = 0
    records: int = 0
    flushed: int = 0
    unflushed: int = 0
    unflushed_kept: int = 0
    in_flight: int = 0
    in_flight_there: int = 0
    visible: int = 0
    removed: int = 0
    keys: int = 0
    tombstones_gone: int = 0
    largest_log: int = 0
    answered_again: int = 0


class Ledger:
    """All partitions. `hear` takes what the process tells, `judge` looks at one partition after a restart."""

    def __init__(self) -> None:
        self.logs: dict[str, PartitionLedger] = {}
        self.txns: dict[int, Txn] = {}
        self.topics: dict[str, str] = {}
        """Fleeting topics: making, there, dropping, gone."""
        self.next_number = self.next_txn = 0
        self.clients: dict[int, Client] = {}
        self.figures = Figures()
        self.wrong: list[str] = []
        """What was wrong with the answers."""

    def log(self, name: str) -> PartitionLedger:
        return self.logs.setdefault(name, PartitionLedger(name))

    # ---- what the process tells

    def hear(self, event: Mapping[str, Any]) -> None:
        match event["e"]:
            case "send":
                self._sent(Send.of(event["send"]))
            case "ack":
                self._acknowledged(event)
            case "flushed":
                self._flushed(event)
            case "ending":
                self._ending(event)
            case "ended":
                self.txns[event["txn"]].offset = event["offset"]
            case "cutting":
                self.log(event["partition"]).cut_asked = event["before"]
            case "cut":
                log = self.log(event["partition"])
                log.cut_done = log.cut_asked
            case "making" | "made" | "dropping" | "dropped":
                self._fleeting(event["topic"], event["e"])
            case _:
                pass

    def _sent(self, send: Send) -> None:
        log = self.log(send.partition)
        log.in_flight = send
        log.sends |= dict.fromkeys(send.numbers(), send)
        self.next_number = max(self.next_number, send.first + send.count)
        if send.txn != NO_TXN:
            self.next_txn = max(self.next_txn, send.txn + 1)
            self.txns.setdefault(send.txn, Txn(send.producer_id, send.producer_epoch))
        if send.producer_id >= 0:
            client = self.clients.setdefault(send.producer_id, Client())
            if client.last != send:
                client.last, client.place = send, None
            client.epoch, client.sequence, client.txn = send.producer_epoch, send.sequence + send.count, send.txn

    def _acknowledged(self, event: Mapping[str, Any]) -> None:
        log = self.log(event["partition"])
        send = log.sends[event["number"]]
        first = event["first"]
        client = self.clients.get(send.producer_id)
        if client is not None:
            self._check_answer(log, client, first, is_duplicate=event["again"])
            client.place = first
        if send.txn != NO_TXN:
            self.txns[send.txn].last_data = first
        log.known |= {first + n: number for n, number in enumerate(send.numbers())}
        log.in_flight = None

    def _check_answer(self, log: PartitionLedger, client: Client, first: int, *, is_duplicate: bool) -> None:
        """A batch that is there is answered with its place, and one that is not is taken.

        Of one that retention has removed either will do: as in a broker, a log that is empty when it is opened knows
        nothing of its producers.
        """
        before = client.place
        is_there = before is not None and (before in log.known or log.rule == "compaction")
        self.figures.answered_again += is_duplicate
        if is_there and not is_duplicate:
            self.wrong.append(f"{log.name}: {client.last} was taken again at {first}, it is at {before}")
        elif is_duplicate and before is not None and before != first:
            self.wrong.append(f"{log.name}: {client.last} is at {before}, the answer was {first}")
        elif is_duplicate and first >= log.start and first not in log.known and log.rule != "compaction":
            self.wrong.append(f"{log.name}: {client.last} was answered with {first}, where it is not")

    def _ending(self, event: Mapping[str, Any]) -> None:
        txn, client = self.txns[event["txn"]], self.clients[event["producer"]]
        txn.asked, txn.epoch = (COMMITTED if event["commit"] else ABORTED), event["epoch"]
        if event["epoch"] > client.epoch:
            client.epoch, client.sequence = event["epoch"], 0
        client.last = None  # behind a marker nobody sends it again

    def _flushed(self, event: Mapping[str, Any]) -> None:
        log = self.log(event["partition"])
        log.flushed, log.really = max(log.flushed, event["to"]), max(log.really, event["really"])
        for txn in self.txns.values():
            if txn.offset is not None and txn.offset < log.flushed and PRODUCERS[txn.producer] == log.name:
                txn.state, txn.offset = txn.asked or OPEN, None

    def _fleeting(self, topic: str, what: str) -> None:
        self.topics[topic] = what
        if what in ("making", "dropped"):
            self.logs.pop(f"{topic}-0", None)

    # ---- the judgement

    def judge(
        self, name: str, found: Found, ends: tuple[int, int], seen: Iterable[tuple[int, int]], now: int
    ) -> list[str]:
        """Return what is wrong with a partition that was opened again; the ledger goes on with what is there.

        `ends` are where its log begins and ends, `seen` are offset and number of what a committed read brought.
        """
        log, figures = self.log(name), self.figures
        start, end = ends
        wrong = [*found.faults]
        if max(found.end, start) != end:
            wrong.append(f"the log ends at {end}, its files at {found.end}")
        records = {offset: record for offset, record in found.records.items() if offset >= start}
        self._settle_txns(log, found)
        wrong += self._strangers(log, records)
        wrong += self._twice(records)
        if log.rule == "compaction":
            wrong += self._compacted(log, records)
        else:
            wrong += self._kept(log, records, start, end)
            wrong += self._start_allowed(log, start, found, now)
            if found.holes:
                wrong.append(f"{found.holes} holes")
        wrong += self._visible(log, records, dict(seen))
        figures.checks += 1
        figures.records += len(records)
        figures.largest_log = max(figures.largest_log, found.size)
        self._go_on(log, records, ends)
        return [f"{name}: {what}" for what in wrong]

    def _settle_txns(self, log: PartitionLedger, found: Found) -> None:
        """Find out what became of transactions whose end was asked for but is not flushed."""
        for txn in self.txns.values():
            if txn.state == OPEN and txn.asked is not None and PRODUCERS[txn.producer] == log.name:
                has_marker = any(
                    marker.producer_id == txn.producer and marker.producer_epoch == txn.epoch
                    and marker.base_offset > txn.last_data
                    for marker in found.markers
                )  # fmt: skip
                txn.state, txn.asked, txn.offset = (txn.asked if has_marker else OPEN), None, None

    def _strangers(self, log: PartitionLedger, records: dict[int, Record]) -> list[str]:
        """Every record must be one that was sent, as it was sent, where the answer said."""
        wrong = []
        for offset, record in records.items():
            number = number_of(record)
            send = log.sends.get(number)
            if offset in log.known and log.known[offset] != number:
                wrong.append(f"record {number} at {offset}, where {log.known[offset]} was acknowledged")
            elif send is None:
                wrong.append(f"record {number} at {offset} is none of this log, or was gone before")
            elif (record.key, record.value, record.timestamp) != (send.key(number), send.value(number), send.timestamp):
                wrong.append(f"record {number} at {offset} is altered")
            elif offset not in log.known and (log.in_flight is None or number not in log.in_flight.numbers()):
                wrong.append(f"record {number} at {offset} was acknowledged elsewhere")
        return wrong

    @staticmethod
    def _twice(records: dict[int, Record]) -> list[str]:
        places: dict[int, int] = {}
        wrong = []
        for offset, record in records.items():
            other = places.setdefault(number_of(record), offset)
            if other != offset:
                wrong.append(f"record {number_of(record)} is there twice, at {other} and {offset}")
        return wrong

    def _kept(self, log: PartitionLedger, records: dict[int, Record], start: int, end: int) -> list[str]:
        """What is flushed is there from the log start on; what is only acknowledged, but for a torn end."""
        wrong = []
        for offset, number in log.known.items():
            if offset < start:
                self.figures.removed += 1
            elif offset < log.flushed:
                self.figures.flushed += 1
                if offset not in records:
                    wrong.append(f"record {number} at {offset} is lost; flushed up to {log.flushed}")
            else:
                self.figures.unflushed += 1
                self.figures.unflushed_kept += offset in records
                if offset not in records and (offset < end or not log.torn):
                    wrong.append(f"record {number} at {offset} is lost, acknowledged though not flushed")
        if log.in_flight is not None:
            self.figures.in_flight += 1
            self.figures.in_flight_there += any(number_of(r) == log.in_flight.first for r in records.values())
        return wrong

    def _start_allowed(self, log: PartitionLedger, start: int, found: Found, now: int) -> list[str]:
        """Tell whether the log begins where it may."""
        settings = _SETTINGS.get(log.name.rpartition("-")[0], {})
        if start < log.start:
            return [f"the log begins at {start}, it had begun at {log.start}"]
        if log.rule == "asked" and not log.cut_done <= start <= max(log.cut_asked, log.cut_done):
            return [f"the log begins at {start}; {log.cut_asked} was asked for, {log.cut_done} done"]
        if log.rule == "size":
            kept, least = found.size + log.torn, int(settings["retention.bytes"])
            if start > log.start and kept < least:
                return [f"retention left {kept} bytes of {least}"]
        if log.rule == "time":
            young = [n for o, n in log.known.items()
                     if o < start and log.sends[n].timestamp > now - int(settings["retention.ms"])]  # fmt: skip
            if young:
                return [f"records {young[:5]} were removed before their time"]
        return []

    def _state(self, number: int, log: PartitionLedger) -> str:
        send = log.sends.get(number)
        return COMMITTED if send is None or send.txn == NO_TXN else self.txns[send.txn].state

    def _compacted(self, log: PartitionLedger, records: dict[int, Record]) -> list[str]:
        """The last record of each key is there, or was a tombstone; nothing older stands in its place."""
        wrong = []
        last: dict[int, int] = {}
        for offset, record in sorted(records.items()):
            number = number_of(record)
            if number in log.sends and self._state(number, log) == COMMITTED:
                send = log.sends[number]
                last[send.keys[number - send.first]] = offset
        for offset, number in sorted(log.known.items()):
            self.figures.flushed += offset < log.flushed
            if offset < log.flushed and self._state(number, log) == COMMITTED:
                send = log.sends[number]
                log.newest[send.keys[number - send.first]] = offset
        for key, offset in log.newest.items():
            number = log.known[offset]
            there = last.get(key)
            is_tombstone = log.sends[number].value(number) is None
            self.figures.keys += 1
            self.figures.tombstones_gone += there is None
            if there is None and not is_tombstone:
                wrong.append(f"key {key} is lost, its last record {number} was at {offset}")
            elif there is not None and there < offset:
                wrong.append(f"key {key} is back with its record at {there}, the last one was at {offset}")
        return wrong

    def _visible(self, log: PartitionLedger, records: dict[int, Record], seen: dict[int, int]) -> list[str]:
        """A committed read brings all records of ended transactions that were committed, and of aborted ones none."""
        wrong = []
        states = {offset: self._state(number_of(record), log) for offset, record in records.items()}
        first_open = min((offset for offset, state in states.items() if state == OPEN), default=1 << 62)
        self.figures.visible += len(seen)
        for offset, number in seen.items():
            if offset not in records or number_of(records[offset]) != number:
                wrong.append(f"a read brought record {number} at {offset}, the files have it not")
            elif states[offset] != COMMITTED:
                wrong.append(
                    f"a committed read brought record {number} at {offset} of a transaction that is {states[offset]}"
                )
        hidden = [o for o, state in states.items() if state == COMMITTED and o < first_open and o not in seen]
        if hidden:
            wrong.append(f"a committed read did not bring the records at {hidden[:5]}")
        return wrong

    def _go_on(self, log: PartitionLedger, records: dict[int, Record], ends: tuple[int, int]) -> None:
        """Forget what is gone; what is there counts as acknowledged from now on."""
        in_flight = log.in_flight
        log.known = {o: n for o, n in log.known.items() if o in log.newest.values()}
        log.known |= {offset: number_of(record) for offset, record in records.items()}
        wanted = {*log.known.values(), *(() if in_flight is None else in_flight.numbers())}
        for client in self.clients.values():
            if client.last is not None:
                wanted.update(client.last.numbers())
                if client.last.partition == log.name and client.place is not None and client.place >= ends[1]:
                    client.place = None  # torn off
        if in_flight is not None and in_flight.producer_id >= 0:
            there = {number_of(record): offset for offset, record in records.items()}
            self.clients[in_flight.producer_id].place = there.get(in_flight.first)
        log.sends = {number: send for number, send in log.sends.items() if number in wanted}
        log.start, log.torn, log.in_flight = ends[0], 0, None

    # ---- how the process goes on

    def judge_topics(self, there: Iterable[str]) -> list[str]:
        """Return what is wrong with the fleeting topics: those that are deleted stay so, those that are made too."""
        names, wrong = set(there), []
        for topic, what in self.topics.items():
            if what == "made" and topic not in names:
                wrong.append(f"topic {topic} is lost")
            elif what == "dropped" and topic in names:
                wrong.append(f"topic {topic} is back")
            if topic not in names:
                self.logs.pop(f"{topic}-0", None)
            self.topics[topic] = "made" if topic in names else "dropped"
        return wrong

    def resume(self) -> dict[str, Any]:
        """Return what the next process is told: where its producers are, and which batches it sends again."""
        known = {}
        for number, client in self.clients.items():
            is_open = client.txn != NO_TXN and self.txns[client.txn].state == OPEN
            known[str(number)] = {
                "epoch": client.epoch, "sequence": client.sequence, "txn": client.txn if is_open else NO_TXN,
            }  # fmt: skip
        settled = {number for number, txn in self.txns.items() if txn.state != OPEN}
        used = {send.txn for log in self.logs.values() for send in log.sends.values()}
        self.txns = {number: txn for number, txn in self.txns.items() if number in used or number not in settled}
        resend = [client.last.plain() for client in self.clients.values() if client.last is not None]
        return {"number": self.next_number, "txn": self.next_txn, "producers": known, "resend": resend}
