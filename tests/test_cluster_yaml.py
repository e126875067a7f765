from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CLUSTER = Path(__file__).parent.parent / "cluster.yaml"


@pytest.fixture
def cluster() -> dict[str, Any]:
    return yaml.safe_load(CLUSTER.read_text())


@pytest.mark.cluster
def test_is_valid_by_ray_s_own_schema(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(cluster))


def test_every_machine_names_its_own_security_group_and_profile(cluster: dict[str, Any]) -> None:
    for kind in cluster["available_node_types"].values():
        assert kind["node_config"]["SecurityGroupIds"]  # else Ray makes one that is open to the world
        assert kind["node_config"]["IamInstanceProfile"]  # else Ray makes one with full access


def test_the_dashboard_listens_on_the_head_alone(cluster: dict[str, Any]) -> None:
    starts = [line for line in cluster["head_start_ray_commands"] if "ray start" in line]
    assert len(starts) == 1
    assert "--dashboard-host=127.0.0.1" in starts[0]


def test_the_workers_environment_is_the_project_s(cluster: dict[str, Any]) -> None:
    assert any("make env" in line for line in cluster["setup_commands"])
