"""Records made by hand, through the record's own schemas. The one builder of test records.

`wanted_row`, `ended_row` and `evaluation` are one row of each table; `SyntheticRecord` is a study with curves of chosen
accuracies; `four_runs` has ids that are hashed from what runs would be trained with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from lr_sweep.analysis.record.columns import CURVES, RUNS, WANTED, Columns, best_of, table
from lr_sweep.analysis.record.parquet import FORMAT, parquet_bytes
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.statistics.selection.summary import StudySummary
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.files import write_bytes
from lr_sweep.sweep.inspection.verify import verify
from lr_sweep.sweep.results.directory import Results

Point = tuple[int, float, float]
"""step, validation accuracy, test accuracy"""
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> None:
    write_bytes(path, parquet_bytes(table(rows, columns)), durable=False)


def verify_lines(results: Results) -> list[str]:
    """The lines that `verify` prints of a record."""
    lines: list[str] = []
    problems = verify(results, lines.append)
    assert problems == sum(line.startswith("problem: ") for line in lines)
    return lines


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


def add_fresh(made: SyntheticRecord, rate: float, variant: str, tests: Sequence[float | None]) -> None:
    """Add fresh runs, seeds from 10 on, with these validation and test values; None: not trained."""
    for seed, test in enumerate(tests, start=10):
        if test is None:
            made.want(rate, seed, variant=variant)
        else:
            made.add(rate, seed, [(300, test, test)], variant=variant)
        made.wanted[-1]["fresh"] = True


def summary_of(results: Path, study: str = "small") -> StudySummary:
    return read_summary(results, study).summary


def run_id_of(seed: int) -> str:
    """The id of a run of `four_runs`."""
    from lr_sweep.tests.support.small_runs import run_of  # imported late: it takes torch

    return run_of(seed=seed).run_id


def four_runs(folder: Path) -> Results:
    """Two studies, four runs one of which no study wants, weights, and a checkpoint; with true ids and contents."""
    from lr_sweep.tests.support.small_runs import run_of

    record, made = SyntheticRecord(folder), Results(folder)
    made.prepare()
    labels = {"task": "digits", "model": "tiny", "variant": "unfrozen-random", "learning_rate": 1e-2}
    wanted = [wanted_row(run_id_of(seed), 20, **labels, seed=seed) for seed in range(5)]
    curve = [(10, 0.5, 0.25), (20, 0.75, 0.5)]
    for seed, status, trained in ((0, "complete", 20), (2, "diverged", 13), (3, "failed", 10)):
        run = run_of(seed=seed)
        changed = {"content": run.canonical_json(), "data_checksum": run.data_checksum}
        changed |= {"diverged": {"diverged_at_step": trained}, "failed": {"failure": "it broke"}}.get(status, {})
        record.end(wanted[seed], curve[: trained // 10], status, trained, **changed)
    record.write_curve(run_id_of(1), curve[:1])
    for name, rows in {"first": [wanted[0], wanted[1], wanted[4]], "second": [wanted[2]]}.items():
        write_study(folder, name, rows, f"About {name}")
        made.options(name).write_text(f"study: {name}\n")
    _write_hashed(made.checkpoints(run_id_of(0)), "step-000000020-{:.16}.safetensors", {"progress": '{"step": 20}'})
    weights = made.pretrained / "gpt2-2x16-000000000000"
    checksum = _write_hashed(weights, "model.safetensors", {"note": ""})
    for name, facts in {"config": {}, "generation_config": {}, "pretraining": {"weights_sha256": checksum}}.items():
        (weights / f"{name}.json").write_text(json.dumps(facts))
    return made


def _write_hashed(folder: Path, name: str, metadata: dict[str, str]) -> str:
    """Write a safetensors file without tensors, whose name may have its checksum; return that."""
    content = save({}, metadata=metadata)
    checksum = hashlib.sha256(content).hexdigest()
    folder.mkdir(parents=True)
    (folder / name.format(checksum)).write_bytes(content)
    return checksum
