"""`logmend topics create | list | describe | alter | delete`: the topics of log directories."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from checkpoint.uuids import encode_uuid
from cli.console import Console
from cli.engine.engine import add_log_dirs, now_ms, opened
from cli.version import version
from engine.manager.manager import LogManager
from engine.manager.topics import Topic
from recovery.plan.words import count
from recovery.report.documents import document
from storage.base.errors import ConfigInvalid, ExitStatus, printable
from storage.base.units import INT32_MAX, TopicPartition

_UNTIL = "until `alter` says how, or --server-properties the broker's defaults"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands below `topics`."""
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    for name, meaning in {
        "create": "make a topic",
        "list": "list the topics",
        "describe": "show partitions and settings",
        "alter": "change settings, add partitions",
        "delete": "delete a topic",
    }.items():
        step = steps.add_parser(name, help=meaning, description=meaning.capitalize() + ".", allow_abbrev=False)
        if name != "list":
            step.add_argument("--topic", metavar="T", required=name != "describe", help="which topic")
        if name in ("create", "alter"):
            step.add_argument("--partitions", type=partition_count, metavar="N", help="how many partitions")
            step.add_argument(
                "--config", action="append", dest="changes", default=[], metavar="NAME=VALUE", help="a setting"
            )
        if name == "alter":
            step.add_argument(
                "--unset", action="append", default=[], metavar="NAME", help="back to the default for a setting"
            )
        add_log_dirs(step)


def partition_count(text: str) -> int:
    """Return a number of partitions."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= INT32_MAX):
        raise argparse.ArgumentTypeError(f"{printable(text)} is no number of partitions")
    return int(text)


def settings_in(words: list[str]) -> dict[str, str]:
    """Return the settings in words like `NAME=VALUE`; `ConfigInvalid` for any other."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigInvalid(f"--config {printable(word)}: NAME=VALUE is wanted")
        found[name.strip()] = value
    return found


def run(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> ExitStatus:
    """Do one step."""
    changes = settings_in(getattr(arguments, "changes", []))
    with opened(arguments, console, environment) as (manager, _):
        topics, told = _step(arguments, manager, changes)
        shown = [_document(manager, topic) for topic in topics]
    if console.json:
        console.document({**document("topics", version(), ExitStatus.CLEAN), "topics": shown})
        return ExitStatus.CLEAN
    console.say(told)
    for each in shown:
        console.say(_line(each) if arguments.step == "list" else _text(each, console) if not told else "")
    return ExitStatus.CLEAN


def _step(arguments: argparse.Namespace, manager: LogManager, changes: dict[str, str]) -> tuple[list[Topic], str]:
    """Return the topics to show, and what to say instead."""
    topics, name = manager.topics, getattr(arguments, "topic", None) or ""
    match arguments.step:
        case "create":
            topic = topics.create(name, arguments.partitions or 1, changes, now_ms())
            return [topic], f"created {printable(name)}: {count(topic.partitions, 'partition')}"
        case "alter":
            if not (changes or arguments.unset or arguments.partitions):
                raise ConfigInvalid("nothing to change: --partitions, --config or --unset is wanted")
            topic = topics.alter(
                name, now_ms(), partitions=arguments.partitions, settings=changes, unset=arguments.unset
            )
            return [topic], f"changed {printable(name)}"
        case "delete":
            topics.delete(name, now_ms())
            return [], f"deleted {printable(name)}; its files go after the delay"
        case "describe" if name:
            return [topics.get(name)], ""
        case _:
            return topics.all(), ""


def _document(manager: LogManager, topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else encode_uuid(topic.topic_id),
        "settings": dict(sorted(topic.settings.items())),
        "broker_settings": dict(sorted(topic.of_broker.items())),
        "is_listed": topic.entry is not None,
        "is_settled": topic.is_settled,
        "partitions": [_partition(manager, topic, number) for number in range(topic.partitions)],
    }


def _partition(manager: LogManager, topic: Topic, number: int) -> dict[str, Any]:
    place = topic.places.get(number)
    told: dict[str, Any] = {"partition": number, "log_dir": None if place is None else str(place)}
    if place is None or place in manager.offline:
        return {**told, "offline": True}
    log = manager.log(TopicPartition(topic.name, number))
    return {
        **told,
        "offline": False,
        "log_start": log.log_start,
        "log_end": log.log_end,
        "segments": len(log.segments),
        "bytes": log.size,
    }


def _line(told: dict[str, Any]) -> str:
    return f"{printable(told['topic'])}  {count(len(told['partitions']), 'partition')}"


def _text(told: dict[str, Any], console: Console) -> str:
    head = console.style(f"{printable(told['topic'])}", "title")
    both = {**told["broker_settings"], **told["settings"]}
    settings = ", ".join(f"{name}={printable(value)}" for name, value in sorted(both.items()))
    unsettled = "" if told["is_settled"] else f"; not made here: nothing is deleted or compacted {_UNTIL}"
    lines = [f"{head}  id {told['topic_id'] or 'unknown'}  {settings or 'default settings'}{unsettled}"]
    for each in told["partitions"]:
        if each["offline"]:
            lines.append(f"  {each['partition']}  offline")
        else:
            lines.append(
                f"  {each['partition']}  offsets {each['log_start']} to below {each['log_end']}, "
                f"{count(each['segments'], 'segment')}, {each['bytes']} bytes, in {printable(each['log_dir'])}"
            )
    return "\n".join(lines)
