"""The MLflow mirror of the record: an MLflow run per run, as children of one per study. It can be rebuilt at any time.

MLflow itself is asked what it holds, so that a lost answer, a deleted database or another machine cannot make a point
appear twice. Nothing here is needed for training, resuming or the report.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_study, read_wanted_rows
from lr_sweep.analysis.record.study import StudyInfo
from lr_sweep.analysis.report.blocks import markdown_text
from lr_sweep.analysis.study_summary import Study, read_summary
from lr_sweep.common.background import BackgroundWorker
from lr_sweep.common.network import shown_uri
from lr_sweep.common.text import Say, counted
from lr_sweep.sweep.results.run_state import read_run
from lr_sweep.sweep.results.validation import read_options

from .client import (
    EXPERIMENT,
    VIEW_TAG,
    MirrorError,
    MlflowRun,
    is_server,
    known_run,
    open_client,
    owner_in,
    store_problems,
)
from .content import (
    MirroredRun,
    runs_view,
    study_metrics,
    study_params,
    view_key,
)

_MAX_RUNS = 1000
"""Most runs of a page that MLflow takes."""
OWNER_TAG = "sweep.results_id"
_STUDIES_TAG = "sweep.studies"
"""The tag with the studies that want a run; a comma stands before and after each name, for MLflow's LIKE."""
_ENDED_TAG = "sweep.mirrored_end_ms"
"""The tag that is set last, to the time of the end that is fully mirrored: the next start skips such a run."""
REST = 3.0
"""Ratio of a pause to the work before it: the thread takes a quarter of the driver's time at most. Several points of a
run that arrive in a pause are mirrored together, which costs little more than one point."""
_STUDY = "the study's own run"
"""The key, among run ids, that closes the study once all its runs are mirrored."""


class Mirror:
    """Brings MLflow in line with the record. For one thread; makes no connection before the first sync.

    A study is an MLflow run with the tags `sweep.kind=study` and `sweep.study`; a run is one with `sweep.run_id`, and
    stays below the study that mirrored it first; `sweep.studies` names all that want it. In a store that other results
    directories may use, too, all of them have the tag `sweep.results_id`, and a mirror leaves those of other
    directories alone.

    Every method raises MirrorError if MLflow cannot be reached or refuses. Call it again later; nothing will be there
    twice.
    """

    def __init__(
        self, results: Path, study: str, tracking_uri: str, location: str | None = None
    ) -> None:
        """`location`: where the results directory is, for readers; None: at its path on this machine."""
        self.results, self.study, self.tracking_uri = results.resolve(), study, tracking_uri
        self._owner = owner_in(tracking_uri, self.results)
        where = location or f"{socket.gethostname()}:{self.results}"
        self._owner_tags = {OWNER_TAG: self._owner, "sweep.results": where} if self._owner else {}
        self._artifacts = (
            None if is_server(tracking_uri) else Paths(self.results).mlflow_artifacts.as_uri()
        )
        """The folder of artifacts beside a database; None: a server has its own."""
        self._client: Any = None
        self._experiment_id = ""
        self._parent: MlflowRun | None = None
        self._runs: dict[str, MlflowRun] = {}
        self._wanted: dict[str, dict[str, Any]] = {}
        self._info = StudyInfo(study=study, title=study)

    def sync_run(self, run_id: str) -> None:
        """Mirror all that the record holds of a run by now; nothing happens if that is there already."""
        if (recorded := self._read(run_id)) is not None:
            with self._session() as parent:
                parent.set_status("RUNNING")
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
                    run.set_status("KILLED")
            ended = [
                int(run.tags[_ENDED_TAG].split()[0])
                for run in mirrored
                if run.status in ("FINISHED", "FAILED")
            ]
            if len(ended) < len(self._wanted):
                parent.set_status("KILLED")
            else:
                parent.set_status("FINISHED", max(ended))

    def log_report(self, folder: Path) -> None:
        """Store the files of a folder as the artifact `report` of the study's MLflow run.

        Raises MirrorError also if MLflow keeps files elsewhere: the results directory was moved, or another one's sweep
        was the first in a database that both use.
        """
        with self._session() as parent:
            location = self._client.get_run(parent.mlflow_id).info.artifact_uri
            expected = self._artifacts
            is_file = location.startswith("file:")
            if expected and is_file and not location.startswith(f"{expected}/"):
                mend = "An MLflow server (docs/mlflow.md) keeps the reports of all directories."
                if not self._owner:
                    mend = "The results directory was moved: delete mlflow.db, which the next run makes again."
                raise MirrorError(
                    f"MLflow at {shown_uri(self.tracking_uri)} keeps files at {location}, not below {expected}. {mend}"
                )
            self._client.log_artifacts(parent.mlflow_id, str(folder), artifact_path="report")

    def _read_wanted(self) -> None:
        self._info = read_study(self.results, self.study)
        self._wanted = {row["run_id"]: row for row in read_wanted_rows(self.results, self.study)}

    def _read(self, run_id: str) -> MirroredRun | None:
        if run_id not in self._wanted:
            self._read_wanted()
        wanted = {self.study: self._wanted[run_id]} if run_id in self._wanted else {}
        if (recorded := read_run(self.results, run_id)) is None:
            return None
        return MirroredRun(**vars(recorded) | {"wanted": wanted, "metric": self._info.metric})

    @contextmanager
    def _session(self) -> Iterator[MlflowRun]:
        """Connect, and yield the study's run; after a problem, forget what MLflow holds: it may hold more."""
        if self._client is None:
            self._client = open_client(self.tracking_uri)
        try:
            with store_problems(self.tracking_uri):
                if self._parent is None:
                    self._experiment_id = self._find_or_create_experiment()
                    self._runs = self._once("run", "sweep.run_id")
                    self._parent = (
                        self._once("study", "sweep.study").get(self.study) or self._create_parent()
                    )
                    self._parent.set_tags(self._owner_tags)  # the directory may have been moved
                    self._set_view()
                    self._untag_unwanted()
                yield self._parent
        except Exception:
            self._parent = None
            raise

    def _set_view(self) -> None:
        self._read_wanted()
        key = view_key(self.study, self._owner)
        view = runs_view(self.study, self._owner, self._info.metric.higher_is_better)
        self._client.set_experiment_tag(self._experiment_id, f"{VIEW_TAG}{key}", json.dumps(view))

    def _untag_unwanted(self) -> None:
        """Take the study's name from runs that it no longer wants: their code or their options have changed."""
        for run_id, run in self._runs.items():
            if run_id not in self._wanted:
                run.set_tags(_studies_tag(_studies_of(run.tags) - {self.study}))

    def _once(self, kind: str, tag: str) -> dict[str, MlflowRun]:
        """Return this directory's MLflow runs of a kind by a tag's value.

        A request under way when its sender was killed may create a second one after the next sender has looked: all
        but one are deleted, which MLflow can undo.
        """
        runs: dict[str, MlflowRun] = {}
        for run in (known_run(self._client, run) for run in self._search(kind)):
            is_ours = run.tags.get(OWNER_TAG, "") == self._owner
            if is_ours and runs.setdefault(run.tags[tag], run) is not run:
                self._client.delete_run(run.mlflow_id)
        return runs

    def _find_or_create_experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        if (experiment := self._client.get_experiment_by_name(EXPERIMENT)) is None:
            try:
                return str(
                    self._client.create_experiment(EXPERIMENT, artifact_location=self._artifacts)
                )
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self._client.get_experiment_by_name(
                    EXPERIMENT
                )  # another mirror was faster
        return str(experiment.experiment_id)

    def _search(self, kind: str) -> Iterator[Any]:
        query, token = f"tags.`sweep.kind` = '{kind}'", None
        while True:
            page = self._client.search_runs(
                [self._experiment_id], query, max_results=_MAX_RUNS, page_token=token
            )
            yield from page
            if not (token := page.token):
                return

    def _create_parent(self) -> MlflowRun:
        self._read_wanted()
        started_ms = [
            recorded.started_ms for run_id in self._wanted if (recorded := self._read(run_id))
        ]
        tags = self._about() | {"sweep.kind": "study", "sweep.study": self.study}
        return self._create_run(min(started_ms, default=None), tags, self.study)

    def _sync(self, recorded: MirroredRun, parent: MlflowRun) -> None:
        run, ended_ms = self._runs.get(recorded.run_id), recorded.ended_ms
        known = {} if run is None else run.tags
        is_late = run is None or (known.get(_ENDED_TAG), run.status) != (
            str(ended_ms),
            recorded.mlflow_status,
        )
        if run is not None and is_late and run.was_trained_anew(recorded):
            self._client.delete_run(run.mlflow_id)
            run = None
        if run is None:
            labels = {
                "sweep.kind": "run",
                "sweep.run_id": recorded.run_id,
                "mlflow.parentRunId": parent.mlflow_id,
            }
            run = self._runs[recorded.run_id] = self._create_run(
                recorded.started_ms, labels, recorded.name
            )
            run.steps = set()
        tags = _studies_tag(_studies_of(known) | recorded.wanted.keys())
        tags |= {**self._owner_tags, **self._info.tags}
        if is_late:
            tags |= recorded.tags()
            run.log_params(recorded.params())
            run.log_points(recorded)
            if ended_ms is None:
                run.set_status("RUNNING")
            else:
                run.log_metrics(recorded.chosen(), ended_ms)
                run.set_status(recorded.mlflow_status, ended_ms)
                run.steps = None  # of thousands of runs, not needed any more
                tags[_ENDED_TAG] = str(ended_ms)
        run.set_tags(tags)

    def _create_run(self, started_ms: int | None, tags: dict[str, str], name: str) -> MlflowRun:
        tags = tags | self._owner_tags
        run = self._client.create_run(
            self._experiment_id, start_time=started_ms, tags=tags, run_name=name
        )
        return known_run(self._client, run)

    def _sync_study(self, read: Study, options: Mapping[str, Any], parent: MlflowRun) -> None:
        params, cells = study_params(options), read.summary.cells.to_dict("records")
        parent.log_params(params)
        changed = {key: value for key, value in params.items() if parent.params[key] != value}
        parent.log_metrics(study_metrics(cells), time.time_ns() // 1_000_000)
        now = {
            f"sweep.now.{key}": value for key, value in changed.items()
        }  # a param keeps its first value
        parent.set_tags(self._about() | now)

    def _about(self) -> dict[str, str]:
        """Return the study's own tags, and its title and notes as MLflow shows them."""
        note = f"{markdown_text(self._info.title)}\n\n{self._info.notes}".strip()
        return {**self._info.tags, "mlflow.note.content": note}


def _studies_of(tags: Mapping[str, str]) -> set[str]:
    """Return the studies that want a run, by its tags."""
    return set(filter(None, tags.get(_STUDIES_TAG, "").split(",")))


def _studies_tag(studies: Iterable[str]) -> dict[str, str]:
    return {_STUDIES_TAG: f",{','.join(sorted(studies))},"}


class MirrorThread:
    """Brings MLflow in line with the record, run by run, as runs change; waits as `BackgroundWorker` does.

    Only the thread uses `mirror`, until it is closed. It calls `on_problem` with one message when mirroring begins to
    fail, not again until it works.
    """

    def __init__(
        self, mirror: Mirror, on_problem: Say, *, retry_s: float = 5.0, max_retry_s: float = 300.0
    ) -> None:
        self._mirror, self._on_problem = mirror, on_problem
        self._used = False
        self._lacks: list[str] = []
        self._worker: BackgroundWorker[str | Path] = BackgroundWorker(
            "mlflow-mirror",
            self._sync,
            self._report,
            retry_s=retry_s,
            max_retry_s=max_retry_s,
            rest=REST,
        )

    def changed(self, *run_ids: str) -> None:
        """Have runs mirrored of which the record holds more now; returns at once."""
        self._used = self._used or bool(run_ids)
        self._worker.submit(*run_ids)

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left once more, for at most `timeout_s` seconds; return the ids of runs not mirrored fully."""
        if self._used:
            self._worker.close(0)  # from now on, what fails is not tried again after the study
            self._worker.submit(_STUDY)
            self._used = False
        left = self._worker.close(timeout_s)
        return [key for key in left if isinstance(key, str) and key != _STUDY]

    def finish(self, report: Path, timeout_s: float) -> list[str]:
        """Close, then put the report into MLflow, each within `timeout_s` seconds; return lines about what it lacks."""
        if late := self.close(timeout_s):
            return [
                f"not in MLflow yet: {counted(len(late), 'run')}; the next `run` of this study mirrors the rest"
            ]
        self._worker.submit(report)
        if self._worker.close(timeout_s):
            return [f"the report is not in MLflow: no answer within {timeout_s:.0f} s"]
        return self._lacks

    def _sync(self, key: str | Path) -> None:
        if isinstance(key, Path):
            try:
                self._mirror.log_report(key)
            except MirrorError as error:
                self._lacks = [f"the report is not in MLflow: {error}"]
        elif key != _STUDY:
            self._mirror.sync_run(key)
        elif not self._worker.failing:
            self._mirror.close_study()

    def _report(self, problem: Exception) -> None:
        self._on_problem(
            f"{str(problem) or type(problem).__name__}; training continues, and mirroring is tried again"
        )
