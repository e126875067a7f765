"""Random rows as what people have of them: several files, folders and databases of other tools, damaged or not."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lr_sweep.tests.support.fuzz_tables import csv_of, damaged

MOST_ROWS, MOST_TRIALS = 24, 8
SETTINGS = ("lr", "lr2", "variant", "task", "width", "seed")
"""What tools keep apart from what was measured."""
Rows = Sequence[Mapping[str, str]]
TABLES = {
    "experiments": "experiment_id, name, lifecycle_stage",
    "runs": "run_uuid, experiment_id, status, start_time, lifecycle_stage",
    "params": "run_uuid, key, value",
    "latest_metrics": "run_uuid, key, value, is_nan",
}
"""The columns of MLflow's tables that have runs."""


def value_of(text: str) -> Any:
    """Return a number, or the text where it is none."""
    try:
        return float(text)
    except ValueError:
        return text


def settings_of(row: Mapping[str, str]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in row.items() if name in SETTINGS}


def measured_of(row: Mapping[str, str]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in row.items() if name not in SETTINGS}


def files(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    """Write parts of a table, some without a column; by names or by a pattern."""
    number = draw.randint(2, 4)
    for part in range(number):
        left_out = draw.choice([*rows[0], *[""] * 30])
        kept = [{name: text for name, text in row.items() if name != left_out} for row in rows[part::number]]
        if kept and kept[0]:
            (folder / f"part{part}.csv").write_bytes(csv_of(draw, kept))
    return [str(folder / "*.csv")] if draw.random() < 0.5 else sorted(map(str, folder.glob("*.csv")))


def files_of_runs(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    nested = draw.random() < 0.5
    for number, row in enumerate(rows):
        content = {"config": settings_of(row), **measured_of(row)} if nested else row
        (folder / f"{number}.json").write_text(json.dumps(content))
    return [str(folder / "*.json")]


def hydra(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    for number, row in enumerate(rows):
        job = folder / f"multirun/{number % 2}/{number}"
        (job / ".hydra").mkdir(parents=True)
        version = draw.choice(["", "", "%YAML 1.1\n---\n"])
        lines = [f"{name}: {draw.choice([text, json.dumps(text)])}\n" for name, text in row.items() if name in SETTINGS]
        (job / ".hydra" / "config.yaml").write_text(version + "".join(lines))
        (job / "metrics.json").write_text(json.dumps(measured_of(row)))
    return [str(folder / "multirun")]


def ray_tune(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    for number, row in enumerate(rows):
        trial = folder / f"sweep/train_{number // draw.choice([1, 1, 2])}"
        trial.mkdir(parents=True, exist_ok=True)
        (trial / "params.json").write_text(json.dumps(settings_of(row)))
        with (trial / "result.json").open("a") as file:
            file.write(json.dumps({"training_iteration": number, **measured_of(row)}) + "\n")
    return [str(folder / "sweep")]


def lightning(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    for number, row in enumerate(rows):
        run = folder / f"logs/version_{number}"
        run.mkdir(parents=True)
        (run / "hparams.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings_of(row).items()))
        if measured := {name: text for name, text in row.items() if name not in SETTINGS}:
            (run / "metrics.csv").write_bytes(csv_of(draw, [measured]))
    return [str(folder / "logs")]


def mlflow(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    for number, row in enumerate(rows):
        found["runs"].append(
            (f"r{number}", number % draw.choice([1, 2]), row.get("state", "FINISHED"), number, "active")
        )
        found["params"] += [(f"r{number}", name, text) for name, text in row.items() if name in SETTINGS]
        metrics = {name: value for name, value in measured_of(row).items() if isinstance(value, float)}
        found["latest_metrics"] += [(f"r{number}", name, value, value != value) for name, value in metrics.items()]
    found["experiments"] = [(0, "Default", "active"), (1, "other", draw.choice(["active", "deleted"]))]
    database = sqlite3.connect(folder / "mlflow.db")
    with closing(database):
        if draw.random() < 0.5:
            database.execute("PRAGMA journal_mode = WAL")
        for name, columns in TABLES.items():
            database.execute(f"CREATE TABLE {name} ({columns})")
            database.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * (columns.count(',') + 1))})", found[name]
            )
        database.commit()
    return [str(folder / "mlflow.db")]


def optuna_journal(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    optuna_into(optuna_storage_of(folder / "journal.log"), draw, rows)
    return [str(folder / "journal.log")]


def optuna_database(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    optuna_into(f"sqlite:///{folder}/optuna.db", draw, rows)
    return [str(folder / "optuna.db")]


def optuna_storage_of(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(path)))


def optuna_into(storage: Any, draw: random.Random, rows: Rows) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=storage, study_name="s", direction=draw.choice(["maximize", "minimize"]))
    for row in rows[:MOST_TRIALS]:
        value = next((value for name, value in measured_of(row).items() if name.startswith(("val", "test"))), None)
        known = isinstance(value, float) and value == value
        rate = value_of(row["lr"])
        params = {"lr": rate} if isinstance(rate, float) and 0 <= rate <= 1 else {}
        kinds = {"lr": optuna.distributions.FloatDistribution(0, 1)}
        state = optuna.trial.TrialState.COMPLETE if known else optuna.trial.TrialState.FAIL
        found = optuna.trial.create_trial(
            params=params,
            distributions={name: kinds[name] for name in params},
            value=value if known else None,
            state=state,
        )
        study.add_trial(found)


KINDS: Sequence[Callable[[Path, random.Random, Rows], list[str]]] = (
    *(files, files, files_of_runs, files_of_runs, hydra, ray_tune, lightning, mlflow, mlflow, optuna_journal),
    optuna_database,
)


def written(folder: Path, draw: random.Random, rows: Rows) -> list[str]:
    """Write rows as one of `KINDS`, damage a file now and then; returns what names them for `judge`."""
    sources = draw.choice(KINDS)(folder, draw, rows[:MOST_ROWS])
    if draw.random() < 0.3:
        path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        path.write_bytes(damaged(draw, path.read_bytes()))
    return sources or [str(folder)]
