"""Small records whose runs have true ids, to carry between results directories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save

from analysis.checksum import parquet_bytes
from analysis.columns import CURVES, PLANNED, RUNS, WANTED, Columns, best_of, table
from analysis.record import curve_path, run_path
from sweep.archive_export import export
from sweep.archive_import import import_archive
from sweep.errors import UserError
from sweep.results import Results
from tests.small_runs import run_of
from tests.synthetic_record import NOON

EVERY = 10
"""Steps between evaluations."""


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
    return run_of(variant, seed=seed).run_id


def new_results(folder: Path) -> Results:
    results = Results(folder)
    results.prepare()
    return results


def write(path: Path, rows: list[dict[str, Any]], columns: Columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parquet_bytes(table(rows, columns)))


def points(run_id: str, trained: Trained) -> list[dict[str, Any]]:
    """Numbers from 0 to 1 that follow from the id and the step."""
    base = int(run_id[:4], 16) / 0x10000 * EVERY
    names = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")
    steps = [EVERY * (n + 1) for n in range(trained.evaluations)]
    rows = []
    for step in steps:
        numbers = {name: base / (step + index) for index, name in enumerate(names)}
        if trained.changed_at is not None and step >= trained.changed_at:
            numbers["test_loss"] = 0.5
        rows.append({"run_id": run_id, "step": step, **numbers, "time_ms": trained.time_ms + step, "elapsed_s": 1.0})
    return rows


def row(seed: int, trained: Trained, variant: str = "unfrozen-random", **changed: Any) -> dict[str, Any]:
    run = run_of(variant, seed=seed)
    num_steps = trained.diverged_at or EVERY * trained.evaluations
    return {
        **{"run_id": run.run_id, "protocol_version": 1, "status": trained.status, "num_steps": num_steps},
        **{"diverged_at_step": trained.diverged_at, "failure": "it broke" if trained.status == "failed" else None},
        **{"task": run.task, "model": "tiny", "variant": variant, "learning_rate": run.learning_rate, "seed": seed},
        **{"content": run.canonical_json(), "pretrained_on": None, "weights_checksum": run.weights_checksum},
        **{"data_checksum": run.data_checksum, "data_origin": "test", "device": "cpu", "wall_s": 1.0, "device_s": 1.0},
        **{"started_at": NOON, "finished_at": NOON, "attempts": 1, "git_commit": None, "git_dirty": None},
        **{"versions": "{}", "lost_steps": 0, "engine": "stacked", "code": None},
        **best_of(points(run.run_id, trained)),
        **changed,
    }


def add(results: Results, seed: int, trained: Trained, variant: str = "unfrozen-random") -> str:
    """Write what there is of a run; return its id."""
    run_id = run_id_of(seed, variant)
    if trained.evaluations:
        write(curve_path(results.root, run_id), points(run_id, trained), CURVES)
    if trained.status is not None:
        write(run_path(results.root, run_id), [row(seed, trained, variant)], RUNS)
    return run_id


def add_study(results: Results, name: str, seeds: Mapping[int, int]) -> None:
    """Write a study that wants runs by seed, each up to a number of steps."""
    folder = results.study(name)
    labels = {"task": "digits", "model": "tiny", "variant": "unfrozen-random", "learning_rate": 1e-2}
    rest = {"pretrained_on": None, "data_origin": "test"}
    rows = [{"run_id": run_id_of(seed), **labels, "seed": seed, "num_steps": n, **rest} for seed, n in seeds.items()]
    write(folder / "wanted.parquet", rows, WANTED)
    planned = [{"run_id": row["run_id"], "num_steps": row["num_steps"], "timed_by": "a guess"} for row in rows]
    write(folder / "planned.parquet", [row | {"device_s": 7.0} for row in planned], PLANNED)
    (folder / "study.json").write_text(json.dumps({"study": name, "title": f"About {name}", "format": 1}))
    (folder / f"{name}.yaml").write_text(f"study: {name}\n")


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
    """Every file of a record by its path; not the writers' lock."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def mtimes_ns(folder: Path) -> dict[str, int]:
    return {path: (folder / path).stat().st_mtime_ns for path in files(folder)}


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


def packed(results: Results, *names: str, checkpoints: bool = True) -> Path:
    """Export into a new archive beside the results directory."""
    number = len(list(results.root.parent.glob("*.tar")))
    target = results.root.parent / f"{number}.tar"
    export(results, target, names, checkpoints=checkpoints)
    return target


def refusal(archive: Path, into: Results) -> str:
    """Import what must be refused, make sure that nothing changed, and return the message."""
    before = files(into.root), mtimes_ns(into.root)
    with pytest.raises(UserError) as caught:
        import_archive(archive, into)
    assert (files(into.root), mtimes_ns(into.root)) == before
    assert not list(into.root.glob(".import-*"))
    return str(caught.value)
