"""The MLflow mirror of the record: one MLflow run a run, below one a study; it can be rebuilt at any time.

What is mirrored already is asked of MLflow itself, never of a file of ours, so that a lost answer, a deleted database
or another machine cannot make a point appear twice. Nothing here is needed for training, resuming or the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from analysis.record import read_run_rows, read_study
from sweep.mirror_content import ENDING_TAGS, METRICS, RecordedRun, in_chunks, read_wanted, unix_ms
from sweep.mlflow_store import EXPERIMENT, MirrorError, open_client, shown_uri, store_problems

_MAX_METRICS_A_BATCH = 1000
_MAX_PARAMS_A_BATCH = 100
_MAX_RUNS_A_PAGE = 1000
_ENDED_TAG = "sweep.mirrored_end_ms"
"""Set last, to the end that is fully mirrored, so that a finished run costs nothing at the next start."""


@dataclass(kw_only=True)
class _MlflowRun:
    """What MLflow holds of a run, as far as we asked."""

    mlflow_id: str
    status: str
    params: set[str]
    tags: dict[str, str]
    steps: set[int] | None
    """Steps whose evaluation is there; None: not asked yet."""


class Mirror:
    """Brings MLflow in line with the record. For one thread; makes no connection before the first sync.

    A study is an MLflow run with the tags `sweep.kind=study` and `sweep.study`; a run is one with `sweep.run_id`, and
    stays below the study that mirrored it first; `sweep.studies` names all.
    """

    def __init__(self, results: Path, study: str, tracking_uri: str) -> None:
        self.results = results.resolve()
        self.study = study
        self.tracking_uri = tracking_uri
        self._client: Any = None
        self._experiment_id = ""
        self._parent_id = ""
        self._parent_status = ""
        self._runs: dict[str, _MlflowRun] = {}
        self._wanted: dict[str, dict[str, Any]] = {}

    def sync_run(self, run_id: str) -> None:
        """Mirror all that the record holds of a run by now; nothing happens if that is there already.

        Raises:
            MirrorError: MLflow cannot be reached or refuses. Call again later; nothing will be there twice.
        """
        recorded = self._read(run_id)
        if recorded is not None:
            with self._session():
                if self._parent_status != "RUNNING":
                    self._client.update_run(self._parent_id, status="RUNNING")
                    self._parent_status = "RUNNING"
                self._sync(recorded)

    def sync_all(self) -> int:
        """Mirror every run that the study wants and that is recorded, while no sweep trains it.

        Returns:
            How many runs of the study MLflow holds now.

        Raises:
            MirrorError: as `sync_run`.
        """
        self._wanted = read_wanted(self.results, self.study)
        for run_id in self._wanted:
            self.sync_run(run_id)
        self.close_study()
        return len(self._wanted.keys() & self._runs.keys())

    def missing(self) -> list[str]:
        """Return the ended runs whose end MLflow does not hold.

        Raises:
            MirrorError: as `sync_run`.
        """
        self._wanted = read_wanted(self.results, self.study)
        with self._session():
            known = {run_id: run.tags.get(_ENDED_TAG) for run_id, run in self._runs.items()}
        ended = read_run_rows(self.results, self._wanted, ["run_id", "finished_at"])
        return [row["run_id"] for row in ended if known.get(row["run_id"]) != str(unix_ms(row["finished_at"]))]

    def close_study(self) -> None:
        """Mark the study's MLflow run FINISHED if every wanted run has ended, else KILLED, with those that have not.

        The next sweep marks what it trains RUNNING again.

        Raises:
            MirrorError: as `sync_run`.
        """
        self._wanted = read_wanted(self.results, self.study)
        with self._session():
            mirrored = [self._runs[run_id] for run_id in self._wanted if run_id in self._runs]
            for run in mirrored:
                if run.status == "RUNNING":
                    self._set_run_status(run, "KILLED")
            ends_ms = [int(run.tags[_ENDED_TAG]) for run in mirrored if run.status in ("FINISHED", "FAILED")]
            if len(ends_ms) < len(self._wanted):
                self._client.update_run(self._parent_id, status="KILLED")
                self._parent_status = "KILLED"
            else:
                self._client.set_terminated(self._parent_id, "FINISHED", end_time=max(ends_ms))
                self._parent_status = "FINISHED"

    def log_report(self, folder: Path) -> None:
        """Store the files of a folder as the artifact `report` of the study's MLflow run.

        Raises:
            MirrorError: as `sync_run`; or the results directory was moved, and MLflow knows its old place only.
        """
        with self._session():
            place = self._client.get_run(self._parent_id).info.artifact_uri
            expected = self._artifact_location()
            if expected and place.startswith("file:") and not place.startswith(f"{expected}/"):
                raise MirrorError(
                    f"MLflow at {shown_uri(self.tracking_uri)} keeps files at {place}, not below {expected}: the "
                    "results directory was moved. Delete mlflow.db; the next run rebuilds it from the record."
                )
            self._client.log_artifacts(self._parent_id, str(folder), artifact_path="report")

    def _read(self, run_id: str) -> RecordedRun | None:
        if run_id not in self._wanted:
            self._wanted = read_wanted(self.results, self.study)
        return RecordedRun.read(self.results, run_id, self._wanted.get(run_id, {}))

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Connect; after a problem, forget what we know of the store, since it may hold more than was answered."""
        if self._client is None:
            self._client = open_client(self.tracking_uri)
        try:
            with store_problems(self.tracking_uri):
                if not self._parent_id:
                    self._load()
                yield
        except Exception:
            self._parent_id = ""
            raise

    def _load(self) -> None:
        """Find or create the experiment and the study's run, and learn which runs are there."""
        self._experiment_id = self._find_or_create_experiment()
        self._runs = self._once("run", "sweep.run_id")
        parent = self._once("study", "sweep.study").get(self.study) or self._create_parent()
        self._parent_id, self._parent_status = parent.mlflow_id, parent.status

    def _once(self, kind: str, tag: str) -> dict[str, _MlflowRun]:
        """Return the MLflow runs of a kind by a tag's value.

        A request that was on its way when its sender was killed may create a second one after the next sender has
        looked: all but one are deleted, which MLflow can undo.
        """
        found: dict[str, _MlflowRun] = {}
        for run in map(_known, self._search(kind)):
            kept = found.setdefault(run.tags[tag], run)
            if kept is not run:
                self._client.delete_run(run.mlflow_id)
        return found

    def _find_or_create_experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return str(self._client.create_experiment(EXPERIMENT, artifact_location=self._artifact_location()))
        if experiment.lifecycle_stage == "deleted":
            raise MirrorError(
                f"The experiment {EXPERIMENT} was deleted in MLflow at {shown_uri(self.tracking_uri)}. Bring it back "
                f"with `mlflow experiments restore --experiment-id {experiment.experiment_id}`."
            )
        return str(experiment.experiment_id)

    def _artifact_location(self) -> str | None:
        """Artifacts lie beside a database; a server has a place of its own."""
        if urlsplit(self.tracking_uri).scheme in ("http", "https"):
            return None
        return (self.results / "mlflow-artifacts").as_uri()

    def _search(self, kind: str) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id],
                filter_string=f"tags.`sweep.kind` = '{kind}'",
                max_results=_MAX_RUNS_A_PAGE,
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _create_parent(self) -> _MlflowRun:
        self._wanted = read_wanted(self.results, self.study)
        started_ms = [recorded.started_ms for run_id in self._wanted if (recorded := self._read(run_id))]
        tags = {
            "sweep.kind": "study",
            "sweep.study": self.study,
            "mlflow.note.content": read_study(self.results, self.study).title,
        }
        run = self._client.create_run(
            self._experiment_id, start_time=min(started_ms, default=None), tags=tags, run_name=self.study
        )
        return _known(run)

    def _sync(self, recorded: RecordedRun) -> None:
        run = self._runs.get(recorded.run_id) or self._create(recorded)
        studies = set(filter(None, run.tags.get("sweep.studies", "").split(","))) | {self.study}
        tags = {"sweep.studies": ",".join(sorted(studies))}
        if recorded.ended_ms is None or run.tags.get(_ENDED_TAG) != str(recorded.ended_ms):
            self._log_params(run, recorded)
            self._log_points(run, recorded)
            self._set_status(run, recorded)
            tags |= recorded.tags() | ({_ENDED_TAG: str(recorded.ended_ms)} if recorded.ended_ms else {})
        self._set_tags(run, tags)

    def _create(self, recorded: RecordedRun) -> _MlflowRun:
        tags = {"sweep.kind": "run", "sweep.run_id": recorded.run_id, "mlflow.parentRunId": self._parent_id}
        created = self._client.create_run(
            self._experiment_id, start_time=recorded.started_ms, tags=tags, run_name=recorded.name
        )
        run = _known(created)
        run.steps = set()
        self._runs[recorded.run_id] = run
        return run

    def _log_params(self, run: _MlflowRun, recorded: RecordedRun) -> None:
        """Add the params that are not there yet: another study may have given the run other labels before."""
        from mlflow.entities import Param

        new = [Param(key, value) for key, value in recorded.params().items() if key not in run.params]
        for chunk in in_chunks(new, _MAX_PARAMS_A_BATCH):
            self._client.log_batch(run.mlflow_id, params=chunk)
            run.params |= {param.key for param in chunk}

    def _log_points(self, run: _MlflowRun, recorded: RecordedRun) -> None:
        """Add the evaluations that are not there yet, each whole in one batch, which is one transaction.

        They keep their recorded time: MLflow takes the same point at another time as a second one.
        """
        from mlflow.entities import Metric

        if run.steps is None:
            run.steps = {point.step for point in self._client.get_metric_history(run.mlflow_id, "elapsed_s")}
        for chunk in in_chunks(recorded.points(but_steps=run.steps), _MAX_METRICS_A_BATCH // len(METRICS)):
            self._client.log_batch(run.mlflow_id, metrics=[Metric(*point) for points in chunk for point in points])
            run.steps |= {step for points in chunk for _, _, _, step in points}

    def _set_status(self, run: _MlflowRun, recorded: RecordedRun) -> None:
        if recorded.ended_ms is not None:
            self._client.set_terminated(run.mlflow_id, recorded.mlflow_status, end_time=recorded.ended_ms)
            run.status = recorded.mlflow_status
            run.steps = None  # of thousands of runs, not needed any more
        elif run.status != "RUNNING":
            self._set_run_status(run, "RUNNING")

    def _set_run_status(self, run: _MlflowRun, status: str) -> None:
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


def _known(run: Any) -> _MlflowRun:
    """Keep what we need of an `mlflow.entities.Run`."""
    return _MlflowRun(
        mlflow_id=run.info.run_id,
        status=run.info.status,
        params=set(run.data.params),
        tags=dict(run.data.tags),
        steps=None,
    )
