"""The state of the service in plain text, made from its document: what `logmend status` prints.

Everything that came from the disk is made printable: a name cannot break a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from daemon.status.document import recovery_of
from daemon.status.model import PASSING
from daemon.status.phrases import SCRUB_STATES, VERDICTS, exposure_phrase, recovery_phrase, span, worst_first
from recovery.plan.words import count, grouped, short_size
from storage.base.errors import printable

Style = Callable[[str, str], str]
Document = Mapping[str, Any]

_ROLES: Final = {"good": "good", "working": "title", "attention": "repairable", "bad": "blocking"}
MOST_FINDINGS: Final = 20
MOST_LAGS: Final = 20


def render(
    document: Document, style: Style, *, now_ms: int | None = None, most_findings: int = MOST_FINDINGS
) -> list[str]:
    """Return the lines of a status document; `now_ms` is the time to count from, by default that of the document."""
    now = document["now_ms"] if now_ms is None else now_ms
    verdict = document["verdict"]
    up = span((document["now_ms"] - document["started_ms"]) / 1000)
    lines = [style(f"{printable(verdict['text'])}.", _ROLES.get(verdict["level"], ""))]
    host = f"{printable(document['host'])}: " if document.get("host") else ""
    lines.append(f"{host}logmend {printable(document['logmend'])}, running for {up}, process {document['pid']}")
    for each in document["log_dirs"]:
        lines += ["", *_log_dir(each, now, style, most_findings)]
    for each in document.get("listeners", ()):  # an older service has none
        lines += ["", *_listener(each, style)]
    return lines


def _listener(document: Document, style: Style) -> Iterator[str]:
    state = f"not served: {printable(document['reason'])}" if document["reason"] else "Kafka clients are served"
    role = "" if not document["reason"] or document["reason"] in PASSING else "blocking"
    yield f"{style(printable(document['listen']), 'title')}  {style(state, role)}"
    accepted = f"{grouped(document['accepted'])} since the start"
    yield f"  clients     {count(document['connections'], 'connection')}, {accepted}"
    requests = [f"{grouped(each['count'])} {each['kind']}" for each in document["requests"]]
    yield f"  requests    {', '.join(requests) or 'none yet'}"
    size = f"{short_size(document['received_bytes'])} received, {short_size(document['sent_bytes'])} sent"
    yield f"  bytes       {size}; flush: {printable(document['flush'])}"
    lags = sorted(document["lags"], key=lambda lag: -lag["records"])
    for lag in lags[:MOST_LAGS]:
        names = f"{printable(lag['group'])}, {printable(lag['topic'])}"
        yield f"  group       {names}: {count(lag['records'], 'record')} behind"
    if len(lags) > MOST_LAGS:
        yield f"  group       and {count(len(lags) - MOST_LAGS, 'more', 'more')}"


def _log_dir(document: Document, now: int, style: Style, most: int) -> Iterator[str]:
    since = span((now - document["since_ms"]) / 1000)
    head = [f"{document['mode']}, {document['state'].replace('_', ' ')} for {since}"]
    owner = document.get("owner") or {}  # an older service does not tell
    if owner.get("broker_id") is not None:
        cluster = f" of cluster {printable(owner['cluster_id'])}" if owner["cluster_id"] is not None else ""
        head.append(f"broker {owner['broker_id']}{cluster}")
    if document["broker_pid"] is not None:
        pid = document["broker_pid"]
        head.append(f"lock held by process {pid}" if pid else "lock held by another process")
    state = "blocking" if document["state"] == "offline" else "repairable" if document["state"] == "absent" else ""
    yield f"{style(printable(document['path']), 'title')}  {style(', '.join(head), state)}"
    if document["reason"]:
        yield f"  reason      {printable(document['reason'])}"
    if document["recovery"] is not None:
        yield f"  recovery    {_recovery(document['recovery'], now)}"
    if document["lag"] is not None:
        yield f"  flushed     {_lag(document['lag'])}"
    yield from _exposure(document.get("exposure"))
    if document["scrub"] is not None:
        yield f"  scrub       {_scrub(document['scrub'], now)}"
    if document["partitions"] or sum(document["partition_counts"].values()):
        yield f"  partitions  {_partitions(document['partition_counts'])}"
    if document["quarantine"] is not None and document["quarantine"]["items"]:
        yield f"  quarantine  {_quarantine(document['quarantine'], now)}"
    if document["free_bytes"] is not None:
        size = "" if document["size_bytes"] is None else f", {short_size(document['size_bytes'])} of logs"
        yield f"  disk        {short_size(document['free_bytes'])} free{size}"
    yield from _findings(document["findings"], now, style, most)


def _recovery(document: Document, now: int) -> str:
    progress = recovery_of(document)
    if progress.finished_ms is None:
        return recovery_phrase(progress)
    result = printable(progress.result) or "finished"
    return f"{result}, {span((now - progress.finished_ms) / 1000)} ago, {short_size(progress.done_bytes)} read"


def _lag(document: Document) -> str:
    if not document["bytes"]:
        return "all read"
    where = count(document["partitions"], "partition")
    return f"{span(document['seconds'])} behind: {short_size(document['bytes'])} in {where} to be read"


def _exposure(document: Document | None) -> Iterator[str]:
    if document is not None:  # an older service does not tell, and there may be no marks
        yield f"  exposure    {exposure_phrase(document)}"


def _scrub(document: Document, now: int) -> str:
    if not document["cycle_seconds"] or document["state"] == "off":
        return "off" + (f": {printable(document['reason'])}" if document["reason"] else "")
    if not document["segments_total"]:
        return "nothing to read yet"
    total = document["bytes_total"]
    tenths = max(total - document["bytes_due"], 0) * 1000 // total if total else 1000
    late = document["behind_seconds"]
    parts = [f"{span(late)} late" if late > 0 else "on time"]
    parts.append(f"{tenths / 10:g} % of {short_size(total)} read within {span(document['cycle_seconds'])}")
    state = SCRUB_STATES.get(document["state"], str(document["state"]))
    parts.append(f"{short_size(int(document['bytes_per_second']))}/s" if document["state"] == "running" else state)
    oldest = document["oldest_verified_ms"]
    parts.append("some never read" if oldest is None else f"oldest look {span((now - oldest) / 1000)} ago")
    if document["reason"] and document["reason"] != state:
        parts.append(printable(document["reason"]))
    return ", ".join(parts)


def _partitions(counts: Mapping[str, int]) -> str:
    parts = [f"{grouped(number)} {VERDICTS.get(name, name)}" for name, number in counts.items() if number]
    return f"{grouped(sum(counts.values()))}: {', '.join(parts)}"


def _quarantine(document: Document, now: int) -> str:
    oldest = document["oldest_ms"]
    kept = "" if oldest is None else f", the oldest for {span((now - oldest) / 1000)}"
    return f"{count(document['items'], 'piece')}, {short_size(document['bytes'])}{kept}"


def _findings(findings: list[Document], now: int, style: Style, most: int) -> Iterator[str]:
    worst = worst_first(findings, lambda finding: str(finding["severity"]))
    for finding in worst[:most]:
        yield from _finding(finding, now, style)
    if len(worst) > most:
        yield f"  and {count(len(worst) - most, 'more finding')}: logmend status --json lists all of them"


def _finding(document: Document, now: int, style: Style) -> Iterator[str]:
    where = f"{document['topic']}-{document['partition']}" if document["topic"] is not None else str(document["path"])
    said = style(f"{document['severity']}: {printable(where)}: {printable(document['kind'])}", document["severity"])
    yield f"  {said}: {printable(document['evidence'])}"
    place = "" if document["position"] is None else f" at {document['position']}"
    size = "" if document["size"] is None else f", {short_size(document['size'])}"
    yield f"    where  {printable(document['path'])}{place}{size}"
    if document["first_offset"] is not None:
        yield f"    what   {_offsets(document)}"
    first, last = (span((now - document[name]) / 1000) for name in ("first_seen_ms", "last_seen_ms"))
    yield f"    since  {first} ago, last seen {last} ago, {printable(document['verdict'])}"
    if document["command"]:
        yield f"    next   once the broker is stopped: {printable(document['command'])}"


def _offsets(document: Document) -> str:
    first, last, good = document["first_offset"], document["last_offset"], document["next_good_offset"]
    text = (
        f"offsets from {first}"
        if last is None
        else f"offset {first}"
        if last <= first
        else f"offsets {first} to {last}"
    )
    return text if good is None else f"{text}, next good offset {good}"
