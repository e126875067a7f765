"""What the mirror makes of a record, in a real MLflow database: each run and each point once, as the record has it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.read import read_wanted_rows
from lr_sweep.sweep.mirror.client import open_client, tracking_uri
from lr_sweep.sweep.mirror.content import MirroredRun, metric_names
from lr_sweep.tests.support import records
from lr_sweep.tests.support.mirrored_record import (
    START_MS,
    find,
    new_mirror,
    points,
    write_curve,
    write_end,
    write_study,
)
from lr_sweep.tests.support.records import ended_row, evaluation, wanted_row

IN_MLFLOW = list(metric_names(ACCURACY))
"""Names of the metrics of a curve."""


def statuses(uri: str) -> list[str]:
    """Return the statuses of the study and of its run `aa`."""
    return [find(uri, tag, value)[0].info.status for tag, value in (("sweep.study", "small"), ("sweep.run_id", "aa"))]


def steps(uri: str, metric: str = "test_loss") -> list[int]:
    return [step for step, _, _ in points(uri, "aa", metric)]


def test_complete_run_is_mirrored_with_params_tags_times_and_points(results: Path) -> None:
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.run_id", "aa")
    assert run.info.run_name == "lr 1e-3, seed 0, frozen-random, tiny, mnist"
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
    assert parent.data.tags["mlflow.note.content"] == "A small study"
    for info in (run.info, parent.info):
        assert (info.status, info.start_time, info.end_time) == ("FINISHED", START_MS, START_MS + 60_000)


def test_a_data_file_of_any_name_is_a_param(results: Path) -> None:
    """MLflow refuses most punctuation in names."""
    write_end(results, "aa", content=json.dumps({"data": {"parts/train (1)+2.npz": "abc"}}))
    new_mirror(results).sync_all()
    (run,) = find(tracking_uri(results), "sweep.run_id", "aa")
    assert run.data.params["data.parts/train _1__2.npz"] == "abc"


def test_a_fresh_run_is_tagged() -> None:
    curve = [evaluation("aa", 100)]
    asked = [{"small": wanted_row("aa") | {"fresh": fresh}} for fresh in (True, False)]
    found = [MirroredRun(run_id="aa", row=None, curve=curve, wanted=each, metric=ACCURACY).tags() for each in asked]
    assert [tags.get("sweep.fresh") for tags in found] == ["true", None]


def test_a_study_has_its_results_and_a_run_the_numbers_of_its_selected_step_of_the_last_try(results: Path) -> None:
    for status, ended_s, accuracy in (("failed", 60, 0.5), ("complete", 90, 0.3)):
        write_end(results, "aa", status, ended_s, best_step=300, validation_at_best=accuracy, test_at_best=0.25)
        new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (parent,), (run,) = find(uri, "sweep.study", "small"), find(uri, "sweep.run_id", "aa")
    values = {"learning_rate": 0.001, "validation_mean": 0.4, "test_mean": 0.25}
    assert parent.data.metrics == {f"{name}/mnist/tiny/frozen-random": value for name, value in values.items()}
    chosen = {"best_step": 300.0, "validation_at_best": 0.3, "test_at_best": 0.25}
    assert run.data.metrics.items() >= ({"learning_rate": 0.001} | chosen).items()
    assert (run.info.status, parent.info.status) == ("FINISHED", "FINISHED")


@pytest.mark.parametrize("later", ["the next sweep", "the same sweep"])
def test_a_run_that_is_trained_anew_keeps_no_point_of_its_earlier_attempt(results: Path, later: str) -> None:
    """Its checkpoint was lost: it diverges at a step that the earlier attempt had passed."""
    write_study(results, ["aa"], "other")
    new_mirror(results, "other").sync_all()
    uri, first = tracking_uri(results), new_mirror(results)
    first.sync_all()
    write_curve(results, "aa", 2, time_ms=START_MS + 99_000)
    write_end(results, "aa", "diverged", ended_s=100, diverged_at_step=210)
    again = first if later == "the same sweep" else new_mirror(results)
    again.sync_run("aa")
    assert points(uri, "aa", "validation_accuracy") == [(100 * n, n / 10, START_MS + 99_000) for n in (1, 2)]
    (run,) = find(uri, "sweep.run_id", "aa")
    assert run.data.tags["sweep.studies"] == ",other,small,"
    new_mirror(results).sync_all()
    assert [each.info.run_id for each in find(uri, "sweep.run_id", "aa")] == [run.info.run_id]


def test_how_a_run_resumed_is_tagged_until_it_is_trained_anew(results: Path) -> None:
    tags = []
    for resumed, not_saved in (("inexactly", "average"), ("never", None)):
        write_end(results, "aa", ended_s=60 + len(tags), resumed=resumed, not_saved=not_saved)
        new_mirror(results).sync_all()
        (run,) = find(tracking_uri(results), "sweep.run_id", "aa")
        tags.append([run.data.tags.get(f"sweep.{name}") for name in ("resumed", "not_saved")])
    assert tags == [["inexactly", "average"], ["never", None]]


def test_options_that_changed_are_tags_since_a_param_keeps_its_value(results: Path) -> None:
    options = Paths(results).options("small")
    for budget, seeds in ((400, 1), (800, 3)):
        options.write_text(f"study: small\ntitle: x\ntasks: {{mnist: {{num_steps: {budget}}}}}\nseeds: {seeds}\n")
        new_mirror(results).sync_all()
    (parent,) = find(tracking_uri(results), "sweep.study", "small")
    assert parent.data.params == {"study": "small", "tasks.mnist.num_steps": "400", "seeds": "1"}
    changed = {key: value for key, value in parent.data.tags.items() if key.startswith("sweep.now.")}
    assert changed == {"sweep.now.tasks.mnist.num_steps": "800", "sweep.now.seeds": "3"}


def test_a_study_s_tags_and_notes_are_those_of_its_run_and_its_tags_of_its_runs(results: Path) -> None:
    rows = read_wanted_rows(results, "small")
    for tags in ({"team": "red", "baseline": ""}, {"team": "blue"}):
        records.write_study(results, "small", rows, tags=tags, notes="On *my* laptop")
        new_mirror(results).sync_all()
    (parent,) = find(tracking_uri(results), "sweep.study", "small")
    assert parent.data.tags["mlflow.note.content"] == "A small study\n\nOn *my* laptop"
    for run in (parent, *find(tracking_uri(results), "sweep.run_id", "aa")):
        assert {name: run.data.tags[name] for name in ("team", "baseline")} == {"team": "blue", "baseline": ""}


def test_whatever_is_sent_again_is_there_once(results: Path) -> None:
    uri = tracking_uri(results)

    def check() -> None:
        assert statuses(uri) == ["FINISHED", "FINISHED"]
        assert len(find(uri, "sweep.kind", "run")) == len(find(uri, "sweep.kind", "study")) == 1
        assert all(steps(uri, metric) == [100, 200, 300, 400] for metric in IN_MLFLOW)

    for _ in range(2):  # of the same record
        new_mirror(results).sync_all()
        check()
    (run,) = find(uri, "sweep.run_id", "aa")
    open_client(uri).delete_tag(run.info.run_id, "sweep.mirrored_end_ms")  # the points came, and all answers were lost
    new_mirror(results).sync_all()
    check()
    write_curve(results, "aa", 4, time_ms=START_MS + 999_000)  # evaluated again from a checkpoint after a crash
    write_end(results, "aa", ended_s=90)
    new_mirror(results).sync_all()
    check()
    # A killed sender's requests arrive after the next sender has searched for the run.
    for tag, value in (("sweep.study", "small"), ("sweep.run_id", "aa")):
        (original,) = find(uri, tag, value)
        tags = {key: original.data.tags[key] for key in ("sweep.kind", tag)}
        open_client(uri).create_run(original.info.experiment_id, tags=tags)
        assert len(find(uri, tag, value)) == 2
    new_mirror(results).sync_all()
    check()


def test_the_states_of_a_run_that_trains_is_stopped_ends_and_is_trained_further(results: Path) -> None:
    uri, mirror = tracking_uri(results), new_mirror(results)
    Paths(results).run("aa").unlink()
    write_curve(results, "aa", 1)
    mirror.sync_run("aa")
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.start_time, run.info.end_time) == (START_MS, None)
    assert (run.data.params["variant"], run.data.tags["sweep.status"]) == ("frozen-random", "training")
    assert statuses(uri) == ["RUNNING", "RUNNING"]
    write_curve(results, "aa", 2)
    mirror.sync_run("aa")
    assert steps(uri) == [100, 200]
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
    assert again._runs["aa"].steps is None  # what is known of thousands of ended runs does not grow with their curves
    write_curve(results, "aa", 5)  # the budget was raised
    new_mirror(results).sync_run("aa")
    assert statuses(uri) == ["RUNNING", "RUNNING"]
    write_end(results, "aa", num_steps=500, ended_s=90)
    new_mirror(results).sync_all()
    (run,) = find(uri, "sweep.run_id", "aa")
    assert (run.info.status, run.info.end_time, run.data.tags["sweep.num_steps"]) == (
        "FINISHED",
        START_MS + 90_000,
        "500",
    )
    assert steps(uri) == [100, 200, 300, 400, 500]


def test_of_a_long_curve_a_hundred_points_are_there_the_best_among_them(results: Path) -> None:
    """Of 750 evaluations every eighth, as long as the run trains to its budget, too; then the best and the last."""
    uri, every_eighth = tracking_uri(results), [100 * n for n in range(1, 751, 8)]
    records.write_study(results, "small", [wanted_row("aa", 75_000, model="tiny")])
    Paths(results).run("aa").unlink()
    write_curve(results, "aa", 300)
    mirror = new_mirror(results)
    mirror.sync_run("aa")
    assert steps(uri) == every_eighth[:38]
    write_curve(results, "aa", 750)
    write_end(results, "aa", num_steps=75_000, best_step=50_000)
    mirror.sync_run("aa")
    assert steps(uri) == sorted([*every_eighth, 50_000, 75_000])


def test_what_a_function_logged_is_there_once_beside_its_evaluations(results: Path) -> None:
    """At its own steps; a name that the evaluation has, too, is another metric; NaN is left out."""
    logged = [{"step": step, "name": "elapsed_s", "value": value} for step, value in ((99, math.nan), (100, 0.5))]
    write_curve(results, "aa", 4, logged=logged)
    for _ in range(2):
        new_mirror(results).sync_all()
    found = points(tracking_uri(results), "aa", "logged/elapsed_s")
    assert [(step, value) for step, value, _ in found] == [(100, 0.5)] * 4
    assert len(points(tracking_uri(results), "aa", "elapsed_s")) == 4


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


def with_metric(results: Path, name: str) -> None:
    """Have the study measure something to minimise."""
    path = Paths(results).facts("small")
    metric = {"name": name, "higher_is_better": False, "is_fraction": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metric": metric}))


def test_metrics_carry_the_name_of_what_the_study_measures(results: Path) -> None:
    """One called `loss` takes the names of the losses."""
    uri, name = tracking_uri(results), "validation_bits per byte _held out_"
    with_metric(results, "bits per byte (held out)")
    new_mirror(results).sync_all()
    (run,) = find(uri, "sweep.run_id", "aa")
    own = {f"{split}_bits per byte _held out_" for split in ("train", "validation", "test")}
    losses = {"train_loss", "validation_loss", "test_loss"}
    assert own | losses == {key for key in run.data.metrics if key.startswith(("train_", "validation_", "test_"))}
    assert [value for _, value, _ in points(uri, "aa", name)] == [0.1, 0.2, 0.3, 0.4]
    with_metric(results, "loss")
    write_curve(results, "aa", 4, validation_loss=7.0)
    open_client(uri).delete_run(run.info.run_id)
    new_mirror(results).sync_all()
    assert [value for _, value, _ in points(uri, "aa", "validation_loss")] == [0.1, 0.2, 0.3, 0.4]


def test_missing_stays_missing(results: Path) -> None:
    write_study(results, ["aa", "bb"])
    write_curve(results, "aa", 4, train_loss=float("nan"), test_loss=float("inf"))
    new_mirror(results).sync_all()
    uri = tracking_uri(results)
    (run,) = find(uri, "sweep.kind", "run")  # nothing is recorded of `bb`
    assert set(IN_MLFLOW) & set(run.data.metrics) == set(IN_MLFLOW) - {"train_loss", "test_loss"}
    assert find(uri, "sweep.study", "small")[0].info.status == "KILLED"


def test_a_shared_run_stays_below_its_first_study_and_names_those_that_want_it(results: Path) -> None:
    """As after a change of the user's code, which makes new runs, and after a change back."""
    write_study(results, ["aa"], study="second")
    uri, named, parents = tracking_uri(results), [], set()
    for wanted in (["aa"], ["bb"], ["aa"]):
        write_study(results, wanted)
        for study in ("small", "second"):
            new_mirror(results, study).sync_all()
        (run,) = find(uri, "sweep.run_id", "aa")
        named.append(run.data.tags["sweep.studies"])
        parents.add(run.data.tags["mlflow.parentRunId"])
    assert named == [",second,small,", ",second,", ",second,small,"]
    (first,), (second,) = (find(uri, "sweep.study", study) for study in ("small", "second"))
    assert (parents, second.info.status) == ({first.info.run_id}, "FINISHED")


@pytest.mark.parametrize("number", [1, 99, 100, 101, 196, 197, 750, 100_000])
def test_no_curve_has_more_points_than_a_hundred(number: int) -> None:
    curve = [evaluation("aa", step) for step in range(1, number + 1)]
    row = ended_row(wanted_row("aa"), [], "complete", trained=number) | {"best_step": max(1, number - 1)}
    kept = [each["step"] for each in MirroredRun(run_id="aa", row=row, curve=curve, metric=ACCURACY).thinned()]
    assert min(number, 51) <= len(kept) <= 100
    assert {1, max(1, number - 1), number} <= {*kept}
