"""Rights: what a user may do by the rules. What no rule allows is denied, and a denial wins.

Source: Apache Kafka 4.3.0, StandardAuthorizerData, Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from daemon.service.access import ANY_NAME, CLUSTER_NAME, EVERYBODY, Operation, Pattern, Permission, Resource, Rule

_IMPLIES: Final = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""Operations whose permission includes another; a denial includes none."""
OPERATIONS: Final = {
    Resource.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    Resource.GROUP: (3, 6, 8, 10, 11),
    Resource.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""Operations on a resource, by number."""


class Rights:
    """What one user may do."""

    def __init__(self, rules: Iterable[Rule], *, is_super: bool) -> None:
        self._is_super = is_super
        self._literal: dict[tuple[Resource, str], list[Rule]] = {}
        self._prefixed: dict[Resource, list[Rule]] = {resource: [] for resource in Resource}
        for rule in rules:
            if rule.pattern is Pattern.PREFIXED:
                self._prefixed[rule.resource].append(rule)
            else:
                self._literal.setdefault((rule.resource, rule.name), []).append(rule)

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """Return whether the user may do this."""
        if self._is_super:
            return True
        fitting = {operation, Operation.ALL}
        enough = fitting | _IMPLIES.get(operation, frozenset())
        is_allowed = False
        for rule in self._about(resource, name):
            if rule.permission is Permission.DENY:
                if not fitting.isdisjoint(rule.operations):
                    return False
            elif not enough.isdisjoint(rule.operations):
                is_allowed = True
        return is_allowed

    def may_with_any(self, operation: Operation, resource: Resource) -> bool:
        """Return whether there may be a name with which the user may do this."""
        if self._is_super:
            return True
        fitting = {operation, Operation.ALL}
        about = [rule for (kind, _), rules in self._literal.items() if kind is resource for rule in rules]
        about = [rule for rule in about + self._prefixed[resource] if not fitting.isdisjoint(rule.operations)]
        denials = [rule for rule in about if rule.permission is Permission.DENY]
        if any(_is_every(rule) for rule in denials):
            return False
        allowed = (rule for rule in about if rule.permission is Permission.ALLOW)
        return any(_is_every(rule) or not any(_covers(denial, rule) for denial in denials) for rule in allowed)

    def bits(self, resource: Resource, name: str = CLUSTER_NAME) -> int:
        """Return the operations on a resource that the user may do, as bits by their numbers."""
        return sum(1 << number for number in OPERATIONS[resource] if self.may(Operation(number), resource, name))

    def _about(self, resource: Resource, name: str) -> Iterable[Rule]:
        yield from self._literal.get((resource, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((resource, ANY_NAME), ())
        for rule in self._prefixed[resource]:
            if name.startswith(rule.name):
                yield rule


def _is_every(rule: Rule) -> bool:
    return rule.pattern is Pattern.LITERAL and rule.name == ANY_NAME


def _covers(denial: Rule, rule: Rule) -> bool:
    if denial.pattern is Pattern.PREFIXED:
        return rule.name.startswith(denial.name)
    return rule.pattern is Pattern.LITERAL and rule.name == denial.name


class Access:
    """The rules of all users. A super user may do everything; `User:*` among them is everybody."""

    def __init__(self, rules: Sequence[Rule], super_users: Collection[str]) -> None:
        self._rules, self._super_users = rules, frozenset(super_users)
        self._names = {rule.principal for rule in rules}
        self._rights: dict[str, Rights] = {}

    def rights_of(self, user: str) -> Rights:
        """Return the rights of a user, by name."""
        principal = f"User:{user}"
        is_super = bool(self._super_users & {principal, EVERYBODY})
        # One value for all that no rule names: certificates may bring any number of names.
        key = principal if principal in self._names or is_super else EVERYBODY
        if key not in self._rights:
            rules = (rule for rule in self._rules if rule.principal in (principal, EVERYBODY))
            self._rights[key] = Rights(rules, is_super=is_super)
        return self._rights[key]
