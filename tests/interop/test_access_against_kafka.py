"""The same rules, users and requests at a broker with Kafka's own authorizer and at the listener: the same answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from clients.targets import Listener
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import Cluster
from support.kinds_of_requests import GROUP, OTHER, PART, ROOT, TOPIC, TXN, RawClient, requests, users, verdict
from support.waiting import until

from daemon.service.access import Pattern, Permission, Resource, Rule
from server.api.versions import ApiKey

WAIT = 60.0
CREATE_ACLS = 30
KINDS = {Resource.TOPIC: 2, Resource.GROUP: 3, Resource.CLUSTER: 4, Resource.TRANSACTIONAL_ID: 5}
PATTERNS = {Pattern.LITERAL: 3, Pattern.PREFIXED: 4}
PERMISSIONS = {Permission.DENY: 2, Permission.ALLOW: 3}


def login(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": ROOT, "sasl.password": ROOT, "log_level": 0,
    }  # fmt: skip


@contextmanager
def broker(directory: Path, names: list[str]) -> Iterator[str]:
    """Give the address of a broker with these users, whose passwords are their names."""
    cluster = Cluster(directory)
    port, controller = cluster[0].port, cluster[0].controller_port
    accounts = " ".join(f'user_{name}="{name}"' for name in [ROOT, *names])
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    cluster.config |= {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{module} required username="{ROOT}" password="{ROOT}" {accounts};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ROOT};User:ANONYMOUS",
        "auto.create.topics.enable": "true",
        "offsets.topic.num.partitions": "50",
        "transaction.state.log.num.partitions": "50",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
    }
    with cluster:
        yield cluster.bootstrap


@contextmanager
def listener(directory: Path, rules: list[Rule], names: list[str]) -> Iterator[str]:
    """Give the address of a listener with these rules, and users whose passwords are their names."""
    directory.mkdir()
    file = directory / "users"
    file.write_text("".join(f"{name}:{name}\n" for name in [ROOT, *names]))
    file.chmod(0o600)
    (directory / "l.toml").write_text(
        f'[listener]\nauto_create = true\nusers = "{file}"\nsuper_users = ["User:{ROOT}"]\n'
        + "".join(map(table, rules))
    )
    with Listener(directory / "data", directory, "--config", str(directory / "l.toml")) as served:
        yield served.bootstrap


def table(rule: Rule) -> str:
    """Return a rule as it stands in the configuration."""
    values = {
        "principal": rule.principal, "permission": rule.permission.name, "resource": rule.resource.name,
        "name": rule.name, "pattern": rule.pattern.name, "operations": [word.name for word in rule.operations],
    }  # fmt: skip
    return "[[listener.acl]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def install(bootstrap: str, rules: list[Rule]) -> None:
    """Give a broker these rules."""
    creations = [
        {
            "resource_type": KINDS[rule.resource], "resource_name": rule.name, "principal": rule.principal, "host": "*",
            "resource_pattern_type": PATTERNS[rule.pattern], "operation": int(operation),
            "permission_type": PERMISSIONS[rule.permission],
        }
        for rule in rules
        for operation in rule.operations
    ]  # fmt: skip
    with RawClient(bootstrap, ROOT) as root:
        answer = root.ask(CREATE_ACLS, 2, {"creations": creations})
    assert {int(result.error_code) for result in answer.results} == {0}


def prepare(bootstrap: str) -> None:
    """Make topics, a group with offsets and a transactional id, as the super user."""
    admin = AdminClient(login(bootstrap))
    kept = {"retention.ms": "-1"}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=kept) for name in (TOPIC, OTHER)]).values():
        future.result(WAIT)
    producer = Producer({**login(bootstrap), "transactional.id": TXN})
    producer.init_transactions(WAIT)
    with RawClient(bootstrap, ROOT) as root:
        commits = [{"name": name, "partitions": [{**PART, "committed_offset": 1, "committed_metadata": ""}]}
                   for name in (TOPIC, OTHER)]  # fmt: skip
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": commits}
        until(lambda: not root.ask(ApiKey.FIND_COORDINATOR, 1, {"key": GROUP, "key_type": 0}).error_code, WAIT)
        until(lambda: {0} == {part.error_code for topic in root.ask(ApiKey.OFFSET_COMMIT, 8, fields).topics
                              for part in topic.partitions}, WAIT)  # fmt: skip


def answers(bootstrap: str, user: str) -> Mapping[str, Any]:
    """Return what a user is answered to each request."""
    with RawClient(bootstrap, ROOT) as root:
        ids = root.topic_ids(TOPIC, OTHER)
    with RawClient(bootstrap, user) as client:
        asked = [each for each in requests(ids) if each[1] is not ApiKey.API_VERSIONS]
        if user in ("nothing", "describing", "prefixed"):  # nothing of this is allowed to them
            by_id = [{"name": None, "topic_id": ids[OTHER]}, {"name": None, "topic_id": bytes(range(16))}]
            asked.append(("delete", ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": OTHER}, *by_id], "timeout": 30000}))
            metadata = {"topics": [{"name": "made.by.asking"}], "allow_auto_topic_creation": True}
            asked.append(("create", ApiKey.METADATA, 12, metadata))
        shown = {name: verdict(client.ask(key, version, body)) for name, key, version, body in asked}
    by_name = {str(UUID(bytes=topic_id)): name for name, topic_id in ids.items()}
    text = json.dumps(shown, default=str)
    for topic_id, name in by_name.items():
        text = text.replace(topic_id, f"id of {name}")
    return dict(json.loads(text))


def is_known(client: RawClient, fields: Mapping[str, Any]) -> bool:
    """Return whether the topic of a request is there by now."""
    return not client.ask(ApiKey.METADATA, 12, fields).topics[0].error_code


def first_answers(bootstrap: str) -> list[tuple[int, int]]:
    """Return the first error codes of topics that are made because the super user asks for them, by version."""
    with RawClient(bootstrap, ROOT) as root:
        codes = []
        for version in (1, 4, 12):
            fields = {"topics": [{"name": f"asked.{version}"}], "allow_auto_topic_creation": True}
            codes.append((version, int(root.ask(ApiKey.METADATA, version, fields).topics[0].error_code)))
            until(partial(is_known, root, fields), WAIT)
    return codes


@pytest.mark.slow
@pytest.mark.deep
def test_each_user_gets_the_answers_of_a_broker_to_requests_of_every_kind(tmp_path: Path) -> None:
    everybody = users()
    names, rules = list(everybody), [rule for own in everybody.values() for rule in own]
    with broker(tmp_path / "broker", names) as real, listener(tmp_path / "ours", rules, names) as ours:
        for bootstrap in (real, ours):
            prepare(bootstrap)
        install(real, rules)
        differences: dict[str, Any] = {}
        for user in names:
            at_broker, at_listener = answers(real, user), answers(ours, user)
            for name, answer in at_broker.items():
                if answer != at_listener[name]:
                    differences.setdefault(name, []).append((user, answer, at_listener[name]))
        assert not differences, json.dumps(differences, indent=1)
        assert first_answers(ours) == first_answers(real)
