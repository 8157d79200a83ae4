"""The document of the page: the status with bounded lists, and the difference between two of them."""

from __future__ import annotations

from typing import Any, Final

from daemon.status.document import CELL_FIELDS, cell_values, to_document
from daemon.status.model import LogDirStatus, ServiceStatus
from daemon.status.phrases import SCRUB_STATES, VERDICTS, records_at_stake, runbook_of, worst_first

_MOST_FINDINGS: Final = 200
_MOST_LAGS: Final = 50


def page_document(status: ServiceStatus, events: list[list[str]]) -> dict[str, Any]:
    """Return what the page shows: the status with cells as bare values, and no more findings than a person reads."""
    page = to_document(status, partitions=False)
    page.pop("counters")
    for document, log_dir in zip(page["log_dirs"], status.log_dirs, strict=True):
        worst = worst_first(document["findings"], lambda finding: str(finding["severity"]))
        document["findings_total"] = len(worst)
        document["findings"] = [
            finding
            | {
                "records": records_at_stake(finding["first_offset"], finding["last_offset"]),
                "runbook": runbook_of(str(finding["kind"])),
            }
            for finding in worst[:_MOST_FINDINGS]
        ]
        document["cells"] = _cells(log_dir)
    for listener in page["listeners"]:
        listener["lags_total"] = len(listener["lags"])
        listener["lags"] = sorted(listener["lags"], key=lambda lag: -lag["records"])[:_MOST_LAGS]
        for request in listener["requests"]:
            del request["buckets"]
    words = {"verdicts": VERDICTS, "scrub": SCRUB_STATES}
    return page | {"cell_fields": list(CELL_FIELDS), "events": events, "words": words}


def _cells(status: LogDirStatus) -> list[list[Any]]:
    return [cell_values(cell) for cell in sorted(status.partitions, key=lambda cell: (cell.topic, cell.partition))]


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """Return what turns the old page's document into the new one; None if it has to be sent whole.

    Changed fields appear with their new values; of a log directory only the changed ones, of its cells
    `[index, values]` each.
    """
    if len(old["log_dirs"]) != len(new["log_dirs"]):
        return None
    changed = {name: value for name, value in new.items() if name != "log_dirs" and old.get(name) != value}
    dirs: list[dict[str, Any]] = []
    for before, after in zip(old["log_dirs"], new["log_dirs"], strict=True):
        if [cell[:2] for cell in before["cells"]] != [cell[:2] for cell in after["cells"]]:
            return None
        fields = {name: value for name, value in after.items() if name != "cells" and before.get(name) != value}
        pairs = zip(before["cells"], after["cells"], strict=True)
        fields["cells"] = [[index, cell] for index, (was, cell) in enumerate(pairs) if was != cell]
        dirs.append(fields)
    return changed | {"log_dirs": dirs}
