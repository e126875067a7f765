"""What MLflow shows of a run and of a study: params, tags and metrics, computed from the record alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import CURVES, SPLITS, Row
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.text import rate_text
from lr_sweep.sweep.results.run_state import LABELS, RecordedRun, State, flattened

METRICS = tuple(
    column.name for column in CURVES if column.name not in ("run_id", "step", "time_ms", "logged")
)
"""Columns of a curve that are mirrored, under the names that `metric_names` gives."""

ENDING_TAGS = tuple(
    f"sweep.{name}" for name in ("failure", "diverged_at_step", "resumed", "not_saved")
)
"""Tags that are removed when a later attempt of the same run makes them untrue."""

_TAGGED = (
    *(
        "num_steps",
        "pretrained_on",
        "data_origin",
        "weights_checksum",
        "data_checksum",
        "diverged_at_step",
        "failure",
    ),
    *("device", "wall_s", "device_s", "attempts", "resumed", "not_saved"),
    *("git_dirty", "versions"),
)
_UNLOGGED_CONTENT = {"task", "learning_rate", "seed", "data_checksum", "weights_checksum"}
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_MAX_TEXT_LENGTH = 5000
"""Most characters of a tag or a note; MLflow takes 8000, its hosted form 5000."""

Point = tuple[str, float, int, int]
"""Metric, value, Unix time in milliseconds, and step."""
MOST_POINTS = 100
"""Most points of a curve."""
_MAX_PARAM_LENGTH = 500
"""Most characters of a param that the oldest servers in use take."""
_CELL_METRICS = ("test_mean", "test_sem", "validation_mean", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class MirroredRun(RecordedRun):
    """What the record holds of one run, in MLflow's terms; at most one study's row of `WANTED`."""

    metric: Metric

    @property
    def asked(self) -> Row:
        """Its row of `WANTED`; empty if the study does not want it."""
        return next(iter(self.wanted.values()), {})

    @property
    def labels(self) -> Fields:
        """Task, model, variant, learning rate and seed, as first trained if it has ended, else as wanted."""
        return {name: value for name, value in (self.row or self.asked).items() if name in LABELS}

    @property
    def name(self) -> str:
        """The name shown, such as `lr 1e-3, seed 0, frozen-random, gpt2, mnist`; MLflow cuts it at its end."""
        if not self.labels:
            return self.run_id
        rate, seed = rate_text(self.labels["learning_rate"]), self.labels["seed"]
        cell = (self.labels[name] for name in ("variant", "model", "task"))
        return ", ".join([f"lr {rate}", f"seed {seed}", *cell])

    @property
    def status(self) -> State:
        """How it ended; `STARTED`, too, if it went beyond its last end: it is training again."""
        if self.row is None or (self.curve and self.curve[-1]["step"] > self.row["num_steps"]):
            return State.STARTED
        return State(self.row["status"])

    @property
    def mlflow_status(self) -> str:
        """MLflow's word for the status; of a run that diverged it is FAILED, and `sweep.failure` says why."""
        words = {
            State.STARTED: "RUNNING",
            State.FAILED: "FAILED",
            State.DIVERGED: "FAILED",
            State.STOPPED: "KILLED",
        }
        return words.get(self.status, "FINISHED")

    @property
    def started_ms(self) -> int:
        """Unix time of the start, in milliseconds; while the run trains, computed from its first evaluation."""
        if self.row is not None:
            return _unix_ms(self.row["started_at"])
        first = self.curve[0]
        return int(first["time_ms"] - 1000 * first["elapsed_s"])

    @property
    def ended_ms(self) -> int | None:
        """Unix time of the end, in milliseconds; None while the run trains."""
        return (
            None
            if self.row is None or self.status is State.STARTED
            else _unix_ms(self.row["finished_at"])
        )

    def params(self) -> dict[str, str]:
        """Labels, and what defines the run (`protocol.batch_size`, `model.layers`); no param ever changes."""
        content = json.loads(self.row["content"]) if self.row else {}
        named = {key: value for key, value in content.items() if key not in _UNLOGGED_CONTENT}
        return {
            allowed(key): as_text(value) for key, value in (flattened(named) | self.labels).items()
        }

    def tags(self) -> dict[str, str]:
        """Everything that is not part of a run's definition; what is missing gets no tag."""
        fields = self.row or {
            name: value for name, value in self.asked.items() if name != "num_steps"
        }
        values = {f"sweep.{name}": fields.get(name) for name in _TAGGED}
        values["sweep.fresh"] = (
            self.asked.get("fresh") or None
        )  # it compares variants, and chose nothing
        status = "training" if self.status is State.STARTED else self.status.value
        values |= {"sweep.status": status, "mlflow.source.git.commit": fields.get("git_commit")}
        if self.status is State.DIVERGED:
            step = fields["diverged_at_step"]
            values["sweep.failure"] = f"diverged: a loss or a gradient is not finite at step {step}"
        if self.status is State.STARTED:
            values |= dict.fromkeys(ENDING_TAGS)
        return {
            key: as_text(value)[:_MAX_TEXT_LENGTH]
            for key, value in values.items()
            if value is not None
        }

    def chosen(self) -> dict[str, float]:
        """Return metrics for charts over runs: learning rate and selected step of a run that ended with a value."""
        if self.row is None or self.row["best_step"] is None:
            return {}
        names = ("learning_rate", "best_step", "validation_at_best", "test_at_best")
        values = {name: self.row[name] for name in names}
        return {
            name: float(value)
            for name, value in values.items()
            if value is not None and math.isfinite(value)
        }

    def thinned(self) -> Sequence[Row]:
        """Return at most `MOST_POINTS` evaluations: the first and, once the run has ended, the best and the last.

        The rest are as far apart as a power of two: what is kept while a run trains is also kept once it has ended.
        """
        number = len(self.curve)
        if is_training := self.status is State.STARTED:
            number = max(number, self.asked.get("num_steps", 0) // self.curve[0]["step"])
        if number <= MOST_POINTS:
            return self.curve
        apart = 2 ** math.ceil(math.log2(number / (MOST_POINTS - 2)))
        ends = (
            set() if is_training else {self.curve[-1]["step"], self.row and self.row["best_step"]}
        )
        return [
            row for index, row in enumerate(self.curve) if index % apart == 0 or row["step"] in ends
        ]

    def points(self, evaluations: Sequence[Row]) -> list[list[Point]]:
        """List what was measured, by evaluation.

        NaN and infinities are left out too: MLflow's databases keep an infinity as 1.8e308, which spoils every plot.
        """
        names = metric_names(self.metric).items()
        return [
            [
                (name, row[column], row["time_ms"], row["step"])
                for name, column in names
                if math.isfinite(row[column])
            ]
            for row in evaluations
        ]


def logged_points(evaluations: Sequence[Row]) -> list[Point]:
    """List what was logged up to some evaluations, as `MirroredRun.points` does."""
    return [
        (f"logged/{logged['name']}", logged["value"], row["time_ms"], logged["step"])
        for row in evaluations
        for logged in row["logged"] or ()
        if math.isfinite(logged["value"])
    ]


def metric_names(metric: Metric) -> dict[str, str]:
    """Return columns of a curve by the names that MLflow shows: those of splits have the metric's name.

    A metric called `loss` takes the names of the losses.
    """
    own = {f"{split}_{allowed(metric.name)}": split for split in SPLITS}
    return {column: column for column in METRICS if column not in SPLITS} | own


def allowed(name: str) -> str:
    """Return a name without characters that MLflow refuses."""
    return _NOT_IN_NAMES.sub("_", name)


def _unix_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def as_text(value: Any) -> str:
    """Return a value as MLflow shows it: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def study_params(options: ReadFields) -> dict[str, str]:
    """Return a study's options, nested ones as `protocol.batch_size`."""
    shown = {
        name: value for name, value in options.items() if name not in ("title", "tags", "notes")
    }
    return {
        allowed(key): as_text(value)[:_MAX_PARAM_LENGTH] for key, value in flattened(shown).items()
    }


def study_metrics(cells: Sequence[Row]) -> dict[str, float]:
    """Return the result of each cell at its chosen learning rate: `test_mean/TASK/MODEL/VARIANT` and so on."""
    return {
        allowed("/".join([name, *(cell[key] for key in CELL)])): float(cell[name])
        for cell in cells
        for name in _CELL_METRICS
        if math.isfinite(cell[name])
    }


def view_key(study: str, owner: str) -> str:
    """Return the name of a study's view; `owner`: the results directory's id where the store may have others' runs."""
    return f"{study}-{owner}" if owner else study


def runs_view(study: str, owner: str, higher_is_better: bool) -> Fields:
    """Return a view of MLflow's page: the runs of a study, best first, with columns; the address can name only a view.

    They are not nested below their study, which MLflow does only in the order of time.
    """
    owned = f" AND tags.`sweep.results_id` = '{owner}'" if owner else ""
    return {
        "searchFilter": f"tags.`sweep.kind` = 'run' AND tags.`sweep.studies` LIKE '%,{study},%'{owned}",
        "orderByKey": "metrics.`test_at_best`",
        "orderByAsc": not higher_is_better,
        "selectedColumns": [
            "params.`variant`",
            "params.`learning_rate`",
            "params.`seed`",
            "metrics.`test_at_best`",
        ],
    }
