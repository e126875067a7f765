"""docs/cluster/rayjob.yaml and the Dockerfile, without Kubernetes."""

from __future__ import annotations

import copy
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lr_sweep.sweep.cluster import keep
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
    # Names of resources, of labels, and of options of `ray start`.
    free = {"cpu", "memory", "nvidia.com/gpu", "nvidia.com/gpu.present", "num-cpus"}
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
    program, option, module, *arguments = shlex.split(manifest()["spec"]["entrypoint"])
    assert (program, option, module) == ("python", "-m", keep.__name__)  # ends a job that is not to be tried again
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


def test_kueues_label_is_one_line_away() -> None:
    text = (FOLDER / "rayjob.yaml").read_text()
    job = YAML(typ="safe").load(text.replace("# labels:", "labels:"))
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "lr-sweep"}
    assert problems(job, RAY_JOB) == []


def test_the_image_has_the_environments_packages_each_with_its_hash() -> None:
    """pip refuses a package that lacks a hash, or has another; setuptools builds the program."""
    assert "--require-hashes" in (FOLDER / "Dockerfile").read_text()
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if line[0] != "#"]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    pinned = {canonical(line.split()[0]) for line in lines if not line.startswith("setuptools==")}
    assert pinned <= set(map(canonical, (ROOT / "constraints.txt").read_text().split()))
    assert {name.partition("==")[0] for name in pinned} >= {"ray", "torch", "mlflow", "psycopg", "psycopg-binary"}


def canonical(pin: str) -> str:
    return re.sub(r"[-_.]+(?=.*==)", "-", pin).lower()


def test_what_the_image_is_built_from_is_listed() -> None:
    """`.dockerignore` excludes everything but what the Dockerfile copies."""
    first, *kept = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert first == "*"
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    wanted = {f"!{name}" for names in copied for name in names.split()} | {"**/__pycache__"}
    assert set(kept) == wanted
