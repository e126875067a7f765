"""The strict check against a CustomResourceDefinition, on one of few fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lr_sweep.tests.support.crd import Schema, disagreements, problems, read_schema

CRD = """
kind: CustomResourceDefinition
spec:
  versions:
    - name: v1alpha1
      schema: {openAPIV3Schema: {type: object, properties: {kind: {type: string}}}}
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            metadata: {type: object}
            spec:
              type: object
              required: [cups]
              properties:
                cups: {type: integer}
                labels: {type: object, additionalProperties: {type: string}}
                extra: {type: object, properties: {known: {type: string}}, x-kubernetes-preserve-unknown-fields: true}
                sugar: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
                pots:
                  type: array
                  items: {type: object, properties: {colour: {type: string, enum: [red, blue]}}}
"""


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    path = tmp_path / "crd.yaml"
    path.write_text(CRD)
    return read_schema(path, "v1")


def test_what_it_allows(schema: Schema) -> None:
    spec = {"cups": 2, "labels": {"any": "name"}, "extra": {"unknown": 1}, "sugar": "2", "pots": [{"colour": "red"}]}
    assert problems({"metadata": {"name": "tea"}, "spec": spec}, schema) == []
    assert problems({"spec": {"cups": 2, "sugar": 2}}, schema) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cups": 2, "cupss": 2}, "'cupss' was unexpected"),
        ({"cups": 2, "pots": [{"color": "red"}]}, "'color' was unexpected"),
        ({"cups": "2"}, "'2' is not of type 'integer'"),
        ({"cups": 2, "labels": {"any": 1}}, "1 is not of type 'string'"),
        ({"cups": 2, "pots": [{"colour": "green"}]}, "'green' is not one of ['red', 'blue']"),
        ({}, "'cups' is a required property"),
    ],
)
def test_what_it_refuses(spec: dict[str, Any], message: str, schema: Schema) -> None:
    (problem,) = problems({"spec": spec}, schema)
    assert message in problem


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(CRD)
    with pytest.raises(ValueError, match=r"want a version v2, got \['v1alpha1', 'v1'\]"):
        read_schema(path, "v2")


def test_where_two_schemas_disagree(schema: Schema) -> None:
    pots = {"type": "array", "items": {"type": "object", "properties": {"color": {"type": "string"}}}}
    spec = {"cups": {"type": "string"}, "sugar": {"type": "string"}, "pots": pots}
    ours = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    assert disagreements(ours, schema) == [".spec.cups: string, not integer", ".spec.pots[].color: unknown"]
    assert disagreements(schema, schema) == []
