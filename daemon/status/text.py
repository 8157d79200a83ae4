"""The state of the service in plain text, made from its document: what `logmend status` prints.

Whatever came from the disk is made printable; a line is a line whatever a name holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from daemon.status.document import span
from daemon.status.model import PASSING
from recovery.plan.words import count, grouped, short_size
from storage.base.errors import printable

Style = Callable[[str, str], str]
Document = Mapping[str, Any]

_ROLES: Final = {"good": "good", "working": "title", "attention": "repairable", "bad": "blocking"}
_WORDS: Final = {
    "sound": "sound",
    "unverified": "not read yet",
    "repairable": "with a file to be rebuilt",
    "suspect": "read badly once",
    "held": "held",
    "unreadable": "unreadable",
    "damaged": "damaged",
}
_SCRUB: Final = {
    "running": "",
    "waiting": "ahead of its pace",
    "paused": "paused by a person",
    "outside_hours": "outside its hours",
    "yielding": "waiting for the disks",
    "sick_device": "stopped: too many errors on this device",
    "off": "off",
}
_RANK: Final = {"blocking": 0, "damage": 1, "repairable": 2, "note": 3}
MOST_FINDINGS: Final = 20
MOST_LAGS: Final = 20


def render(told: Document, style: Style, *, now_ms: int | None = None, most_findings: int = MOST_FINDINGS) -> list[str]:
    """Return the lines of a status document; `now_ms` is the time to count from, by default that of the document."""
    now = told["now_ms"] if now_ms is None else now_ms
    verdict = told["verdict"]
    up = span((told["now_ms"] - told["started_ms"]) / 1000)
    lines = [style(f"{printable(verdict['text'])}.", _ROLES.get(verdict["level"], ""))]
    lines.append(f"logmend {printable(told['logmend'])}, running for {up}, process {told['pid']}")
    for each in told["log_dirs"]:
        lines += ["", *_log_dir(each, now, style, most_findings)]
    for each in told.get("listeners", ()):  # an older service says nothing of them
        lines += ["", *_listener(each, style)]
    return lines


def _listener(told: Document, style: Style) -> Iterator[str]:
    state = f"not served: {printable(told['reason'])}" if told["reason"] else "Kafka clients are served"
    role = "" if not told["reason"] or told["reason"] in PASSING else "blocking"
    yield f"{style(printable(told['listen']), 'title')}  {style(state, role)}"
    yield f"  clients     {count(told['connections'], 'connection')}, {grouped(told['accepted'])} since the start"
    requests = [f"{grouped(each['count'])} {each['kind']}" for each in told["requests"]]
    yield f"  requests    {', '.join(requests) or 'none yet'}"
    size = f"{short_size(told['received_bytes'])} received, {short_size(told['sent_bytes'])} sent"
    yield f"  bytes       {size}; flush: {printable(told['flush'])}"
    lags = sorted(told["lags"], key=lambda lag: -lag["records"])
    for lag in lags[:MOST_LAGS]:
        names = f"{printable(lag['group'])}, {printable(lag['topic'])}"
        yield f"  group       {names}: {count(lag['records'], 'record')} behind"
    if len(lags) > MOST_LAGS:
        yield f"  group       and {count(len(lags) - MOST_LAGS, 'more', 'more')}"


def _log_dir(told: Document, now: int, style: Style, most: int) -> Iterator[str]:
    since = span((now - told["since_ms"]) / 1000)
    head = [f"{told['mode']}, {told['state'].replace('_', ' ')} for {since}"]
    if told["broker_pid"] is not None:
        pid = told["broker_pid"]
        head.append(f"lock held by process {pid}" if pid else "lock held by another process")
    state = "blocking" if told["state"] == "offline" else "repairable" if told["state"] == "absent" else ""
    yield f"{style(printable(told['path']), 'title')}  {style(', '.join(head), state)}"
    if told["reason"]:
        yield f"  reason      {printable(told['reason'])}"
    if told["recovery"] is not None:
        yield f"  recovery    {_recovery(told['recovery'], now)}"
    if told["lag"] is not None:
        yield f"  flushed     {_lag(told['lag'])}"
    if told["scrub"] is not None:
        yield f"  scrub       {_scrub(told['scrub'], now)}"
    if told["partitions"] or sum(told["partition_counts"].values()):
        yield f"  partitions  {_partitions(told['partition_counts'])}"
    if told["quarantine"] is not None and told["quarantine"]["items"]:
        yield f"  quarantine  {_quarantine(told['quarantine'], now)}"
    if told["free_bytes"] is not None:
        size = "" if told["size_bytes"] is None else f", {short_size(told['size_bytes'])} of logs"
        yield f"  disk        {short_size(told['free_bytes'])} free{size}"
    yield from _findings(told["findings"], now, style, most)


def _recovery(told: Document, now: int) -> str:
    if told["finished_ms"] is not None:
        result = printable(told["result"]) or "finished"
        return f"{result}, {span((now - told['finished_ms']) / 1000)} ago, {short_size(told['done_bytes'])} read"
    total, done = told["total_bytes"], told["done_bytes"]
    is_listed = told.get("is_listed", True)  # a service of an earlier version does not say
    parts = [f"{min(done * 100 // total, 100)} %"] if total and is_listed else []
    parts += [
        f"{short_size(done)} of {'' if is_listed else 'at least '}{short_size(total)}",
        f"{short_size(int(told['bytes_per_second']))}/s",
    ]
    if told["eta_seconds"] is not None:
        parts.append(f"about {span(told['eta_seconds'])} left")
    parts.append(f"{grouped(told['partitions_done'])} of {count(told['partitions_total'], 'partition')}")
    return ", ".join([*parts, f"{count(told['segments_remaining'], 'segment')} left"])


def _lag(told: Document) -> str:
    if not told["bytes"]:
        return "all read"
    where = count(told["partitions"], "partition")
    return f"{span(told['seconds'])} behind: {short_size(told['bytes'])} in {where} to be read"


def _scrub(told: Document, now: int) -> str:
    if not told["cycle_seconds"] or told["state"] == "off":
        return "off" + (f": {printable(told['reason'])}" if told["reason"] else "")
    if not told["segments_total"]:
        return "nothing to read yet"
    total = told["bytes_total"]
    tenths = max(total - told["bytes_due"], 0) * 1000 // total if total else 1000
    late = told["behind_seconds"]
    parts = [f"{span(late)} late" if late > 0 else "on time"]
    parts.append(f"{tenths / 10:g} % of {short_size(total)} read within {span(told['cycle_seconds'])}")
    state = _SCRUB.get(told["state"], told["state"])
    parts.append(state or f"{short_size(int(told['bytes_per_second']))}/s")
    oldest = told["oldest_verified_ms"]
    parts.append("some never read" if oldest is None else f"oldest look {span((now - oldest) / 1000)} ago")
    if told["reason"] and told["reason"] != state:
        parts.append(printable(told["reason"]))
    return ", ".join(parts)


def _partitions(counts: Mapping[str, int]) -> str:
    parts = [f"{grouped(number)} {_WORDS.get(name, name)}" for name, number in counts.items() if number]
    return f"{grouped(sum(counts.values()))}: {', '.join(parts)}"


def _quarantine(told: Document, now: int) -> str:
    oldest = told["oldest_ms"]
    kept = "" if oldest is None else f", the oldest for {span((now - oldest) / 1000)}"
    return f"{count(told['items'], 'piece')}, {short_size(told['bytes'])}{kept}"


def _findings(found: list[Document], now: int, style: Style, most: int) -> Iterator[str]:
    worst = sorted(found, key=lambda each: _RANK.get(each["severity"], 9))
    for each in worst[:most]:
        yield from _finding(each, now, style)
    if len(worst) > most:
        yield f"  and {count(len(worst) - most, 'more finding')}: logmend status --json lists all of them"


def _finding(told: Document, now: int, style: Style) -> Iterator[str]:
    where = f"{told['topic']}-{told['partition']}" if told["topic"] is not None else str(told["path"])
    said = style(f"{told['severity']}: {printable(where)}: {printable(told['kind'])}", told["severity"])
    yield f"  {said}: {printable(told['evidence'])}"
    place = "" if told["position"] is None else f" at {told['position']}"
    size = "" if told["size"] is None else f", {short_size(told['size'])}"
    yield f"    where  {printable(told['path'])}{place}{size}"
    if told["first_offset"] is not None:
        yield f"    what   {_offsets(told)}"
    seen = (
        f"{span((now - told['first_seen_ms']) / 1000)} ago, last seen {span((now - told['last_seen_ms']) / 1000)} ago"
    )
    yield f"    since  {seen}, {printable(told['verdict'])}"
    if told["command"]:
        yield f"    next   once the broker is stopped: {printable(told['command'])}"


def _offsets(told: Document) -> str:
    first, last, good = told["first_offset"], told["last_offset"], told["next_good_offset"]
    text = (
        f"offsets from {first}"
        if last is None
        else f"offset {first}"
        if last <= first
        else f"offsets {first} to {last}"
    )
    return text if good is None else f"{text}, next good offset {good}"
