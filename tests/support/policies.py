"""Evaluates IAM policies of the kind that docs/cluster has: `Allow`, wildcards in resources, `StringEquals`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from lr_sweep.tests.support.cluster_files import template
from lr_sweep.tests.support.tiny_study import ROOT


def statements(who: str) -> list[dict[str, Any]]:
    """Return what the `head` may do by account.yaml, or what `user-policy.json` or `s3-policy.json` allows."""
    if who == "head":
        (policy,) = template()["Resources"]["Role"]["Properties"]["Policies"]
        found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    else:
        found = json.loads((ROOT / "docs" / "cluster" / f"{who}-policy.json").read_text())["Statement"]
    return found


class Policy:
    """A policy's statements. Those with anything else than Sid, Effect, Action, Resource, Condition are refused."""

    def __init__(self, who: str) -> None:
        self.statements = statements(who)
        for statement in self.statements:
            assert statement.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition"}
            assert statement["Effect"] == "Allow"
            assert statement.get("Condition", {"StringEquals": {}}).keys() == {"StringEquals"}

    def actions(self, service: str = "") -> set[str]:
        named = {action for statement in self.statements for action in _listed(statement["Action"])}
        return {action for action in named if action.startswith(service)}

    def allows(self, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """Return whether a statement allows an action on a resource (an ARN, or `*`) with these condition keys."""
        return any(
            action in _listed(statement["Action"])
            and any(fnmatchcase(resource, pattern) for pattern in _listed(statement["Resource"]))
            and all(
                context.get(key) in _listed(wanted)
                for key, wanted in statement.get("Condition", {}).get("StringEquals", {}).items()
            )
            for statement in self.statements
        )


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
