"""What the mirror makes of a record, in a real MLflow database."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.sweep.cli.parser import main
from lr_sweep.sweep.mirror.client import EXPERIMENT, MirrorError, open_client, open_ui, shown_uri, tracking_uri
from lr_sweep.sweep.mirror.content import METRICS
from lr_sweep.sweep.mirror.study_content import naming_labels
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.mirrored_record import (
    START_MS,
    find,
    new_mirror,
    points,
    write_curve,
    write_end,
    write_study,
)


def test_complete_run_is_mirrored_with_params_tags_times_and_points(results: Path) -> None:
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert run.info.run_name == "lr 1e-3, seed 0"
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", START_MS, START_MS + 60_000)
    assert run.data.params == {
        **{"task": "mnist", "model": "tiny", "variant": "frozen-random", "learning_rate": "0.001", "seed": "0"},
        **{"initialisation": "random", "trained": '["input", "output"]', "model.layers": "2", "model.heads": "4"},
        **{"protocol.batch_size": "8", "protocol.gradient_clip_norm": "null"},
    }
    assert run.data.tags["mlflow.source.git.commit"] == "abc123"
    assert run.data.tags["sweep.status"] == "complete"
    assert run.data.tags["sweep.data_origin"] == "torchvision"
    assert "sweep.pretrained_on" not in run.data.tags
    assert points(uri, "aa", "validation_accuracy") == [(100 * n, n / 10, START_MS + 10_000 * n) for n in range(1, 5)]
    (parent,) = find(uri, "sweep.study", "small")
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.data.tags["mlflow.note.content"].startswith("A small study\n")
    assert (parent.info.status, parent.info.start_time, parent.info.end_time) == (
        "FINISHED",
        START_MS,
        START_MS + 60_000,
    )


def test_a_run_is_named_the_same_before_and_after_a_round_that_adds_seeds(results: Path) -> None:
    rows = [{"task": "mnist", "model": "tiny", "variant": name, "learning_rate": 1e-3, "seed": 0} for name in "ab"]
    later = [*rows, rows[0] | {"seed": 1}, rows[0] | {"learning_rate": 1e-2}]
    assert naming_labels(rows) == naming_labels(later) == ["learning_rate", "seed", "variant"]


def test_a_study_has_its_results_and_a_run_the_numbers_of_its_selected_step(results: Path) -> None:
    write_end(results, "aa", best_step=300, validation_at_best=0.3, test_at_best=0.25)
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (parent,), (run,) = find(uri, "sweep.study", "small"), find(uri, "sweep.run_id", "aa")
    values = {"learning_rate": 0.001, "validation_mean": 0.4, "test_mean": 0.25}
    assert parent.data.metrics == {f"{name}/mnist/tiny/frozen-random": value for name, value in values.items()}
    chosen = {"best_step": 300.0, "validation_at_best": 0.3, "test_at_best": 0.25}
    assert run.data.metrics.items() >= ({"learning_rate": 0.001, "log10_learning_rate": -3.0} | chosen).items()
    assert parent.data.tags["mlflow.note.content"].splitlines()[2:] == [
        "| task | model | variant | learning rate | test | complete runs |",
        "|---|---|---|---|---|---|",
        "| mnist | tiny | frozen-random | 1e-3 | 25.0 | 1 of 1 |",
    ]


def test_a_run_that_is_tried_again_has_its_last_results(results: Path) -> None:
    for status, ended_s, accuracy in (("failed", 60, 0.5), ("complete", 90, 0.25)):
        values = {"best_step": 300, "validation_at_best": accuracy, "test_at_best": accuracy}
        write_end(results, "aa", status, ended_s, **values)
        new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (run,), (parent,) = find(uri, "sweep.run_id", "aa"), find(uri, "sweep.study", "small")
    assert run.data.metrics["test_at_best"] == parent.data.metrics["test_mean/mnist/tiny/frozen-random"] == 0.25
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")


def test_options_that_changed_are_tags_since_a_param_keeps_its_value(results: Path) -> None:
    options = Paths(results).study("small") / "small.yaml"
    for budget, seeds in ((400, 1), (800, 3)):
        options.write_text(f"study: small\ntitle: x\ntasks: {{mnist: {{num_steps: {budget}}}}}\nseeds: {seeds}\n")
        new_mirror(results).sync_all()
    (parent,) = find(tracking_uri(results), "sweep.study", "small")
    assert parent.data.params == {"study": "small", "tasks.mnist.num_steps": "400", "seeds": "1"}
    changed = {key: value for key, value in parent.data.tags.items() if key.startswith("sweep.now.")}
    assert changed == {"sweep.now.tasks.mnist.num_steps": "800", "sweep.now.seeds": "3"}


def test_the_report_is_put_into_mlflow_by_report_and_by_sync(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "small", "--results", str(results)]) == 0
    assert "MLflow     has it, too" in capsys.readouterr().out
    uri = tracking_uri(results)
    (parent,) = find(uri, "sweep.study", "small")
    names = {file.path for file in open_client(uri).list_artifacts(parent.info.run_id, "report")}
    assert {"report/index.html", "report/report.md"} <= names
    shutil.rmtree(results / "mlflow-artifacts")
    assert main(["mlflow", "sync", "--results", str(results)]) == 0
    assert names == {file.path for file in open_client(uri).list_artifacts(parent.info.run_id, "report")}


def test_replay_changes_nothing(results: Path) -> None:
    for _ in range(3):
        mirror = new_mirror(results)
        mirror.sync_all()
    uri = tracking_uri(results)
    assert len(find(uri, "sweep.kind", "run")) == len(find(uri, "sweep.kind", "study")) == 1
    assert all(len(points(uri, "aa", metric)) == 4 for metric in METRICS)


def test_lost_answer_does_not_double_points(results: Path) -> None:
    """The points arrive, but we never hear of it, and even the mark of a full mirror is missing."""
    mirror = new_mirror(results)
    mirror.sync_run("aa")
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    open_client(uri).delete_tag(run.info.run_id, "sweep.mirrored_end_ms")
    new_mirror(results).sync_all()
    assert all(len(points(uri, "aa", metric)) == 4 for metric in METRICS)


def test_lost_answer_does_not_double_the_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow creates the run, but its answer is lost; the same mirror tries again."""
    mirror = new_mirror(results)
    mirror.close_study()
    create_run = mirror._client.create_run

    def create_and_lose_the_answer(*args: Any, **kwargs: Any) -> None:
        create_run(*args, **kwargs)
        raise ConnectionError("connection reset")

    with monkeypatch.context() as broken:
        broken.setattr(mirror._client, "create_run", create_and_lose_the_answer)
        with pytest.raises(MirrorError, match="connection reset"):
            mirror.sync_run("aa")
    mirror.sync_run("aa")
    assert len(points(tracking_uri(results), "aa", "test_loss")) == 4


def test_evaluation_made_again_at_another_time_stays_one_point(results: Path) -> None:
    """After a crash an evaluation is repeated from a checkpoint: same step, later time."""
    Paths(results).run("aa").unlink()
    new_mirror(results).sync_run("aa")
    write_curve(results, "aa", 4, time_ms=START_MS + 999_000)
    write_end(results, "aa")
    new_mirror(results).sync_run("aa")
    assert len(points(tracking_uri(results), "aa", "test_loss")) == 4


def test_run_grows_while_it_trains_and_continues_after_a_restart(results: Path) -> None:
    Paths(results).run("aa").unlink()
    write_curve(results, "aa", 1)
    mirror = new_mirror(results)
    mirror.sync_run("aa")
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", START_MS, None)
    assert run.data.params["variant"] == "frozen-random"
    assert run.data.tags["sweep.status"] == "training"
    assert find(uri, "sweep.study", "small")[0].info.status == "RUNNING"
    write_curve(results, "aa", 2)
    mirror.sync_run("aa")
    assert [step for step, _, _ in points(uri, "aa", "test_loss")] == [100, 200]
    write_curve(results, "aa", 4)
    write_end(results, "aa")
    new_mirror(results).sync_all()
    assert [step for step, _, _ in points(uri, "aa", "test_loss")] == [100, 200, 300, 400]
    assert find(uri, "sweep.run_id", "aa")[0].info.status == "FINISHED"
    assert find(uri, "sweep.study", "small")[0].info.status == "FINISHED"


def test_raised_budget_reopens_the_run(results: Path) -> None:
    new_mirror(results).sync_run("aa")
    write_curve(results, "aa", 5)
    new_mirror(results).sync_run("aa")
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.data.tags["sweep.status"]) == ("RUNNING", "training")
    write_end(results, "aa", num_steps=500, ended_s=90)
    new_mirror(results).sync_run("aa")
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.info.end_time) == ("FINISHED", START_MS + 90_000)
    assert run.data.tags["sweep.num_steps"] == "500"
    assert len(points(uri, "aa", "test_loss")) == 5


def test_diverged_and_failed_runs_and_a_failure_that_is_put_right(results: Path) -> None:
    write_study(results, ["aa", "bb", "cc"])
    write_curve(results, "bb", 1)
    write_end(results, "bb", "diverged", num_steps=150, diverged_at_step=150)
    write_end(results, "cc", "failed", num_steps=0, failure="out of memory")
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (diverged,), (failed,) = find(uri, "sweep.run_id", "bb"), find(uri, "sweep.run_id", "cc")
    assert (diverged.info.status, diverged.data.tags["sweep.status"]) == ("FAILED", "diverged")
    assert diverged.data.tags["sweep.failure"] == "diverged: a loss or a gradient is not finite at step 150"
    assert diverged.data.tags["sweep.diverged_at_step"] == "150"
    assert (failed.info.status, failed.data.tags["sweep.failure"]) == ("FAILED", "out of memory")
    assert failed.data.metrics == {}
    write_curve(results, "cc", 4)
    write_end(results, "cc", ended_s=200)
    new_mirror(results).sync_run("cc")
    (repaired,) = find(uri, "sweep.run_id", "cc")
    assert (repaired.info.status, repaired.data.tags["sweep.status"]) == ("FINISHED", "complete")
    assert "sweep.failure" not in repaired.data.tags


def test_a_mirror_of_an_earlier_version_is_put_right(results: Path) -> None:
    """It had diverged runs as FINISHED, and called every metric an accuracy."""
    write_study(results, ["aa", "bb"])
    write_curve(results, "bb", 1)
    write_end(results, "bb", "diverged", num_steps=150, diverged_at_step=150)
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (diverged,) = find(uri, "sweep.run_id", "bb")
    open_client(uri).set_terminated(diverged.info.run_id, "FINISHED", diverged.info.end_time)
    with_metric(results, "loss")
    new_mirror(results).sync_all()
    assert find(uri, "sweep.run_id", "bb")[0].info.status == "FAILED"
    (run,) = find(uri, "sweep.run_id", "aa")
    assert "validation_accuracy" not in run.data.metrics
    assert len(points(uri, "aa", "validation_loss")) == 4


def with_metric(results: Path, name: str) -> None:
    """Have the study measure something to minimise."""
    path = Paths(results).facts("small")
    metric = {"name": name, "higher_is_better": False, "is_fraction": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metric": metric}))


def test_metrics_carry_the_name_of_what_the_study_measures(results: Path) -> None:
    with_metric(results, "bits per byte (held out)")
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (run,), experiment = find(uri, "sweep.run_id", "aa"), open_client(uri).get_experiment_by_name(EXPERIMENT)
    names = {f"{split}_bits per byte _held out_" for split in ("train", "validation", "test")}
    assert names == {name for name in run.data.metrics if name.startswith(("train_", "validation_", "test_"))} - {
        *("train_loss", "validation_loss", "test_loss"),
    }
    assert [value for _, value, _ in points(uri, "aa", "validation_bits per byte _held out_")] == [0.1, 0.2, 0.3, 0.4]
    charts = json.loads(experiment.tags["mlflow.sharedViewState.small"])["compareRunCharts"]
    assert [chart["metricKey"] for chart in charts if chart["type"] == "LINE"] == [
        "validation_bits per byte _held out_"
    ]


def test_a_metric_called_loss_takes_the_names_of_the_losses(results: Path) -> None:
    with_metric(results, "loss")
    write_curve(results, "aa", 4, validation_loss=7.0)
    new_mirror(results).sync_all()
    assert [value for _, value, _ in points(tracking_uri(results), "aa", "validation_loss")] == [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("content", [b"", b"study: [", b"study: other\n", b"a: &a [1]\nstudy: *a\n", b"\xff"])
def test_a_damaged_study_file_is_named(results: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = Paths(results).study("small") / "small.yaml"
    path.write_bytes(content)
    assert main(["mlflow", "sync", "--results", str(results)]) == 2
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("name", ["50%", "a%20b", "why?", "a#b;c", "a b ü&x=1"])
def test_any_path_of_the_results_will_do(results: Path, tmp_path: Path, name: str) -> None:
    moved = results.rename(tmp_path / name)
    new_mirror(moved).sync_all()
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("what we found")
    new_mirror(moved).log_report(report)
    assert len(points(tracking_uri(moved), "aa", "test_loss")) == 4
    assert len(list((moved / "mlflow-artifacts").rglob("report.md"))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "report"])
    (moved / "mlflow.db").unlink()
    with pytest.raises(MirrorError, match="there is no MLflow store at"):
        open_ui(moved)


def test_what_mlflow_and_its_drivers_raise_is_a_mirror_error(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)  # not installed
    for uri in ("postgresql://me:secret@127.0.0.1:9/x", "nonsense://x", "http://[", "sqlite:////proc/x/mlflow.db"):
        with pytest.raises(MirrorError) as caught:
            new_mirror(results, uri=uri).sync_all()
        assert "secret" not in str(caught.value)


def test_missing_stays_missing(results: Path) -> None:
    write_curve(results, "aa", 4, train_loss=float("nan"), test_loss=float("inf"))
    new_mirror(results).sync_run("aa")
    (run,) = find(tracking_uri(results), "sweep.run_id", "aa")
    assert set(run.data.metrics) == set(METRICS) - {"train_loss", "test_loss"}


def test_run_without_anything_recorded_is_not_created(results: Path) -> None:
    write_study(results, ["aa", "bb"])
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    assert len(find(uri, "sweep.kind", "run")) == 1
    assert find(uri, "sweep.study", "small")[0].info.status == "KILLED"


def test_shared_run_stays_below_its_first_study_and_names_both(results: Path) -> None:
    write_study(results, ["aa"], study="second")
    new_mirror(results).sync_run("aa")
    new_mirror(results, "second").sync_all()
    uri = tracking_uri(results)
    (run,), (first,) = find(uri, "sweep.run_id", "aa"), find(uri, "sweep.study", "small")
    assert run.data.tags["mlflow.parentRunId"] == first.info.run_id
    assert run.data.tags["sweep.studies"] == ",second,small,"
    assert find(uri, "sweep.study", "second")[0].info.status == "FINISHED"


def test_deleted_store_is_rebuilt_and_long_curves_go_in_whole_evaluations(results: Path, tmp_path: Path) -> None:
    """300 evaluations x 7 metrics are more than two batches of 1000 points."""
    write_curve(results, "aa", 300)
    write_end(results, "aa", num_steps=30_000)
    new_mirror(results).sync_all()
    # MLflow keeps a deleted database open for the life of the process: a copy stands for a new process.
    copy = Path(shutil.copytree(results, tmp_path / "copy", ignore=shutil.ignore_patterns("mlflow*")))
    new_mirror(copy).sync_all()
    for metric in METRICS:
        rebuilt = points(tracking_uri(copy), "aa", metric)
        assert len(rebuilt) == 300
        assert rebuilt == points(tracking_uri(results), "aa", metric)


def test_report_is_stored_below_the_results_directory(results: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text("what we found")
    mirror = new_mirror(results)
    mirror.log_report(report)
    mirror.log_report(report)
    (stored,) = (results / "mlflow-artifacts").rglob("report.md")
    assert stored.read_text() == "what we found"
    moved = Path(shutil.copytree(results, tmp_path / "moved"))
    with pytest.raises(MirrorError, match="was moved"):
        new_mirror(moved).log_report(report)


def test_user_server_is_preferred_and_passwords_are_not_shown(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking_uri(results) == f"sqlite:///{results}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@host:1234/path")
    assert tracking_uri(results) == "https://me:secret@host:1234/path"
    assert shown_uri(tracking_uri(results)) == "https://host:1234/path"


def test_the_database_follows_the_umask(store: Path) -> None:
    assert oct(store.stat().st_mode & 0o777) == "0o664"


def test_a_damaged_database_may_be_deleted(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = results / "mlflow.db"
    database.write_bytes(b"no database " * 1000)
    with pytest.raises(MirrorError, match=f"delete {database} .*the next `run` or `mlflow sync` rebuilds it"):
        new_mirror(results).sync_all()
    uri = tracking_uri(results)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # the user's own may hold more than the mirror
    with pytest.raises(MirrorError) as caught:
        new_mirror(results, uri=uri).sync_all()
    assert "delete" not in str(caught.value)


def test_a_database_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.store.db import utils

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    whole = utils._initialize_tables

    def interrupted(engine: Any) -> None:
        utils.InitialBase.metadata.create_all(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_initialize_tables", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_client(tracking_uri(tmp_path))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(utils, "_initialize_tables", whole)
    assert open_client(tracking_uri(tmp_path)).get_experiment_by_name("lr-sweep") is None
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_database_whose_migration_was_killed_may_be_deleted(results: Path) -> None:
    with closing(sqlite3.connect(results / "mlflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'da6fb0208061'")  # before that of label_schemas
        database.execute("DROP TABLE jobs")
        database.commit()
    with pytest.raises(MirrorError, match=r"already exists\. The database is damaged; .* delete .*mlflow\.db"):
        new_mirror(results).sync_all()


def statuses(uri: str) -> list[str]:
    """Return the statuses of the study and of its run `aa`."""
    return [find(uri, tag, value)[0].info.status for tag, value in (("sweep.study", "small"), ("sweep.run_id", "aa"))]


def test_what_a_stopped_sweep_left_open_is_killed_and_runs_again_with_the_next(results: Path) -> None:
    uri = tracking_uri(results)
    Paths(results).run("aa").unlink()
    write_curve(results, "aa", 2)
    mirror = new_mirror(results)
    mirror.sync_run("aa")
    assert statuses(uri) == ["RUNNING", "RUNNING"]
    mirror.close_study()
    assert statuses(uri) == ["KILLED", "KILLED"]
    again = new_mirror(results)
    again.sync_run("aa")
    assert statuses(uri) == ["RUNNING", "RUNNING"]
    write_curve(results, "aa", 4)
    write_end(results, "aa")
    again.sync_run("aa")
    again.close_study()
    assert statuses(uri) == ["FINISHED", "FINISHED"]
    assert [step for step, _, _ in points(uri, "aa", "test_loss")] == [100, 200, 300, 400]


def test_a_run_and_a_study_that_are_there_twice_are_once_afterwards(results: Path) -> None:
    """A killed sender's request can arrive after the next sender has searched for the run."""
    uri = tracking_uri(results)
    new_mirror(results).sync_all()
    client = open_client(uri)
    for tag, value in (("sweep.study", "small"), ("sweep.run_id", "aa")):
        (original,) = find(uri, tag, value)
        client.create_run(
            original.info.experiment_id, tags={key: original.data.tags[key] for key in ("sweep.kind", tag)}
        )
        assert len(find(uri, tag, value)) == 2
    new_mirror(results).sync_all()
    assert statuses(uri) == ["FINISHED", "FINISHED"]
    assert len(find(uri, "sweep.study", "small")) == len(find(uri, "sweep.run_id", "aa")) == 1
    assert len(points(uri, "aa", "test_loss")) == 4


def test_what_is_known_of_an_ended_run_does_not_grow_with_its_curve(results: Path) -> None:
    mirror = new_mirror(results)
    mirror.sync_all()
    assert mirror._runs["aa"].steps is None


def test_the_command_fills_an_empty_store_with_all_studies(
    results: Path, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_study(results, ["aa", "bb"], study="second")
    other = Path(shutil.copy(store, tmp_path / "other.db"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}")
    assert main(["mlflow", "sync", "--results", str(results)]) == 0
    assert "second: 1 runs\nsmall: 1 runs\n" in capsys.readouterr().out
    assert len(points(f"sqlite:///{other}", "aa", "test_loss")) == 4
    assert find(f"sqlite:///{other}", "sweep.run_id", "aa")[0].data.tags["sweep.studies"] == ",second,small,"
    assert main(["mlflow", "sync", "smal", "--results", str(results)]) == 2
    assert "unknown study 'smal'; did you mean 'small'?" in capsys.readouterr().err
    with Results(results).writing("small"):
        assert main(["mlflow", "sync", "--results", str(results)]) == 2
    assert "is being written to by process" in capsys.readouterr().err
