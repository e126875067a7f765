"""The page of the papers' own values: every number is one of the published tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lr_sweep.benchmarks.published_page import (
    TASKS,
    at_fixed_rate,
    demonstration_page,
    tuned_values,
    write_demonstration,
)


def test_values_at_the_fixed_rate_are_those_of_the_12_layer_model() -> None:
    assert at_fixed_rate("mnist") == {
        **{"frozen-random": 91.7, "frozen-pretrained": 98.0, "unfrozen-random": 99.1, "unfrozen-pretrained": 93.1}
    }
    # Lu et al., Table 1, has 72.1 for the 36-layer model and 70.3 for 3 layers: other models, left out.
    assert at_fixed_rate("cifar10") == {"frozen-random": 61.7, "frozen-pretrained": 68.2, "unfrozen-pretrained": 32.9}


def test_tuned_values_are_those_of_table_1() -> None:
    found = tuned_values("cifar10-lra")
    assert {variant: (each.number, float(each.sem)) for variant, each in found.items()} == {
        **{"frozen-random": (44.2, 0.3), "frozen-pretrained": (54.7, 1.4)},
        **{"unfrozen-random": (62.0, 0.7), "unfrozen-pretrained": (67.8, 0.3)},
    }


def test_the_handle_says_what_the_fixed_rate_concluded() -> None:
    data = json.loads(re.search(r'id="data">(.*?)</script>', demonstration_page(), re.S)[1])  # type: ignore[index]
    panels = {panel["task"]: panel["handle"] for panel in data["panels"]}
    assert list(panels) == list(TASKS)
    assert panels["cifar10-lra"]["tuned"] == [[3], [2], [1], [0]]
    (rate,) = panels["cifar10-lra"]["rates"]
    assert (rate["rate"], rate["text"], rate["order"]) == (1e-3, "1e-3", [[1], [0], [3]])
    assert (rate["kind"], rate["sure"], rate["lost"]) == ("winner", True, "unfrozen-random: not published")
    assert panels["mnist"]["rates"][0]["kind"] == "winner"
    assert panels["listops"]["rates"][0]["kind"] == "unknown"  # the tuned winner has no value at 1e-3


def test_the_page_is_written(tmp_path: Path) -> None:
    assert write_demonstration(tmp_path / "new").read_text() == demonstration_page()
