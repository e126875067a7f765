"""Records made by hand, through the record's own schemas. The one builder of test records.

`wanted_row`, `ended_row` and `evaluation` are one row of each table; `SyntheticRecord` is a study with curves of chosen
accuracies; `add` and `four_runs` make runs with ids that are hashed from what they would be trained with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import save

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, Columns, best_of, table
from lr_sweep.analysis.record.parquet import FORMAT, parquet_bytes
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.statistics.comparisons.orders import orders
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.files import write_bytes
from lr_sweep.sweep.results.directory import Results

Point = tuple[int, float, float]
"""step, validation accuracy, test accuracy"""
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EVERY = 10
"""Steps between the evaluations of runs that `add` makes."""


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    write_bytes(path, parquet_bytes(table(rows, columns)), durable=False)


def wanted_row(run_id: str, num_steps: int = 300, **labels: Any) -> dict[str, Any]:
    named = {"task": "mnist", "model": "gpt2", "variant": "frozen-random", "learning_rate": 1e-3, "seed": 0}
    rest = {"num_steps": num_steps, "pretrained_on": None, "data_origin": "torchvision", "trained_parameters": None}
    rest |= {"options": None, "fresh": False}
    return {"run_id": run_id} | named | rest | labels


def ended_row(
    wanted: Mapping[str, Any],
    curve: Sequence[Point],
    status: str = "complete",
    trained: int = 300,
    diverged_at: int | None = None,
    failure: str | None = None,
) -> dict[str, Any]:
    shared = {key: wanted[key] for key in wanted if key not in ("num_steps", "trained_parameters", "options", "fresh")}
    return shared | {
        **{"protocol_version": 1, "status": status, "num_steps": trained},
        **{"diverged_at_step": diverged_at, "failure": failure, "content": content_of(wanted)},
        **{"weights_checksum": None, "data_checksum": "d", "device": "CPU", "wall_s": 60.0, "device_s": 30.0},
        **{"started_at": NOON, "finished_at": NOON, "attempts": 1, "git_commit": "abc", "git_dirty": False},
        **{
            "versions": '{"torch": "2.15.0"}',
            "lost_steps": 0,
            "engine": "stacked",
            "code": None,
            "stopped_at_step": None,
            "last_printed": None,
            "resumed": "never",
            "not_saved": None,
        },
        **best_of({"step": s, "validation": v, "test": t} for s, v, t in curve),
    }


def content_of(wanted: Mapping[str, Any], weights_checksum: str | None = None) -> str:
    """What runs of `SyntheticRecord` hash their ids from: here names, too, which true runs leave out."""
    labels = {name: wanted[name] for name in ("task", "model", "variant", "learning_rate", "seed")}
    checksums = {"protocol_version": 1, "data_checksum": "d", "weights_checksum": weights_checksum}
    return json.dumps(labels | checksums)


def id_of(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def evaluation(run_id: str, step: int, **numbers: Any) -> dict[str, Any]:
    losses = {"train_loss": 1.0, "validation_loss": 1.0, "test_loss": 1.0}
    accuracies = {"train": 0.5, "validation": 0.5, "test": 0.25}
    return (
        {"run_id": run_id, "step": step}
        | losses
        | accuracies
        | {"time_ms": 0, "elapsed_s": step / 10, "logged": None}
        | numbers
    )


def write_study(
    results: Path, study: str, wanted: Sequence[Mapping[str, Any]], title: str = "A small study", /, **facts: Any
) -> None:
    """Write what a study wants, and its `study.json` with further facts."""
    folder = Paths(results).study(study)
    write(folder / "wanted.parquet", wanted, WANTED)
    facts = {"study": study, "title": title, "format": FORMAT} | facts
    write_bytes(folder / "study.json", json.dumps(facts).encode(), durable=False)


class SyntheticRecord:
    """Runs are wanted by one study as they are added; `write` writes what the study wants."""

    def __init__(self, results: Path, study: str = "small") -> None:
        self.results, self.study = results, study
        self.wanted: list[dict[str, Any]] = []
        write_bytes(results / "format.json", json.dumps({"format": FORMAT}).encode(), durable=False)

    def want(self, rate: float, seed: int, budget: int = 300, **labels: str) -> str:
        """Add a wanted run to the study, untrained; return its id."""
        row = wanted_row("", budget, learning_rate=rate, seed=seed, **labels)
        row |= {"run_id": id_of(content_of(row))}
        if row["variant"].endswith("pretrained"):
            row["pretrained_on"] = "English web text"
        self.wanted.append(row)
        return str(row["run_id"])

    def add(
        self,
        rate: float,
        seed: int,
        curve: Sequence[Point],
        status: str = "complete",
        trained: int | None = None,
        diverged_at: int | None = None,
        failure: str | None = None,
        budget: int = 300,
        **labels: str,
    ) -> str:
        """Add a wanted run that has ended."""
        run_id = self.want(rate, seed, budget, **labels)
        self.end(self.wanted[-1], curve, status, budget if trained is None else trained, diverged_at, failure)
        return run_id

    def end(
        self,
        wanted: Mapping[str, Any],
        curve: Sequence[Point],
        status: str,
        trained: int,
        diverged_at: int | None = None,
        failure: str | None = None,
        **changed: Any,
    ) -> None:
        """Write a run's row and its evaluations; `changed` are columns with other values."""
        run_id = wanted["run_id"]
        self.write_curve(run_id, curve)
        row = ended_row(wanted, curve, status, trained, diverged_at, failure)
        write(Paths(self.results).run(run_id), [row | changed], RUNS)

    def write_curve(self, run_id: str, curve: Sequence[Point]) -> None:
        """Write evaluations; none: no file."""
        rows = [evaluation(run_id, step, validation=v, test=t) for step, v, t in curve]
        if rows:
            write(Paths(self.results).curve(run_id), rows, CURVES)

    def write(self, **facts: Any) -> Path:
        write_study(self.results, self.study, self.wanted, **facts)
        return self.results


def orders_in(summary: StudySummary) -> pd.DataFrame:
    """What `verdicts.orders` finds in a study."""
    return orders(summary)


def add_fresh(made: SyntheticRecord, rate: float, variant: str, tests: Sequence[float | None]) -> None:
    """Add fresh runs, seeds from 10 on, with these test values; None: not trained."""
    for seed, test in enumerate(tests, start=10):
        if test is None:
            made.want(rate, seed, variant=variant)
        else:
            made.add(rate, seed, [(300, 0.5, test)], variant=variant)
        made.wanted[-1]["fresh"] = True


def summary_of(results: Path, study: str = "small") -> StudySummary:
    return read_summary(results, study).summary


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How far a run came, evaluated every ten steps."""

    evaluations: int = 0
    status: str | None = "complete"
    """None: not ended."""
    diverged_at: int | None = None
    changed_at: int | None = None
    """Step from which its test loss is another."""
    time_ms: int = 0


def run_id_of(seed: int, variant: str = "unfrozen-random") -> str:
    from lr_sweep.tests.support.small_runs import run_of  # imported late: it takes torch

    return run_of(variant, seed=seed).run_id


def new_results(folder: Path) -> Results:
    results = Results(folder)
    results.prepare()
    return results


def points(run_id: str, trained: Trained) -> list[dict[str, Any]]:
    """Evaluations with numbers from 0 to 1 that follow from the id and the step."""
    base = int(run_id[:4], 16) / 0x10000 * EVERY
    names = ("train_loss", "train", "validation_loss", "validation", "test_loss", "test")
    rows = []
    for step in range(EVERY, EVERY * trained.evaluations + 1, EVERY):
        numbers = {name: base / (step + index) for index, name in enumerate(names)}
        if trained.changed_at is not None and step >= trained.changed_at:
            numbers["test_loss"] = 0.5
        rows.append(evaluation(run_id, step, **numbers, time_ms=trained.time_ms + step))
    return rows


def row(seed: int, trained: Trained, variant: str = "unfrozen-random", **changed: Any) -> dict[str, Any]:
    """The row of a run with a true id and content."""
    from lr_sweep.tests.support.small_runs import run_of

    run = run_of(variant, seed=seed)
    labels = {"task": run.task, "model": "tiny", "variant": variant, "learning_rate": run.learning_rate, "seed": seed}
    num_steps = trained.diverged_at or EVERY * trained.evaluations
    failure = "it broke" if trained.status == "failed" else None
    ended = ended_row(
        wanted_row(run.run_id, **labels), [], str(trained.status), num_steps, trained.diverged_at, failure
    )
    checksums = {"data_checksum": run.data_checksum, "weights_checksum": run.weights_checksum}
    best = best_of(points(run.run_id, trained))
    return ended | {"content": run.canonical_json()} | checksums | best | changed


def add(results: Results, seed: int, trained: Trained, variant: str = "unfrozen-random") -> str:
    """Write what there is of a run; return its id."""
    run_id = run_id_of(seed, variant)
    if trained.evaluations:
        write(results.curve(run_id), points(run_id, trained), CURVES)
    if trained.status is not None:
        write(results.run(run_id), [row(seed, trained, variant)], RUNS)
    return run_id


def add_study(results: Results, name: str, seeds: Mapping[int, int]) -> None:
    """Write a study that wants runs by seed, each up to a number of steps."""
    labels = {"task": "digits", "model": "tiny", "variant": "unfrozen-random", "learning_rate": 1e-2}
    rows = [wanted_row(run_id_of(seed), num_steps, **labels, seed=seed) for seed, num_steps in seeds.items()]
    write_study(results.root, name, rows, f"About {name}")
    (results.study(name) / f"{name}.yaml").write_text(f"study: {name}\n")


def checkpoint_bytes(step: int) -> bytes:
    """A safetensors file as a trainer saves it, with no tensors in it."""
    return save({}, metadata={"progress": json.dumps({"step": step, "curve": []})})


def add_checkpoint(results: Results, run_id: str, step: int, content: bytes | None = None) -> Path:
    intact = checkpoint_bytes(step)
    name = f"step-{step:09d}-{hashlib.sha256(intact).hexdigest()[:16]}.safetensors"
    path = results.checkpoints(run_id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(intact if content is None else content)
    return path


def add_weights(results: Results, number: int = 0, note: str = "") -> tuple[Path, str]:
    """Write a folder of pretrained weights; return it and their checksum."""
    folder = results.pretrained / f"gpt2-2x16-{number:012x}"
    folder.mkdir(parents=True)
    content = save({}, metadata={"note": note})
    (folder / "model.safetensors").write_bytes(content)
    checksum = hashlib.sha256(content).hexdigest()
    for name in ("config", "generation_config"):
        (folder / f"{name}.json").write_text("{}\n")
    (folder / "pretraining.json").write_text(json.dumps({"weights_sha256": checksum}))
    return folder, checksum


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a record by its path; not the writers' lock, and without the id, which no two directories share."""
    paths: Iterable[Path] = (path for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock")
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return found | {name: re.sub(rb',\s*"id": "\w+"', b"", found[name]) for name in found.keys() & {"format.json"}}


def four_runs(folder: Path) -> Results:
    """Two studies, four runs one of which no study wants, weights, and a checkpoint."""
    made = new_results(folder)
    add(made, 0, Trained(evaluations=2))
    add(made, 1, Trained(evaluations=1, status=None))
    add(made, 2, Trained(evaluations=1, status="diverged", diverged_at=13))
    add(made, 3, Trained(evaluations=1, status="failed"))
    add_study(made, "first", {0: 20, 1: 20, 9: 20})
    add_study(made, "second", {2: 20})
    add_checkpoint(made, run_id_of(0), 20)
    add_weights(made)
    return made
