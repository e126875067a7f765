"""docs/cluster/rayjob.yaml and the Dockerfile, without Kubernetes."""

from __future__ import annotations

import re
import shlex
from typing import Any

from ruamel.yaml import YAML

from lr_sweep.sweep.cluster import keep
from lr_sweep.tests.support.tiny_study import ROOT, arguments_of

FOLDER = ROOT / "docs" / "cluster"


def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(FOLDER / "rayjob.yaml")
    return loaded


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
