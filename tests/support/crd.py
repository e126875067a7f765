"""Checks an object against the schema of its CustomResourceDefinition, more strictly than Kubernetes does.

Kubernetes removes a field that a schema does not have, without an error, unless a client asks for strict validation.
Here such a field is a problem.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

Schema = dict[str, Any]


def read_schema(path: Path, version: str) -> Schema:
    """Return the schema of one version of a CustomResourceDefinition's file; raises ValueError where it has none."""
    versions = YAML(typ="safe").load(path)["spec"]["versions"]
    found = [each["schema"]["openAPIV3Schema"] for each in versions if each["name"] == version]
    if not found:
        raise ValueError(f"{path}: want a version {version}, got {[each['name'] for each in versions]}")
    schema: Schema = found[0]
    return schema


def problems(thing: dict[str, Any], schema: Schema) -> list[str]:
    """Return a line for each field that the schema does not have, and for each value that it does not allow."""
    return [error.message for error in Draft202012Validator(_strict(schema)).iter_errors(thing)]


def disagreements(ours: Schema, theirs: Schema, place: str = "") -> list[str]:
    """Return the places of fields of our schema that the other has not, or has with another type."""
    mine, other = ours.get("type"), theirs.get("type")
    if other is None:  # a number or text
        return []
    if mine != other:
        return [f"{place}: {mine}, not {other}"]
    if "items" in ours:
        return disagreements(ours["items"], theirs["items"], f"{place}[]")
    found: list[str] = []
    known = theirs.get("properties")
    for name, field in ours.get("properties", {}).items() if known else ():
        here = f"{place}.{name}"
        found += disagreements(field, known[name], here) if name in known else [f"{here}: unknown"]
    return found


def _strict(schema: Schema) -> Schema:
    """Return a schema that refuses fields which it does not name.

    Names that are free have `additionalProperties`; objects that may have any field are marked as such, or name none.
    """
    copied = dict(schema)
    if "properties" in schema:
        copied["properties"] = {name: _strict(field) for name, field in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            copied.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(copied.get(key), dict):
            copied[key] = _strict(copied[key])
    return copied
