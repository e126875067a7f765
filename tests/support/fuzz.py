"""Random tables with random faults, by the number of a case, as every kind of source; and the limits of a case."""

from __future__ import annotations

import json
import random
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from lr_sweep.analysis.judge.reading import Reading

MOST_S, MOST_BYTES = 20.0, 1e9


@contextmanager
def limited(case: object) -> Iterator[None]:
    """Fail if the block takes more than a case may; the time is that of the CPU, whatever else the machine does."""
    began, memory = time.process_time(), _peak_bytes()
    yield
    assert time.process_time() - began < MOST_S, case
    assert _peak_bytes() - memory < MOST_BYTES, case


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


VALUES = ["", "x" * 300, "１", "nan", "inf", "-inf", "1e400", "1.7e308", "-1.7e308", "5e-324", "-", "5_0"]
VALUES += ["1,234", "0.", "-0"]
RATES = ["", "1e-3 ", *["0", "nan", "1e-31", "1e30", "1e-30", "0.0010000000001", "-1", "5e-324", "0,001"]]
NAMES = ["", "a\nb", "\x00", "x" * 200, "=1+1", "-b", "@x", "$x$", "a|b", "<b>", "..", "ｎ", "é"]
NAMES += ["CON", "a,b", '"', "\\", "%s{0}"]
STATES = ["PRUNED", "FAIL", "finished", "running", "crashed", "diverged", "odd", ""]
SEEDS = ["-1", "1.0", "1.5", "seed_1", "9223372036854775807", "1e300", "", "nan"]
STEPS = ["0.5", "1e15", "-1", "nan", "", "1e-7", "9007199254740991"]
OF_ROLE = {"lr": RATES, "seed": SEEDS, "step": STEPS, "state": STATES}
OF_ROLE |= dict.fromkeys(("task", "variant", "width"), NAMES)
SHARES = {"task": 0.5, "variant": 0.8, "seed": 0.8, "step": 0.3, "state": 0.2, "width": 0.1, "run_id": 0.1}
SPLITS = [["val_acc"], ["val_acc", "test_acc"], ["test_acc"], ["val_loss", "test_loss", "train_loss"]]
SPLITS += [["val_acc", "val_loss"], ["train_loss", "val_acc", "test_acc"], ["train_loss", "test_acc"]]
SPLITS += [["lr2", "val_score"], []]
NOT_PLAIN = [b"\xff\xfe", b"\x00", b"PAR1", b'"', b"sep=;\n", b"\xef\xbb\xbf", b"\r", b"\n\n\n"]


class Drawn(NamedTuple):
    """Rows of texts, well formed or not, and how they are read."""

    draw: random.Random
    """For what else is drawn of the case."""
    rows: list[dict[str, str]]
    reading: Reading


def drawn(case: int) -> Drawn:
    draw = random.Random(case)
    names = ["lr", *(name for name, share in SHARES.items() if draw.random() < share)]
    names += draw.choice(SPLITS if draw.random() < 0.2 else SPLITS[:4])
    rows = [dict(zip(names, map(str, row), strict=True)) for row in _rows(draw, names)]
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2, 5])):
        row, name = draw.choice(rows), draw.choice(names)
        row[name] = draw.choice(OF_ROLE.get(name, VALUES))
    rows += draw.choices(rows, k=draw.choice([0] * 9 + [1, 3]))
    if draw.random() < 0.2:
        draw.shuffle(rows)
    columns = {draw.choice(["test", "validation", "train", "variant", "seed"]): draw.choice([*names, "", "none"])}
    reading = Reading(
        columns=columns if draw.random() < 0.1 else {},
        metric=draw.choice([*[None] * 30, "accuracy", "loss", "x" * 250, "%$<"]),
        higher_is_better=draw.choice([None, None, True, False]),
        select_on_test="test_acc" in names and draw.random() < 0.2,
    )
    return Drawn(draw, rows, reading)


def table(case: int) -> tuple[bytes, Reading]:
    """Make a table, well formed or not, and how to read it."""
    draw, rows, reading = drawn(case)
    return damaged(draw, csv_of(draw, rows)), reading


def csv_of(draw: random.Random, rows: Sequence[Mapping[str, str]]) -> bytes:
    """Write rows of the same names as lines with one of several marks between the fields."""
    names, mark = list(rows[0]), draw.choice(",,,,,;\t|")
    lines = [mark.join(names), *(mark.join(_field(row[name], mark) for name in names) for row in rows)]
    return (draw.choice(["\n", "\n", "\r\n"]).join(lines) + draw.choice(["\n", ""])).encode()


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Cut the content of a file, or write something else into it, or return it as it is."""
    if draw.random() < 0.15:
        content = content[: draw.randint(0, len(content))]
    if draw.random() < 0.1:
        at = draw.randint(0, len(content))
        content = content[:at] + draw.choice(NOT_PLAIN) + content[at:]
    return content


def _rows(draw: random.Random, names: list[str]) -> Iterator[tuple[object, ...]]:
    axes = {
        "lr": draw.sample([1e-4, 1e-3, 3e-3, 1e-2, 0.1, 1.0], draw.randint(1, 6)),
        "task": [f"t{i}" for i in range(draw.randint(1, 3))],
        "variant": draw.sample(["a", "b", *filter(str.isprintable, filter(None, NAMES))], draw.randint(1, 4)),
        "seed": list(range(draw.randint(1, 4))),
        "step": list(range(draw.choice([1, 2, 5, 12]))),
        "width": draw.sample([32, 64, 128], draw.randint(1, 2)),
    }
    scale = draw.choice([0.0, *[1.0] * 6, 100.0, 1e-300, 1e99])
    for number, point in enumerate(product(*(axes.get(name, [None]) for name in names))):
        found = dict(zip(names, point, strict=True)) | {"run_id": number, "state": draw.choice(STATES[:6])}
        yield tuple(scale * draw.random() if (value := found[name]) is None else value for name in names)


def _field(text: str, mark: str) -> str:
    quoted = '"' + text.replace('"', '""') + '"'
    return quoted if mark in text or '"' in text or "\n" in text else text


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
