"""`logmend topics create | list | describe | alter | delete`: the topics of log directories."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from checkpoint.uuids import encode_uuid
from cli.console import Console
from cli.engine.engine import add_log_dirs, manager_options, now_ms, opened, paths_of
from cli.settings.arguments import settings_of
from cli.usage import as_sentence
from cli.version import version
from engine.client.topic_list import PartitionLook, TopicLook, list_topics, look_up
from recovery.plan.words import count
from recovery.report.documents import document
from storage.base.errors import ConfigInvalid, ExitStatus, printable, worst
from storage.base.units import INT32_MAX
from storage.disk.fs import OsFs, ReadOnlyFs

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
        step = steps.add_parser(name, help=meaning, description=as_sentence(meaning), allow_abbrev=False)
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
        add_log_dirs(step, writes=name not in ("list", "describe"), makes=name == "create")


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
    """Do one step; `list` and `describe` read the files as they are and change nothing."""
    message = ""
    if arguments.step not in ("list", "describe"):
        message = _change(arguments, console, environment)
    shown = [] if arguments.step == "delete" else _shown(arguments, environment)
    status = worst([ExitStatus.CLEAN, *(_status(topic) for topic in shown)])
    if console.json:
        console.document({**document("topics", version(), status), "topics": [_document(topic) for topic in shown]})
    elif message:
        console.say(message)
    else:
        for topic in shown:
            console.say(_line(topic) if arguments.step == "list" else _text(topic, console))
    return status


def _shown(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[TopicLook]:
    """Return the topics to show."""
    fs = ReadOnlyFs(OsFs())
    settings = settings_of(arguments, environment)
    topics = list_topics(fs, paths_of(fs, settings), manager_options(arguments, settings))
    name = getattr(arguments, "topic", None)
    return [look_up(topics, name)] if name else topics


def _change(arguments: argparse.Namespace, console: Console, environment: Mapping[str, str]) -> str:
    """Create, alter or delete a topic; return what to say."""
    changes = settings_in(getattr(arguments, "changes", []))
    with opened(arguments, console, environment) as (manager, _):
        topics, name = manager.topics, arguments.topic
        match arguments.step:
            case "create":
                topic = topics.create(name, arguments.partitions or 1, changes, now_ms())
                return f"created {printable(name)}: {count(topic.partitions, 'partition')}"
            case "alter":
                if not (changes or arguments.unset or arguments.partitions):
                    raise ConfigInvalid("nothing to change: --partitions, --config or --unset is wanted")
                topics.alter(name, now_ms(), partitions=arguments.partitions, settings=changes, unset=arguments.unset)
                return f"changed {printable(name)}"
            case _:
                topics.delete(name, now_ms())
                return f"deleted {printable(name)}; its files go after the delay"


def _status(topic: TopicLook) -> ExitStatus:
    """Return `findings` for a topic of which a log could not be read to its end."""
    is_whole = not any(look.fault or look.damage for look in topic.partitions)
    return ExitStatus.CLEAN if is_whole else ExitStatus.FINDINGS


def _document(topic: TopicLook) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else encode_uuid(topic.topic_id),
        "settings": dict(sorted(topic.settings.items())),
        "broker_settings": dict(sorted(topic.of_broker.items())),
        "is_listed": topic.is_listed,
        "is_settled": topic.is_settled,
        "partitions": [_partition(look) for look in topic.partitions],
    }


def _partition(look: PartitionLook) -> dict[str, Any]:
    told = {"partition": look.number, "log_dir": None if look.log_dir is None else str(look.log_dir)}
    if look.fault:
        return {**told, "offline": True, "reason": look.fault}
    return {
        **told,
        "offline": False,
        "reason": look.damage,
        "log_start": look.log_start,
        "log_end": look.log_end,
        "segments": look.segments,
        "bytes": look.size,
    }


def _line(topic: TopicLook) -> str:
    return f"{printable(topic.name)}  {count(len(topic.partitions), 'partition')}"


def _text(topic: TopicLook, console: Console) -> str:
    head = console.style(f"{printable(topic.name)}", "title")
    topic_id = "unknown" if topic.topic_id is None else encode_uuid(topic.topic_id)
    both = {**topic.of_broker, **topic.settings}
    settings = ", ".join(f"{name}={printable(value)}" for name, value in sorted(both.items()))
    unsettled = "" if topic.is_settled else f"; not made here: nothing is deleted or compacted {_UNTIL}"
    lines = [f"{head}  id {topic_id}  {settings or 'default settings'}{unsettled}"]
    for look in topic.partitions:
        if look.fault:
            lines.append(f"  {look.number}  offline: {look.fault}")
            continue
        lines.append(
            f"  {look.number}  offsets {look.log_start} to below {look.log_end}, "
            f"{count(look.segments, 'segment')}, {look.size} bytes, in {printable(look.log_dir)}"
        )
        lines += [f"     {look.damage}"] if look.damage else []
    return "\n".join(lines)
