"""A study that trains in seconds, its weights, and the program started as a user starts it."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from analysis.record import read_curves, read_runs
from sweep.cli import main
from sweep.placement import Placement
from sweep.pretraining import find_backbones
from sweep.results import Results
from sweep.runs import WantedRun, wanted_runs
from sweep.study_file import load_study
from sweep.trials import assignment
from tests.small_runs import random_weights
from trainables.run import ModelSize
from trainables.stacked_session import StackedSession

ROOT = Path(__file__).parent.parent
SIZE = ModelSize(layers=1, heads=2, width=16, positions=12)


def write_weights(folder: Path, size: ModelSize = SIZE) -> Path:
    """Write random numbers as the pretrained weights of a model, and its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(random_weights(size), folder / "model.safetensors")
    write_config(folder, size)
    return folder


def write_config(folder: Path, size: ModelSize = SIZE, **changes: Any) -> None:
    """Write a GPT-2's `config.json`; a change to None leaves the field out."""
    sizes = {"n_layer": size.layers, "n_head": size.heads, "n_embd": size.width, "n_positions": size.positions}
    config = {"model_type": "gpt2"} | sizes | changes
    kept = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def write_study(
    folder: Path,
    *,
    rates: Sequence[float] = (1e-3, 1e-2),
    variants: Sequence[str] = ("frozen-pretrained", "unfrozen-random"),
    num_steps: int = 20,
    seeds: int | Sequence[int] = 1,
    runs_per_trial: int = 1,
    **changes: str,
) -> Path:
    """Write `tiny.yaml`, and its weights beside it if there are none; `changes` replace whole lines by their key."""
    if not (folder / "weights").exists():
        write_weights(folder / "weights")
    lines = {
        "study": "tiny",
        "title": "A tiny study",
        "tasks": f"{{digits: {{num_steps: {num_steps}}}}}",
        "models": (
            f"{{tiny: {{size: {{layers: {SIZE.layers}, heads: {SIZE.heads}, width: {SIZE.width}, "
            f"positions: {SIZE.positions}}}, pretrained: {{folder: weights}}}}}}"
        ),
        "variants": f"[{', '.join(variants)}]",
        "learning_rates": f"[{', '.join(map(repr, rates))}]",
        "seeds": str(seeds if isinstance(seeds, int) else list(seeds)),
        "protocol": "{evaluate_every: 10, train_examples_evaluated: 100}",
        "resources": f"{{runs_per_trial: {runs_per_trial}, retries: 1}}",
    }
    path = folder / "tiny.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in (lines | changes).items()))
    return path


def runs_of(study: Path, results: Path) -> list[WantedRun]:
    """The runs that a study file wants."""
    loaded = load_study(study)
    return wanted_runs(loaded, find_backbones(loaded, results / "pretrained"), Path())


def environment(**changes: str) -> dict[str, str]:
    """Of a machine with no GPU and no network to Hugging Face, whatever this one has."""
    unset = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "SWEEP_DATA_DIR", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"} | changes


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sweep", *map(str, arguments)]


def sweep(*arguments: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 180) -> tuple[int, str]:
    """Run a command to its end; return its exit code and all it printed."""
    done = subprocess.run(
        command_line(*arguments),
        cwd=ROOT,
        env=environment(**(env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def rows(results: Path) -> dict[str, dict[str, Any]]:
    """All rows of ended runs, by run id."""
    return {row["run_id"]: row for row in read_runs(results).to_dict("records")}


def curves(results: Path) -> dict[str, list[dict[str, Any]]]:
    """All curves by run id, without what the clock put in them."""
    frame = read_curves(results).drop(columns=["time_ms", "elapsed_s"])
    return {str(run_id): group.to_dict("records") for run_id, group in frame.groupby("run_id")}


def in_process(*arguments: str | Path) -> tuple[int, str]:
    """Run a command that starts no Ray."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main([*map(str, arguments)])
    return code, output.getvalue()


def trained_here(study: Path, results: Path) -> dict[str, list[dict[str, Any]]]:
    """Curves of a study's runs without Ray."""
    expected = {}
    for wanted in runs_of(study, results):
        here = Placement(resources=load_study(study).resources)
        alone = assignment(wanted, here, Results(results), results, 1000.0)
        events = list(itertools.chain.from_iterable(StackedSession([alone], 1).events(1000.0)))
        assert events[-1]["status"] == "complete"
        expected[wanted.run_id] = [
            {"run_id": wanted.run_id} | {k: v for k, v in point.items() if k not in ("time_ms", "elapsed_s")}
            for event in events
            for point in event.get("evaluations", [])
        ]
    return expected
