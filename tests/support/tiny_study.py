"""A study that trains in seconds, its weights, and the program started as a user starts it, or in this process."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

from lr_sweep.analysis.record.read import read_curves, read_runs
from lr_sweep.sweep.cli.app import Group, app
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.plan.placement import Placement
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.recorder import Recorder, write_wanted
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import WantedRun, wanted_runs
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.tune.trials import cohort_of
from lr_sweep.sweep.tune.work import Options
from lr_sweep.tests.support.small_runs import random_weights
from lr_sweep.trainables.checkpoint import checkpoints
from lr_sweep.trainables.engine import Evaluation
from lr_sweep.trainables.run import ModelSize
from lr_sweep.trainables.worker.messages import Cohort, Event, Finished, evaluations
from lr_sweep.trainables.worker.session import Session

ROOT = Path(__file__).parents[2]
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
    loaded = load_study(study)
    return wanted_runs(loaded, find_backbones(loaded, results / "pretrained"), Path())


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a machine with no GPU and no network to Hugging Face."""
    unset = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "SWEEP_DATA_DIR", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"} | changes


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sweep", *map(str, arguments)]


def sweep(*arguments: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 600) -> tuple[int, str]:
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


def swept(*arguments: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 600) -> str:
    code, printed = sweep(*arguments, env=env, timeout_s=timeout_s)
    assert code == 0, printed
    return printed


def sweep_until(until: str, *arguments: str | Path, env: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    """Run a command, pressing Ctrl-C at each line with a text; return its exit code and all it printed."""
    with subprocess.Popen(
        command_line(*arguments),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # as on a terminal
    ) as process:
        assert process.stdout
        printed = ""
        for line in process.stdout:
            printed += line
            if until in line:
                process.send_signal(signal.SIGINT)
        return process.wait(timeout_s), printed


def rows(results: Path) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in read_runs(results).to_dict("records")}


def curves(results: Path) -> dict[str, list[dict[str, Any]]]:
    """All curves by run id, without what the clock put in them."""
    frame = read_curves(results).drop(columns=["time_ms", "elapsed_s"])
    return {str(run_id): group.to_dict("records") for run_id, group in frame.groupby("run_id")}


def as_text(curves: Mapping[str, Any]) -> dict[str, str]:
    """Curves as text, in which a number that is missing equals itself."""
    return {run_id: repr(curve) for run_id, curve in curves.items()}


def in_process(*arguments: str | Path) -> tuple[int, str]:
    """Run a command that starts no Ray."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main([*map(str, arguments)])
    return code, output.getvalue()


def cohort_here(
    runs: Sequence[WantedRun],
    results: Results,
    *,
    engine: Literal["stacked", "plain"] = "stacked",
    every_s: float = 1000.0,
    **more: Any,
) -> Cohort:
    """What a worker would be sent to train runs on this machine's CPU; its results directory is there."""
    results.root.mkdir(parents=True, exist_ok=True)
    here = Placement(resources=Resources(engine=engine))
    options = Options(results=results, data_dir=results.root, placement=here, checkpoint_every_s=every_s)
    return cohort_of(tuple(runs), options, **more)


def events_of(cohort: Cohort) -> list[Event]:
    return list(itertools.chain.from_iterable(Session(cohort).events(1000.0)))


def train(study: Path, results: Results) -> list[WantedRun]:
    """Train what a study wants from where its checkpoints are; record it and the study; return its runs."""
    results.prepare()
    loaded, wanted = load_study(study), runs_of(study, results.root)
    write_wanted(results, loaded, wanted)
    recorder = Recorder(results, wanted, devices_per_trial=1.0)
    for run in wanted:
        for event in events_of(cohort_here([run], results, engine="plain")):
            recorder.event(event)
    return wanted


def trained_here(study: Path, results: Path) -> dict[str, list[dict[str, Any]]]:
    expected = {}
    for wanted in runs_of(study, results):
        events = events_of(cohort_here([wanted], Results(results)))
        assert isinstance(events[-1], Finished)
        assert events[-1].status == "complete"
        expected[wanted.run_id] = [timeless(wanted.run_id, point) for event in events for point in evaluations(event)]
    return expected


def timeless(run_id: str, evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as `curves` has it."""
    point = {"run_id": run_id, **vars(evaluation)}
    del point["time_ms"], point["elapsed_s"]
    return point


def end_of(events: Iterable[Event], folder: Path, run: WantedRun) -> tuple[Any, dict[str, Tensor]]:
    """The curve by the events of a run, and the final state."""
    points = {point.step: timeless(run.run_id, point) for event in events for point in evaluations(event)}
    curve = [points[step] for step in sorted(points)]
    (final,) = checkpoints(Results(folder).checkpoints(run.run_id))
    return curve, load_file(final)


def arguments_of(line: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a command line by name; raises UserError or typer.TyperException for a mistake."""
    command: Any = typer.main.get_command(app)
    words = list(line)
    while isinstance(command, Group):
        command = command.commands[words.pop(0)]
    return dict(command.make_context("", words).params)


def said(*arguments: str | Path) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed. What it raises would be a traceback."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main([*map(str, arguments)])
    printed = output.getvalue()
    assert code in (0, 1, 2, 3), printed
    assert sum(line.startswith("error: ") for line in printed.splitlines()) == (code == 2), printed
    return code, printed


def succeeds(*arguments: str | Path) -> str:
    code, printed = said(*arguments)
    assert code == 0, printed
    return printed


def refused(*arguments: str | Path) -> str:
    code, printed = said(*arguments)
    assert code == 2
    assert "Traceback" not in printed  # Ray's log, which a terminal does not show, may have one
    return printed
