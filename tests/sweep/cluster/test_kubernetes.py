"""docs/cluster/rayjob.yaml and the Dockerfile, without Kubernetes."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from lr_sweep.sweep.cli.parser import parser
from lr_sweep.tests.support.kuberay_fields import RAY_JOB
from lr_sweep.tests.support.tiny_study import ROOT

FOLDER = ROOT / "docs" / "cluster"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FOLDER / "rayjob.yaml")
    return loaded


def problems(job: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(RAY_JOB).iter_errors(job)]


def fields(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every field with the object it is in, but names of resources and options of `ray start`."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from ((value, name) for name in value)
    for child in children:
        yield from fields(child)


def test_its_fields_are_kuberays() -> None:
    assert problems(manifest()) == []


@pytest.mark.parametrize("name", sorted({name for _, name in fields(manifest())}))
def test_a_misspelt_field_is_refused(name: str) -> None:
    free = {"cpu", "memory", "nvidia.com/gpu", "num-cpus"}  # names of resources and of options of `ray start`
    job = copy.deepcopy(manifest())
    place = next(place for place, found in fields(job) if found == name)
    place[name + "s"] = place.pop(name)
    assert bool(problems(job)) == (name not in free)


@pytest.mark.parametrize(("name", "value"), [("replicas", "4"), ("backoffLimit", 1.5), ("submissionMode", "HttpMode")])
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    job = copy.deepcopy(manifest())
    place = next(place for place, found in fields(job) if found == name)
    place[name] = value
    assert len(problems(job)) == 1


def test_the_entrypoint_is_a_command_of_the_program() -> None:
    program, *arguments = shlex.split(manifest()["spec"]["entrypoint"])
    assert program == "lr-sweep"
    chosen = parser().parse_args(arguments)
    assert (chosen.command, chosen.address) == ("run", "auto")
    mounts = [container["volumeMounts"][0]["mountPath"] for container in containers()]
    assert mounts == ["/shared", "/shared"]
    assert str(chosen.results).startswith("/shared/")
    assert str(chosen.data_dir).startswith("/shared/")


def containers() -> list[dict[str, Any]]:
    cluster = manifest()["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for pod in pods for container in pod["template"]["spec"]["containers"]]


def test_rays_version_is_the_environments() -> None:
    version = manifest()["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"\nray=={version}\n" in (ROOT / "constraints.txt").read_text()
    assert len({container["image"] for container in containers()}) == 1


def test_the_image_has_the_environment_and_all_of_the_program() -> None:
    copied = {word for line in DOCKERFILE.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]}
    packages = {"analysis", "datasets", "sweep", "trainables"}
    assert copied == packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in copied)
    assert "-c constraints.txt" in DOCKERFILE
