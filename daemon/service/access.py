"""Rules of access in Kafka's words, and how they are written in the configuration.

Source: Apache Kafka 4.3.0, AclOperation, ResourceType, PatternType, AclPermissionType.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeVar

CLUSTER_NAME: Final = "kafka-cluster"
EVERYBODY: Final = "User:*"
ANY_NAME: Final = "*"
_USER: Final = "User:"


class Operation(IntEnum):
    """What is done, by Kafka's numbers, which are the bits of `authorized_operations`."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Resource(Enum):
    """What it is done to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Pattern(Enum):
    """How the name of a rule is meant."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(Enum):
    """What the rule says."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `principal` is `User:name`, or `User:*` for everybody; the literal name `*` is every name."""

    principal: str
    operations: frozenset[Operation]
    resource: Resource
    name: str
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW


_KEYS: Final = ("principal", "permission", "operations", "resource", "name", "pattern")
_WANTED: Final = (
    'a list of rules: principal = "User:name", operations = ["READ", …], resource = "TOPIC", "GROUP", "CLUSTER" or '
    '"TRANSACTIONAL_ID", name, and if need be pattern = "PREFIXED", permission = "DENY"'
)
Word = TypeVar("Word", bound=Enum)


def rules(raw: object) -> tuple[Rule, ...]:
    """Return the rules that the tables `[[listener.acl]]` hold; raises `ValueError`."""
    if not isinstance(raw, list) or not all(isinstance(table, dict) for table in raw):
        raise ValueError(_WANTED)
    return tuple(_rule(table) for table in raw)


def principals(raw: object) -> tuple[str, ...]:
    """Return a list of principals; raises `ValueError`."""
    if not isinstance(raw, list) or not all(_is_principal(name) for name in raw):
        raise ValueError('a list of principals, such as ["User:admin"]')
    return tuple(raw)


def _rule(table: Mapping[str, object]) -> Rule:
    unknown = [key for key in table if key not in _KEYS]
    if unknown:
        raise ValueError(f"{_WANTED}; {unknown[0]!r} is no key of a rule")
    principal, words = table.get("principal"), table.get("operations")
    resource = _word(Resource, table.get("resource"), "resource")
    name = table.get("name", CLUSTER_NAME if resource is Resource.CLUSTER else None)
    if not _is_principal(principal) or not isinstance(name, str) or not name:
        raise ValueError(f"{_WANTED}; principal or name is missing in one")
    if not isinstance(words, list) or not words:
        raise ValueError(f"{_WANTED}; operations is no list of words in one")
    operations = frozenset(_word(Operation, word, "operation") for word in words)
    pattern = _word(Pattern, table.get("pattern", "LITERAL"), "pattern")
    permission = _word(Permission, table.get("permission", "ALLOW"), "permission")
    return Rule(str(principal), operations, resource, name, pattern, permission)


def _is_principal(name: object) -> bool:
    return isinstance(name, str) and name.startswith(_USER) and len(name) > len(_USER)


def _word(kind: type[Word], raw: object, what: str) -> Word:
    """Return a word of Kafka's, written as in its enumerations or as its tools write it (`DescribeConfigs`)."""
    known = {_plain(word.name): word for word in kind}
    if not isinstance(raw, str) or _plain(raw) not in known:
        raise ValueError(f"{_WANTED}; {what} is one of {', '.join(word.name for word in kind)}, not {raw!r}")
    return known[_plain(raw)]


def _plain(word: str) -> str:
    return word.replace("_", "").lower()
