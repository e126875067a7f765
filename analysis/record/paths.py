"""Where everything in a results directory is; no other module joins these names."""

from __future__ import annotations

from pathlib import Path

from lr_sweep.analysis.record.access import RecordError


class Paths:
    """The files and folders of a results directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.format = root / "format.json"
        self.runs, self.curves, self.index = root / "runs", root / "curves", root / "index.parquet"
        self.studies = root / "studies"
        self.all_checkpoints, self.pretrained = root / "checkpoints", root / "pretrained"
        self.tune, self.logs, self.stop_requests = root / "tune", root / "logs", root / "stop"
        self.sweep_stop = self.stop_requests / "sweep"
        self.timings, self.cohort_sizes = root / "timings.json", root / "places.json"
        self.pretraining_progress = root / "pretraining-progress.json"
        self.mlflow_database, self.mlflow_artifacts = root / "mlflow.db", root / "mlflow-artifacts"
        self.writer_lock, self.holder = root / "writer.lock", root / "writer.json"

    def run(self, run_id: str) -> Path:
        """Return the file of a finished run's row."""
        return self.runs / f"{run_id}.parquet"

    def curve(self, run_id: str) -> Path:
        """Return the file of a run's evaluations."""
        return self.curves / f"{run_id}.parquet"

    def checkpoints(self, run_id: str) -> Path:
        """Return the folder of a run's checkpoints."""
        return self.all_checkpoints / run_id

    def log(self, run_id: str) -> Path:
        """Return the log of a run, on the machine of the driver alone."""
        return self.logs / "runs" / f"{run_id}.log"

    def study(self, name: str) -> Path:
        """Return the folder of a study; raises RecordError if the name is not a plain folder name."""
        if name in ("", ".", "..") or Path(name).name != name:
            raise RecordError(f"got {name!r} as the name of a study, want a plain name without slashes")
        return self.studies / name

    def study_folders(self) -> list[Path]:
        """Return what is in the folder of studies, by name."""
        return sorted(self.studies.glob("*"))

    def facts(self, study: str) -> Path:
        """Return the file of a study's title, metric and search, which is written last."""
        return self.study(study) / "study.json"

    def options(self, study: str) -> Path:
        """Return the file of a study with all its defaults."""
        return self.study(study) / f"{study}.yaml"

    def wanted(self, study: str) -> Path:
        """Return the file of the runs that a study wants."""
        return self.study(study) / "wanted.parquet"

    def planned(self, study: str) -> Path:
        """Return the file of the planned durations of a study's runs."""
        return self.study(study) / "planned.parquet"

    def proposals(self, study: str) -> Path:
        """Return the file of the learning rates that a study's search has proposed."""
        return self.study(study) / "proposals.parquet"

    def rungs(self, study: str) -> Path:
        """Return the file of what a study's early stopping decided."""
        return self.study(study) / "rungs.parquet"

    def progress(self, study: str) -> Path:
        """Return the file that `status` reads while a sweep is running."""
        return self.study(study) / "progress.json"

    def started(self, study: str) -> Path:
        """Return the file that says with what folders and CPUs a study was started; it stays on this machine."""
        return self.study(study) / "started.json"

    def report(self, study: str) -> Path:
        """Return the folder of a study's report."""
        return self.study(study) / "report"
