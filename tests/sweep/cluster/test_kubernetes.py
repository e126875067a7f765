"""docs/cluster/rayjob.yaml and the Dockerfile, without Kubernetes."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lr_sweep.tests.support.command_lines import arguments_of
from lr_sweep.tests.support.crd import Schema, disagreements, problems, read_schema
from lr_sweep.tests.support.kuberay_fields import RAY_JOB
from lr_sweep.tests.support.tiny_study import ROOT

FOLDER = ROOT / "docs" / "cluster"


def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FOLDER / "rayjob.yaml")
    return loaded


@pytest.fixture(params=["our table", "KubeRay's CRD"])
def schema(request: pytest.FixtureRequest) -> Schema:
    return RAY_JOB if request.param == "our table" else kuberays()


def kuberays() -> Schema:
    if not (path := os.environ.get("KUBERAY_CRD")):
        pytest.skip("KUBERAY_CRD names no file with KubeRay's own schema: `make kuberay-test`")
    return read_schema(Path(path), "v1")


def fields(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every field with the object it is in, but names of resources and options of `ray start`."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from ((value, name) for name in value)
    for child in children:
        yield from fields(child)


def test_its_fields_are_kuberays(schema: Schema) -> None:
    assert problems(manifest(), schema) == []


def test_a_misspelt_field_is_refused(schema: Schema) -> None:
    free = {"cpu", "memory", "nvidia.com/gpu", "num-cpus"}  # names of resources and of options of `ray start`
    # Kubernetes checks an object's metadata itself: a CRD says nothing about it.
    spec = set(manifest()) | {name for _, name in fields(manifest()["spec"])}
    refused = set()
    for name in spec:
        job = copy.deepcopy(manifest())
        place = next(place for place, found in fields(job if name in job else job["spec"]) if found == name)
        place[name + "s"] = place.pop(name)
        refused |= {name} if problems(job, schema) else set()
    assert refused == spec - free


@pytest.mark.parametrize(("name", "value"), [("replicas", "4"), ("backoffLimit", 1.5), ("mode", "Token")])
def test_a_value_of_another_type_is_refused(name: str, value: Any, schema: Schema) -> None:
    job = copy.deepcopy(manifest())
    place = next(place for place, found in fields(job) if found == name)
    place[name] = value
    assert len(problems(job, schema)) == 1


def test_our_table_has_fields_of_kuberays_alone() -> None:
    assert disagreements(RAY_JOB, kuberays()) == []


def test_the_entrypoint_is_a_command_of_the_program() -> None:
    program, *arguments = shlex.split(manifest()["spec"]["entrypoint"])
    assert program == "lr-sweep"
    chosen = arguments_of(arguments)
    assert (arguments[0], chosen["address"]) == ("run", "auto")
    mounts = [container["volumeMounts"][0]["mountPath"] for container in containers()]
    assert mounts == ["/shared", "/shared"]
    assert chosen["results"].startswith("/shared/")
    assert str(chosen["data_dir"]).startswith("/shared/")


def containers() -> list[dict[str, Any]]:
    cluster = manifest()["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for pod in pods for container in pod["template"]["spec"]["containers"]]


def test_rays_version_is_the_environments() -> None:
    version = manifest()["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"\nray=={version}\n" in (ROOT / "constraints.txt").read_text()
    assert len({container["image"] for container in containers()}) == 1


def test_the_image_has_the_environment() -> None:
    assert "-c constraints.txt" in (FOLDER / "Dockerfile").read_text()
