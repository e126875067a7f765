"""What TensorBoard, Lightning, Hydra, Ray Tune and W&B wrote, read as it is; what is damaged is named."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import write_judged
from lr_sweep.analysis.judge.readers.files import table_of_content
from lr_sweep.analysis.judge.readers.labels import labels_of
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import BEST, RATES, RUNS, accuracy, assert_found, chosen, judge, run_script

READINGS = Path(__file__).parents[1] / "readings"


@pytest.mark.parametrize("library", ["tensorboardX", "torch.utils.tensorboard"])
@pytest.mark.parametrize("named", ["folder", "hyperparameters"])
def test_events_of_tensorboard(tmp_path: Path, library: str, named: str) -> None:
    pytest.importorskip("tensorboard" if library.startswith("torch") else library)
    writer_of = pytest.importorskip(library).SummaryWriter
    for number, (variant, rate, seed) in enumerate(RUNS):
        name = f"{variant}_lr={rate},seed={seed}" if named == "folder" else f"run{number}"
        with writer_of(str(tmp_path / name)) as writer:
            for step in (1, 2, 3):
                writer.add_scalar("train/loss", 1 / step, step)
                writer.add_scalar("val/acc", accuracy(variant, rate, seed) - 0.01 * abs(step - 2), step)
                writer.add_scalar("lr", rate / step, step)
            if named == "hyperparameters":
                writer.add_hparams({"method": variant, "lr": rate, "seed": seed}, {"final": 1.0})
    found = judge([tmp_path], Reading())
    cells = found.summary.cells.set_index("variant")
    assert cells["learning_rate"].to_dict() == BEST
    assert cells["validation_mean"].tolist() == pytest.approx([0.71875, 0.84375])
    assert set(found.summary.runs["best_step"]) == {2}


def test_an_event_file_that_was_cut_has_its_first_records(tmp_path: Path) -> None:
    writer_of = pytest.importorskip("tensorboardX").SummaryWriter
    for rate in RATES:
        with writer_of(str(tmp_path / f"lr={rate}")) as writer:
            for step in (1, 2, 3):
                writer.add_scalar("val/acc", rate + step, step)
    (path,) = (tmp_path / "lr=0.1").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    found = judge([tmp_path], Reading())
    assert found.summary.runs["best_step"].tolist() == [3, 3, 2]
    assert any(f"{path.name}: it ends within a record" in line for line in found.about_table)


def test_folders_of_lightning_s_logger(tmp_path: Path) -> None:
    loggers = pytest.importorskip("pytorch_lightning.loggers")
    for variant, rate, seed in RUNS:
        logger = loggers.CSVLogger(str(tmp_path), name="mine")
        logger.log_hyperparams({"method": variant, "lr": rate, "seed": seed, "net": {"width": 8}})
        for step in (1, 2, 3):
            logger.log_metrics({"train_loss_step": 1 / step, "lr-Adam": rate / step}, step=step)
            logger.log_metrics({"val_acc": accuracy(variant, rate, seed) - 0.125 * abs(step - 2)}, step=step)
        logger.save()
    assert_found(judge([tmp_path], Reading()), "12 metrics.csv", steps=True)


HYDRA = """
import json, hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="main", node={"optimizer": {"name": "a", "lr": 1e-3}, "seed": 0, "depth": 2})

@hydra.main(version_base="1.3", config_path=None, config_name="main")
def main(config):
    best = {"a": 1e-2, "b": 1e-1}[config.optimizer.name]
    value = 0.5 + 0.25 * (config.optimizer.lr == best) + 0.125 * (config.optimizer.name == "b") - 0.0625 * config.seed
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "result.json").write_text(json.dumps({"val_acc": value}))

main()
"""


def test_jobs_of_hydra(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    (tmp_path / "main.py").write_text(HYDRA)
    swept = ["optimizer.name=a,b", "optimizer.lr=1e-3,1e-2,1e-1", "seed=0,1"]
    command = [sys.executable, "main.py", "-m", *swept]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_found(judge([tmp_path / "multirun"], Reading(columns={"variant": "config.optimizer.name"})))
    assert_found(judge([tmp_path / "multirun"], Reading()), "12 result.json")


RAY = """
import sys, pandas, ray
from ray import tune
ray.init(address="local", num_cpus=2)
def train(config):
    best = {"a": 1e-2, "b": 1e-1}[config["method"]]
    for step in (1, 2, 3):
        value = 0.5 + 0.25 * (config["lr"] == best) + 0.125 * (config["method"] == "b") - 0.0625 * config["seed"]
        tune.report({"val_acc": value - 0.125 * abs(step - 2)})
grid = tune.grid_search
space = {"method": grid(["a", "b"]), "lr": grid([1e-3, 1e-2, 1e-1]), "seed": grid([0, 1])}
run_config = tune.RunConfig(storage_path=sys.argv[1], name="mine", verbose=0)
results = tune.Tuner(train, param_space=space, run_config=run_config).fit()
results.get_dataframe().to_csv("last.csv")
pandas.concat(
    result.metrics_dataframe.assign(**{f"config/{name}": value for name, value in result.config.items()})
    for result in results
).to_csv("steps.csv")
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_folders_and_tables_of_ray_tune(tmp_path: Path) -> None:
    run_script(RAY, str(tmp_path), folder=tmp_path)
    assert_found(judge([tmp_path / "mine"], Reading()), "12 result.json", steps=True)
    assert_found(judge([tmp_path / "steps.csv"], Reading()), steps=True)
    assert chosen(judge([tmp_path / "last.csv"], Reading())) == {"a": (1e-2, 0.59375), "b": (1e-1, 0.71875)}


def test_a_trial_of_ray_tune_that_failed(tmp_path: Path) -> None:
    """As Ray lays out its folders; see the test above for what it wrote itself."""
    for rate in RATES:
        trial = tmp_path / f"train_{rate}"
        trial.mkdir()
        (trial / "params.json").write_text(json.dumps({"lr": rate, "opt": {"momentum": 0.9}}))
        values = [math.nan] if rate == 1e-1 else [rate, 2 * rate]
        reports = [{"val_loss": v, "training_iteration": i, "config": {"lr": 5}} for i, v in enumerate(values, 1)]
        (trial / "result.json").write_text("".join(json.dumps(report) + "\n" for report in reports))
    (tmp_path / "train_0.001" / "error.txt").write_text("it broke")
    found = judge([tmp_path], Reading())
    assert found.summary.runs.sort_values("learning_rate")["status"].tolist() == ["failed", "complete", "diverged"]
    assert chosen(found) == {"all": (1e-2, 1e-2)}


def test_other_files_in_folders_of_wandb_are_no_runs(tmp_path: Path) -> None:
    wandb = tmp_path / "wandb"
    shutil.copytree(READINGS / "wandb", wandb)
    alone = judge([wandb], Reading())
    run = next(wandb.glob("*run-*"))
    for name, text in {"config.yaml": "lr: {value: 0.1}\n", "wandb-summary.json": '{"val/acc": 0.9}'}.items():
        (run / "files").mkdir(exist_ok=True)
        (run / "files" / name).write_text(text)
    (wandb / "debug.log").write_text("config: {'lr': 0.1, 'val_size': 7}\nval_acc: 0.9\n")
    assert judge([wandb], Reading()).summary.cells.equals(alone.summary.cells)


def test_a_damaged_file_is_named_and_left_out(tmp_path: Path) -> None:
    shutil.copytree(READINGS / "wandb", tmp_path, dirs_exist_ok=True)
    paths = sorted(tmp_path.rglob("*.wandb"))
    for path in paths[1:]:
        flip(path, 820)
    (found,) = read_sources([tmp_path])
    assert set(found.columns["run_id"]) == {paths[0].stem}
    left_out = paths[1].relative_to(tmp_path)
    assert f"NOT READ: {left_out} (the checksum of the record at byte 817 is wrong)" in found.remarks
    flip(paths[0], 820)
    with pytest.raises(UserError, match=f"{paths[0].name} is not read .the checksum of the record at byte"):
        read_sources([tmp_path])


def flip(path: Path, place: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bit
    path.write_bytes(content)


def written_events(folder: Path) -> Path:
    with pytest.importorskip("tensorboardX").SummaryWriter(str(folder)) as writer:
        for step in (1, 2, 3):
            writer.add_scalar("val/acc", step / 4, step)
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("kind", ["TensorBoard", "W&B"])
def test_a_flipped_byte_changes_no_value(tmp_path: Path, kind: str) -> None:
    """One bit of every byte is flipped, and the file is cut at every length."""
    path = written_events(tmp_path) if kind == "TensorBoard" else next((READINGS / "wandb").rglob("*.wandb"))
    content = path.read_bytes()
    whole = table_of_content(path, content, path.name)
    for place in range(len(content)):
        flipped = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        with suppress(UserError):
            table = table_of_content(path, flipped, path.name)
            assert table.columns == whole.columns or table.remarks, place
        with suppress(UserError):
            table = table_of_content(path, content[:place], path.name)
            assert {*table.columns.get("val/acc", ())} <= {*whole.columns["val/acc"]}
            assert table.columns != whole.columns


def test_a_row_that_was_cut_and_tables_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    head = "epoch,val_acc\n"
    for name, text in {"lr=0.1.csv": f"{head}1\n1,0.5\n", "lr=0.2.csv": head, "lr=0.3.csv": ""}.items():
        (tmp_path / name).write_text(text)
    (found,) = read_sources([tmp_path])
    assert found.reader == "1 *.csv, without 1 row cut before the whole one, lr=0.2.csv, lr=0.3.csv"


def test_a_failure_is_one_run_s_and_a_summary_beside_logs_is_named(tmp_path: Path) -> None:
    for home, rate in {"a": 0.1, "a/b": 0.2}.items():
        (tmp_path / "runs" / home).mkdir(parents=True)
        (tmp_path / "runs" / home / "config.yaml").write_text(f"lr: {rate}\n")
        (tmp_path / "runs" / home / "progress.csv").write_text("epoch,val_acc\n1,0.5\n")
    (tmp_path / "runs/a/error.txt").write_text("killed\n")
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "checkpoint-3")  # such a folder is a run's, unless it is named
    for found in read_sources([tmp_path / "runs"]) + read_sources([tmp_path / "checkpoint-3"]):
        states = dict(zip(found.columns["config.lr"], found.columns["state"], strict=True))
        assert states == {"0.1": "ERROR", "0.2": "TERMINATED"}
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "summary.json").write_text('{"val_loss": 9.0}')
    for seed in (0, 1):
        (tmp_path / "logs" / f"seed{seed}.log").write_text("step:1 val_loss:3.5\nstep:2 val_loss:3.25\n")
    (found,) = read_sources([tmp_path / "logs"])
    assert found.reader == "2 *.log, without summary.json"


def test_a_link_in_a_folder_is_not_followed_but_named(tmp_path: Path) -> None:
    """Links to a table, to the metrics of a run of MLflow, and to a folder of logs."""
    outside = tmp_path / "outside"
    (outside / "logs").mkdir(parents=True)
    for path in (outside / "a.csv", outside / "logs" / "b.csv", outside / "val_acc"):
        path.write_text("lr,val_acc\n0.1,0.875\n")
    (runs := tmp_path / "runs").mkdir()
    (runs / "own.csv").write_text("lr,val_acc\n0.2,0.5\n")
    (runs / "planted.csv").symlink_to(outside / "a.csv")
    (runs / "folder").symlink_to(outside / "logs")
    (found,) = read_sources([runs])
    assert found.columns["val_acc"] == ["0.5"]
    assert [line for line in found.remarks if "planted.csv" in line] == ["NOT READ: planted.csv (a link)"]
    (runs / "own.csv").unlink()
    with pytest.raises(UserError, match="planted.csv is not read .a link.: name files"):
        read_sources([runs])
    (store := tmp_path / "mlruns" / "0" / "run").mkdir(parents=True)
    (store / "meta.yaml").write_text("status: 3\n")
    (store / "params").mkdir()
    (store / "metrics").symlink_to(outside)
    (found,) = read_sources([tmp_path / "mlruns"])
    assert set(found.columns) == {"run_id", "status"}


@pytest.mark.parametrize("name", ["a\udcff.csv", "folder\udcff"])
def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir() if "." not in name else None
    path = folder / "t.csv" if "." not in name else folder
    path.write_text("variant,lr,seed,val_acc\n" + "".join(f"a,{rate},0,0.5\n" for rate in RATES))
    report = write_judged(judge([path], Reading()), tmp_path / "out")
    assert "udcff.csv:2" in (report.folder / "runs.csv").read_text() or "." not in name


def test_settings_in_yaml_of_any_name_and_tables_of_names_that_other_runs_lack(tmp_path: Path) -> None:
    for name, value in {"a": 0.5, "a_b": 0.75, "c": 0.25}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "stats.csv").write_text(f"epoch,val_acc\n1,{value}\n")
        (tmp_path / name / "other.csv").write_text("epoch,val_acc\n1,0\n") if name == "c" else None
    (found,) = read_sources([tmp_path])
    assert found.columns["run"] == ["a", "a_b", "c"]
    assert found.reader == "3 *.csv, without other.csv"
    (tmp_path / "c" / "other.csv").rename(tmp_path / "c" / "results.csv")
    (tmp_path / "c" / "opt.yaml").write_text("weights: n.pt\nfreeze: [0]\n")
    (found,) = read_sources([tmp_path])
    assert found.columns["config.weights"] == ["", "", "n.pt"]


ROWS = [
    {"method": variant, "lr": rate, "seed": seed, "val_acc": accuracy(variant, rate, seed)}
    for variant, rate, seed in RUNS
]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(map(json.dumps, ROWS)),
        json.dumps(ROWS),
        json.dumps([{"config": row, "summary": {"val_acc": row.pop("val_acc")}} for row in map(dict, ROWS)]),
        json.dumps({"columns": list(ROWS[0]), "data": [list(row.values()) for row in ROWS]}),
        json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}),
        json.dumps({name: {str(i): row[name] for i, row in enumerate(ROWS)} for name in ROWS[0]}),
    ],
    ids=["lines", "rows", "nested", "W&B's table", "columns", "columns of pandas"],
)
def test_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.json").write_text(text)
    assert_found(judge([tmp_path / "runs.json"], Reading()), "JSON")


GRIDS = {"a": {"0.1": 0.5, "0.01": 0.75}, "b": {"1.0": 0.25, "0.1": 0.875}}
CURVES = [{"opt": name, "lr": rate, "evals": [{"step": 1, "val_acc": 0.1}, {"step": 2, "val_acc": value}]}
          for name, grid in GRIDS.items() for rate, value in grid.items()]  # fmt: skip


@pytest.mark.parametrize("content", [GRIDS, {"runs": CURVES}], ids=["grids", "runs"])
def test_json_of_variants_with_grids_of_their_own(tmp_path: Path, content: object) -> None:
    (tmp_path / "runs.json").write_text(json.dumps(content))
    found = chosen(judge([tmp_path / "runs.json"], Reading(higher_is_better=True)))
    assert found == {"a": (0.01, 0.75), "b": (0.1, 0.875)}


def test_ends_of_lines_in_texts_of_json_end_no_line(tmp_path: Path) -> None:
    lines = [json.dumps(row | {"note": "a\u2028b\x85c"}, ensure_ascii=False) for row in ROWS]
    (tmp_path / "runs.jsonl").write_text("\r\n".join(lines), newline="")
    assert_found(judge([tmp_path / "runs.jsonl"], Reading()), "JSON lines")


def test_files_by_a_pattern(tmp_path: Path) -> None:
    for variant in "ab":
        rows = [f"{rate},{seed},{accuracy(variant, rate, seed)}" for name, rate, seed in RUNS if name == variant]
        (tmp_path / f"{variant}.csv").write_text("\n".join(["lr,seed,val_acc", *rows, ""]))
    assert judge([str(tmp_path / "*.csv")], Reading()).summary.cells["task"].tolist() == ["a", "b"]
    (tmp_path / "runs").mkdir()
    for variant, rate, seed in RUNS:  # one run a file, with its settings in the name alone
        steps = [f"{step},{accuracy(variant, rate, seed) - 0.125 * abs(step - 2)}" for step in (1, 2, 3)]
        (tmp_path / "runs" / f"{variant}-lr{rate}-s{seed}.csv").write_text("\n".join(["step,val_acc", *steps, ""]))
    assert_found(judge([str(tmp_path / "runs" / "*.csv")], Reading()), "12 files with one learning rate", steps=True)
    with pytest.raises(UserError, match="no file fits .*.tsv: name a table"):
        judge([str(tmp_path / "*.tsv")], Reading())


DEEP = "[" * 100_000
METRICS = {"metrics.csv": "step,val_acc\n1,0.5\n"}
DAMAGED: dict[str, tuple[str, dict[str, str], str]] = {
    "a line": ("runs.json", {"runs.json": f'{{"lr": 0.1}}\n{DEEP}'}, "runs.json:2: no JSON"),
    "a line that is cut": ("r.jsonl", {"r.jsonl": '{"lr": 0.1, "val_acc": 0.5}\n{"lr": 0.2, "v'}, "r.jsonl:2: no JSON"),
    "the first line": ("runs.json", {"runs.json": DEEP}, "runs.json cannot be read .maximum recursion"),
    "no rows": (
        "r.json",
        {"r.json": '{"columns": ["lr"], "data": [1]}'},
        "no column of learning rates in columns, data",
    ),
    "a date": (".", METRICS | {"hparams.yaml": "day: 2001-13-45"}, "hparams.yaml cannot be read"),
    "deep settings": (".", METRICS | {"hparams.yaml": "x: " + "[" * 1000}, "hparams.yaml cannot be read"),
    "settings that are cut": (".", METRICS | {"hparams.yaml": "x: ["}, "hparams.yaml cannot be read"),
    "a deep trial": (".", {"params.json": "{}", "result.json": f'{{"a": {DEEP}'}, "result.json cannot be read"),
    "no database": ("broken.db", {"broken.db": "SQLite format 3\0" + "\1" * 200}, "broken.db cannot be read"),
    "a summary of W&B": (".", {"wandb-summary.json": "[1]"}, "no column of learning rates"),
    "LaTeX": ("t.tex", {"t.tex": "\\begin{table}\n1 & 2"}, "t.tex is HTML or LaTeX"),
    "no folder of a tool": (".", {"notes.txt": "mine"}, "none of Ray Tune, Hydra"),
}


def test_a_setting_that_is_an_empty_mapping_is_none(tmp_path: Path) -> None:
    for rate in (0.1, 0.01):
        folder = tmp_path / str(rate)
        folder.mkdir()
        (folder / "hparams.yaml").write_text(f"lr: {rate}\nscheduler: {{}}\n")
        (folder / "metrics.csv").write_text("step,val_acc\n1,0.5\n2,0.75\n")
    assert sorted(judge([tmp_path], Reading()).wanted["learning_rate"]) == [0.01, 0.1]


@pytest.mark.parametrize(("source", "files", "message"), DAMAGED.values(), ids=DAMAGED)
def test_what_cannot_be_read_is_named(tmp_path: Path, source: str, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        judge([tmp_path / source], Reading())


def test_damaged_hyperparameters_of_tensorboard_are_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

    event = Event()
    value = event.summary.value.add(tag="_hparams_/session_start_info")
    value.metadata.plugin_data.plugin_name, value.metadata.plugin_data.content = "hparams", b"\xff\xff"
    content = event.SerializeToString()
    RecordWriter(str(tmp_path / "events.out.tfevents.1")).write(content)
    with pytest.raises(UserError, match="events.out.tfevents.1 is not read"):
        judge([tmp_path], Reading())


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("adam-lr0.1-s1", {"lr": "0.1", "seed": "1", "variant": "adam"}),
        ("vit-s16-lr0.1", {"lr": "0.1", "variant": "vit s16"}),  # ViT-S/16
        ("Mixer_S32_lr0.1_s2", {"lr": "0.1", "seed": "2", "variant": "Mixer S32"}),
    ],
)
def test_settings_in_a_name(name: str, found: dict[str, str]) -> None:
    assert labels_of(name) == found
