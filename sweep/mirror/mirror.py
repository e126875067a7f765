"""The MLflow mirror of the record: an MLflow run per run, as children of one per study. It can be rebuilt at any time.

MLflow itself is asked what it holds, so that a lost answer, a deleted database or another machine cannot make a point
appear twice. Nothing here is needed for training, resuming or the report.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_study, read_wanted_rows
from lr_sweep.analysis.report.blocks import markdown_text
from lr_sweep.analysis.study_summary import RecordedStudy, read_summary
from lr_sweep.common.network import shown_uri
from lr_sweep.sweep.mirror.client import (
    EXPERIMENT,
    VIEW_TAG,
    MirrorError,
    is_server,
    open_client,
    owner_in,
    store_problems,
)
from lr_sweep.sweep.mirror.content import (
    ENDING_TAGS,
    METRICS,
    MirroredRun,
    charts_view,
    naming_labels,
    study_metrics,
    study_note,
    study_params,
    view_key,
)
from lr_sweep.sweep.results.run_state import read_run
from lr_sweep.sweep.results.validation import read_options

_MAX_METRICS, _MAX_PARAMS, _MAX_RUNS, _MAX_DIGEST = 1000, 100, 1000, 36
"""Most metrics and params of a batch, runs of a page, and characters of a checksum that MLflow takes."""
T = TypeVar("T")
OWNER_TAG = "sweep.results_id"
_ENDED_TAG = "sweep.mirrored_end_ms"
"""The tag that is set last, to the time of the end that is fully mirrored: the next start skips such a run."""
_ALL = " with all points"
"""The end of that tag in a run that was mirrored with `mirror: all`."""


@dataclass
class _MlflowRun:
    """What MLflow is known to hold of a run."""

    mlflow_id: str
    status: str
    params: dict[str, str]
    metrics: dict[str, float]
    """Their latest values."""
    tags: dict[str, str]
    steps: set[int] | None = None
    """Steps whose evaluation is there; None: not known."""


class Mirror:
    """Brings MLflow in line with the record. For one thread; makes no connection before the first sync.

    A study is an MLflow run with the tags `sweep.kind=study` and `sweep.study`; a run is one with `sweep.run_id`, and
    stays below the study that mirrored it first; `sweep.studies` names all. In a store that other results directories
    may use, too, all of them have the tag `sweep.results_id`, and a mirror leaves those of other directories alone.

    Every method raises MirrorError if MLflow cannot be reached or refuses. Call it again later; nothing will be there
    twice.
    """

    def __init__(self, results: Path, study: str, tracking_uri: str, location: str | None = None) -> None:
        """`location`: where the results directory is, for readers; None: at its path on this machine."""
        self.results, self.study, self.tracking_uri = results.resolve(), study, tracking_uri
        self._owner = owner_in(tracking_uri, self.results)
        where = location or f"{socket.gethostname()}:{self.results}"
        self._owner_tags = {OWNER_TAG: self._owner, "sweep.results": where} if self._owner else {}
        self._artifacts = None if is_server(tracking_uri) else Paths(self.results).mlflow_artifacts.as_uri()
        """The folder of artifacts beside a database; None: a server has its own."""
        self._client: Any = None
        self._experiment_id = ""
        self._parent: _MlflowRun | None = None
        self._runs: dict[str, _MlflowRun] = {}
        self._wanted: dict[str, dict[str, Any]] = {}
        self._naming: list[str] = []
        self._metric, self._every_point = ACCURACY, False

    def sync_run(self, run_id: str) -> None:
        """Mirror all that the record holds of a run by now; nothing happens if that is there already."""
        if (recorded := self._read(run_id)) is not None:
            with self._session() as parent:
                self._set_status(parent, "RUNNING")
                self._sync(recorded, parent)

    def sync_all(self) -> int:
        """Mirror every recorded run of the study, which no sweep trains now; return how many runs MLflow holds."""
        self._read_wanted()
        for run_id in self._wanted:
            self.sync_run(run_id)
        self.close_study()
        return len(self._wanted.keys() & self._runs.keys())

    def close_study(self) -> None:
        """Give the study's MLflow run its results; mark it FINISHED if every wanted run has ended, else KILLED.

        Runs that have not ended are marked KILLED, too. The next sweep marks what it trains RUNNING again.
        """
        self._read_wanted()
        read = read_summary(self.results, self.study)
        options = read_options(Paths(self.results).options(self.study))
        with self._session() as parent:
            self._sync_study(read, options, parent)
            mirrored = [self._runs[run_id] for run_id in self._wanted if run_id in self._runs]
            for run in mirrored:
                if run.status == "RUNNING":
                    self._set_status(run, "KILLED")
            ended = [run.tags[_ENDED_TAG] for run in mirrored if run.status in ("FINISHED", "FAILED")]
            ends_ms = [int(tag.removesuffix(_ALL)) for tag in ended]
            if len(ends_ms) < len(self._wanted):
                self._set_status(parent, "KILLED")
            else:
                self._set_status(parent, "FINISHED", max(ends_ms))

    def log_report(self, folder: Path) -> None:
        """Store the files of a folder as the artifact `report` of the study's MLflow run.

        Raises MirrorError also if the results directory was moved, and MLflow has its old path.
        """
        with self._session() as parent:
            location = self._client.get_run(parent.mlflow_id).info.artifact_uri
            expected = self._artifacts
            if expected and location.startswith("file:") and not location.startswith(f"{expected}/"):
                raise MirrorError(
                    f"MLflow at {shown_uri(self.tracking_uri)} keeps files at {location}, not below {expected}: the "
                    "results directory was moved. Delete mlflow.db; the next run rebuilds it from the record."
                )
            self._client.log_artifacts(parent.mlflow_id, str(folder), artifact_path="report")

    def _read_wanted(self) -> None:
        info = read_study(self.results, self.study)
        self._metric, self._every_point = info.metric, info.mirror == "all"
        self._wanted = {row["run_id"]: row for row in read_wanted_rows(self.results, self.study)}
        self._naming = naming_labels(list(self._wanted.values()))

    def _read(self, run_id: str) -> MirroredRun | None:
        if run_id not in self._wanted:
            self._read_wanted()
        wanted = {self.study: self._wanted[run_id]} if run_id in self._wanted else {}
        found = read_run(self.results, run_id)
        return MirroredRun(**vars(found) | {"wanted": wanted, "metric": self._metric}) if found else None

    @contextmanager
    def _session(self) -> Iterator[_MlflowRun]:
        """Connect, and yield the study's run; after a problem, forget what MLflow holds: it may hold more."""
        if self._client is None:
            self._client = open_client(self.tracking_uri)
        try:
            with store_problems(self.tracking_uri):
                if self._parent is None:
                    self._experiment_id = self._find_or_create_experiment()
                    self._runs = self._once("run", "sweep.run_id")
                    self._parent = self._once("study", "sweep.study").get(self.study) or self._create_parent()
                    self._set_tags(self._parent, self._owner_tags)  # the directory may have been moved
                yield self._parent
        except Exception:
            self._parent = None
            raise

    def _once(self, kind: str, tag: str) -> dict[str, _MlflowRun]:
        """Return the MLflow runs of a kind by a tag's value: this directory's, and those of versions without owners.

        A request under way when its sender was killed may create a second one after the next sender has looked: all
        but one are deleted, which MLflow can undo.
        """
        found: dict[str, _MlflowRun] = {}
        unowned: dict[str, _MlflowRun] = {}
        for run in map(_known, self._search(kind)):
            owner = run.tags.get(OWNER_TAG, "")
            if owner == self._owner and found.setdefault(run.tags[tag], run) is not run:
                self._client.delete_run(run.mlflow_id)
            elif not owner:
                unowned.setdefault(run.tags[tag], run)
        return unowned | found

    def _find_or_create_experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        if (experiment := self._client.get_experiment_by_name(EXPERIMENT)) is None:
            try:
                return str(self._client.create_experiment(EXPERIMENT, artifact_location=self._artifacts))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self._client.get_experiment_by_name(EXPERIMENT)  # another mirror was faster
        return str(experiment.experiment_id)

    def _search(self, kind: str) -> Iterator[Any]:
        query, token = f"tags.`sweep.kind` = '{kind}'", None
        while True:
            page = self._client.search_runs([self._experiment_id], query, max_results=_MAX_RUNS, page_token=token)
            yield from page
            if not (token := page.token):
                return

    def _create_parent(self) -> _MlflowRun:
        self._read_wanted()
        started_ms = [recorded.started_ms for run_id in self._wanted if (recorded := self._read(run_id))]
        title = read_study(self.results, self.study).title
        tags = {"sweep.kind": "study", "sweep.study": self.study, "mlflow.note.content": markdown_text(title)}
        return self._create_run(min(started_ms, default=None), tags, self.study)

    def _sync(self, recorded: MirroredRun, parent: _MlflowRun) -> None:
        run = self._runs.get(recorded.run_id)
        if run is None:
            labels = {"sweep.kind": "run", "sweep.run_id": recorded.run_id, "mlflow.parentRunId": parent.mlflow_id}
            run = self._runs[recorded.run_id] = self._create_run(
                recorded.started_ms, labels, recorded.name(self._naming)
            )
            run.steps = set()
        studies = set(filter(None, run.tags.get("sweep.studies", "").split(","))) | {self.study}
        tags = {"sweep.studies": f",{','.join(sorted(studies))},"} | self._owner_tags  # commas: for MLflow's LIKE
        ended_ms = recorded.ended_ms
        ended, whole = run.tags.get(_ENDED_TAG, ""), f"{ended_ms}{_ALL}"
        is_there = ended == whole or (ended == str(ended_ms) and not self._every_point)
        if not is_there or run.status != recorded.mlflow_status:
            tags |= recorded.tags()
            self._log_params(run, recorded.params())
            self._log_points(run, recorded)
            if ended_ms is None:
                self._set_status(run, "RUNNING")
            else:
                self._log_metrics(run, recorded.chosen(), ended_ms)
                self._log_data(run, recorded)
                self._set_status(run, recorded.mlflow_status, ended_ms)
                run.steps = None  # of thousands of runs, not needed any more
                tags[_ENDED_TAG] = whole if self._every_point else str(ended_ms)
        self._set_tags(run, tags)

    def _create_run(self, started_ms: int | None, tags: dict[str, str], name: str) -> _MlflowRun:
        tags = tags | self._owner_tags
        return _known(self._client.create_run(self._experiment_id, start_time=started_ms, tags=tags, run_name=name))

    def _sync_study(self, read: RecordedStudy, options: Mapping[str, Any], parent: _MlflowRun) -> None:
        params, cells = study_params(options), read.summary.cells.to_dict("records")
        self._log_params(parent, params)
        changed = {key: value for key, value in params.items() if parent.params[key] != value}
        self._log_metrics(parent, study_metrics(cells), time.time_ns() // 1_000_000)
        now = {f"sweep.now.{key}": value for key, value in changed.items()}  # a param keeps its first value
        note = study_note(read.info, cells, read.decision.progress() if read.decision else "")
        self._set_tags(parent, {"mlflow.note.content": note} | now)
        view = json.dumps(charts_view(self.study, read.info.metric, list(self._wanted.values()), self._owner))
        self._client.set_experiment_tag(self._experiment_id, f"{VIEW_TAG}{view_key(self.study, self._owner)}", view)

    def _log_params(self, run: _MlflowRun, params: Mapping[str, str]) -> None:
        """Add the params that are not there yet: another study may have given the run other labels before."""
        from mlflow.entities import Param

        new = [Param(key, value) for key, value in params.items() if key not in run.params]
        for batch in _batches(new, _MAX_PARAMS):
            self._client.log_batch(run.mlflow_id, params=batch)
        run.params |= {param.key: param.value for param in new}

    def _log_metrics(self, run: _MlflowRun, metrics: Mapping[str, float], time_ms: int) -> None:
        """Add the metrics that have another value there, at step 0: MLflow draws bars of these, and not lines."""
        from mlflow.entities import Metric

        new = [Metric(key, value, time_ms, 0) for key, value in metrics.items() if run.metrics.get(key) != value]
        for batch in _batches(new, _MAX_METRICS):
            self._client.log_batch(run.mlflow_id, metrics=batch)
        run.metrics |= metrics

    def _log_points(self, run: _MlflowRun, recorded: MirroredRun) -> None:
        """Add the wanted evaluations that are not there yet, each whole in one batch, which is one transaction.

        They keep their recorded time: MLflow takes the same point at another time as a second one.
        """
        from mlflow.entities import Metric

        if run.steps is None:
            run.steps = {point.step for point in self._client.get_metric_history(run.mlflow_id, "elapsed_s")}
        for batch in _batches(recorded.points(run.steps, all_of_them=self._every_point), _MAX_METRICS // len(METRICS)):
            metrics = [Metric(*point) for points_of_step in batch for point in points_of_step]
            self._client.log_batch(run.mlflow_id, metrics=metrics)
            run.steps |= {metric.step for metric in metrics}

    def _log_data(self, run: _MlflowRun, recorded: MirroredRun) -> None:
        """Name the task's examples as what the run has read; MLflow keeps an equal entry once."""
        from mlflow.entities import Dataset, DatasetInput

        if row := recorded.row:
            digest, source = row["data_checksum"][:_MAX_DIGEST], json.dumps({"origin": row["data_origin"]})
            entry = DatasetInput(Dataset(row["task"], digest, "record", source))
            try:
                self._client.log_inputs(run.mlflow_id, [entry])
            except Exception:  # where another mirror adds the same entry at this moment, MLflow (3.17) refuses one
                self._client.log_inputs(run.mlflow_id, [entry])

    def _set_status(self, run: _MlflowRun, status: str, ended_ms: int | None = None) -> None:
        if ended_ms is not None:
            self._client.set_terminated(run.mlflow_id, status, end_time=ended_ms)
        elif run.status != status:
            self._client.update_run(run.mlflow_id, status=status)
        run.status = status

    def _set_tags(self, run: _MlflowRun, tags: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        for key in ENDING_TAGS:
            if "sweep.status" in tags and key in run.tags and key not in tags:
                self._client.delete_tag(run.mlflow_id, key)
                del run.tags[key]
        changed = {key: value for key, value in tags.items() if run.tags.get(key) != value}
        if changed:
            self._client.log_batch(run.mlflow_id, tags=[RunTag(key, value) for key, value in changed.items()])
            run.tags |= changed


def _batches(items: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _known(run: Any) -> _MlflowRun:
    data = run.data
    return _MlflowRun(run.info.run_id, run.info.status, dict(data.params), dict(data.metrics), dict(data.tags))
