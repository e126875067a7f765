"""Whatever a user writes, in a study or on the command line, ends in a message and an exit code, not in a traceback."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lr_sweep.tests.support.fuzz import limited
from lr_sweep.tests.support.own_study import write_function
from lr_sweep.tests.support.records import four_runs, run_id_of
from lr_sweep.tests.support.servers.live_page import live_page
from lr_sweep.tests.support.study_example import STUDY
from lr_sweep.tests.support.tiny_study import environment, said, write_study

PATHS = [
    *("~nouser", "~nouser/x.yaml", "x" * 300, "x" * 300 + ".yaml", "a/" * 3000, "/proc/x", "/proc/1/root/x"),
    *("/dev/zero", "/dev/null/x.yaml", "/dev/null", "", ".", "..", "/", "~", "file", "file/x", "folder"),
    *("folder.yaml", "zeros", "loop", "loop/x.yaml", "record", "tiny.yaml", "garbage.yaml", "-", "é", "a b"),
    *("$HOME", "%s", "{}", "*", "\n", "s3://", "s3:///x", "s3://a@b/c", "ftp://x", "file://", "file://host/x"),
    *("file:x", "://", "[", "x.yaml\n"),
]
NUMBERS = ["0", "1", "-1", "9" * 5000, "99999", "65536", "1e3", "nan", "inf", "1e400", "١", "²", "", " 1"]
ADDRESSES = [
    *("http://127.0.0.1:1", "http://127.0.0.1:99999", "http://[", "http://[::1", "127.0.0.1:1", "auto", "ray://x", ":"),
    *("http://", "http://" + "x" * 300, "http://a..b", "127.0.0.1:" + "9" * 30, "x" * 300 + ":1", "..:1", ""),
]
HERE = "127.0.0.1:1"
"""An address without a cluster."""
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
PATH = st.sampled_from(PATHS) | ANY_TEXT.filter(lambda text: "://" not in text and not text.startswith("/"))
NUMBER = st.sampled_from(NUMBERS) | ANY_TEXT
ADDRESS = st.sampled_from(ADDRESSES)
STUDY_NAME = st.sampled_from(("quickstart", "tiny.yaml", "tiny", "example", "nowhere", "")) | PATH
AXIS = st.sampled_from(("variant", "learning_rate", "seed", "validation", "lr", "", "x")) | ANY_TEXT
ONLY = st.lists(st.tuples(AXIS, st.sampled_from(("=", "", ",", "==")), NUMBER | PATH).map("".join)).map(",".join)
COMMANDS: Sequence[Sequence[str | st.SearchStrategy[str]]] = (
    ("plan", STUDY_NAME, "--results", PATH, "--data-dir", PATH),
    ("plan", "tiny.yaml", "--cpus", NUMBER, "--gpus", NUMBER),
    ("plan", "tiny.yaml", "--gpus-per-trial", NUMBER),
    ("run", STUDY_NAME, "--results", PATH, "--address", HERE),
    ("run", "tiny.yaml", "--cpus", NUMBER, "--address", HERE),
    ("run", "tiny.yaml", "--checkpoint-every-s", NUMBER, "--address", ADDRESS.filter(lambda text: text != "auto")),
    ("submit", STUDY_NAME, "--results", PATH, "--data-dir", PATH, "--address", ADDRESS),
    ("cluster", "jobs", "--address", ADDRESS),
    ("cluster", st.sampled_from(("logs", "stop")), STUDY_NAME, "--address", ADDRESS),
    ("status", STUDY_NAME, "--results", PATH),
    ("plan", "tiny.yaml", "--only", ONLY),
    ("run", "tiny.yaml", "--only", ONLY, "--retry-failed", "--restart-inexact", "--address", HERE),
    ("report", STUDY_NAME, "--results", PATH),
    ("judge", PATH, "--columns", ONLY, "--where", ANY_TEXT, "--out", "file"),
    ("show", PATH | NUMBER, "--log", "--results", PATH),
    ("gc", "--only", st.sampled_from(("leftovers", "checkpoints", "unwanted", "x")), "--results", PATH),
    ("cluster", "check", PATH),
    ("export", PATH, STUDY_NAME, "--results", PATH),
    (ANY_TEXT, ANY_TEXT, ANY_TEXT),
    ("data", "--pretrain", STUDY_NAME.filter(lambda name: name != "quickstart"), "--results", PATH),
    ("ls", STUDY_NAME, "--results", PATH),
    ("show", PATH | NUMBER, "--results", PATH),
    ("verify", "--results", PATH),
    ("gc", "--yes", "--results", PATH),
    ("export", "--mlflow", STUDY_NAME, "--results", PATH),
    ("data", PATH, "--data-dir", PATH),
    ("ui", "--results", PATH.filter(lambda path: path != "record"), "--host", ADDRESS, "--port", NUMBER),
    ("ui", PATH, "--port", NUMBER),
)
LINES = st.sampled_from(COMMANDS).flatmap(
    lambda words: st.tuples(*(st.just(word) if isinstance(word, str) else word for word in words))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A current directory with something of every kind in it."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_study(folder)
    four_runs(folder / "sound")
    shutil.copytree(folder / "sound", folder / "record")
    (folder / "file").write_text("x")
    (folder / "zeros").write_bytes(b"\0" * 1000)
    (folder / "garbage.yaml").write_bytes(random.Random(0).randbytes(1000))
    (folder / "folder").mkdir()
    (folder / "folder.yaml").mkdir()
    (folder / "loop").symlink_to("loop")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.delenv("SWEEP_DATA_DIR", raising=False)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield folder


EXAMPLES = pytest.mark.parametrize("examples", [30, pytest.param(500, marks=pytest.mark.slow)])
"""Of each property, in `make test` and in the slow tests."""


def profile(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@EXAMPLES
def test_command_lines_end_in_messages(folder: Path, examples: int) -> None:
    @given(line=LINES)
    @profile(examples)
    def ends_in_a_message(line: tuple[str, ...]) -> None:
        with limited(line):
            said(*line)

    ends_in_a_message()


ODD = [
    *("1e999", "9" * 400, "0x" + "f" * 5000, "!!bool x", "!!int x", "!!set x", "..", "{hub: ..}", "/dev/zero", "-1"),
    *("2001-99-99", ".nan", "-.inf", "true", '"\\0"', '"\\ud800"', f"'{'x' * 300}'", "[a]", "{? [a] : b}", "<<"),
    *("[1, 1.0]", "[" * 400 + "]" * 400, "20000000000000000000", "!!binary x", "!!python/object:os x", "&a [*a]"),
    *("|\n  x", "~"),
]
SCALARS = st.sampled_from(ODD) | ANY_TEXT
WORDS = [word for word in dict.fromkeys(STUDY.replace(":", " ").replace(",", " ").split()) if word.isalnum()]
STUDIES = st.lists(st.tuples(st.sampled_from(WORDS), SCALARS), min_size=1, max_size=3)


@EXAMPLES
def test_studies_end_in_messages(folder: Path, examples: int) -> None:
    @given(changes=STUDIES)
    @profile(examples)
    def ends_in_a_message(changes: list[tuple[str, str]]) -> None:
        text = STUDY
        for word, scalar in changes:
            text = text.replace(word, scalar, 1)
        (folder / "example.yaml").write_text(text, encoding="utf-8")
        said("plan", "example.yaml", "--results", "none")

    ends_in_a_message()


RUN = run_id_of(0)
PARTS = ("format.json", "runs", "curves", "studies", "studies/first", "studies/first/study.json", "checkpoints", "logs")
PARTS += ("studies/first/wanted.parquet", "studies/first/progress.json", "writer.lock")
PARTS += ("writer.json", "mlflow.db", "pretrained", "pretrained/gpt2-2x16-000000000000", "tune")
PARTS += (f"runs/{RUN}.parquet", f"curves/{RUN}.parquet", f"checkpoints/{RUN}")
PLANNED = ("format.json", "runs", f"runs/{RUN}.parquet", f"checkpoints/{RUN}")
"""Parts of a record that `plan` of another study reads."""
CONTENTS = {"brackets": b"[" * 50_000, "mapping": b"{}", "folder": None}


def is_quick(part: str, kind: str) -> bool:
    """Whether it is of `make test`, too: JSON in each way, other files as folders, folders as files."""
    is_file = "." in part.rpartition("/")[2]
    return part.endswith(".json") or kind == ("folder" if is_file else "brackets")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        pytest.param(*case, marks=[] if is_quick(*case) else pytest.mark.slow)
        for case in itertools.product(PARTS, CONTENTS)
    ],
)
def test_a_folder_where_a_file_should_be_and_the_other_way_round(folder: Path, part: str, kind: str) -> None:
    shutil.rmtree(folder / "odd", ignore_errors=True)
    shutil.copytree(folder / "sound", folder / "odd")
    path, content = folder / "odd" / part, CONTENTS[kind]
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    commands = [("status", "first"), ("ls",), ("show", RUN), ("verify",), ("gc",), ("export", "out.csv")]
    commands += [("plan", "tiny.yaml")] if part in PLANNED else []  # it takes as long as the others together
    (folder / "out.csv").unlink(missing_ok=True)
    for command in commands:
        said(*command, "--results", "odd")


OTHERS = ("lr_sweep", "mlflow", "numpy", "pandas", "pyarrow", "ray", "sitecustomize", "torch", "usercustomize", "yaml")
BODY = "for _ in session.steps():\n    if session.due:\n        session.report(validation=0.5, test=0.5)"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules that write down that they are imported, and fail."""
    (folder := tmp_path / "hostile").mkdir()
    code = f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__ + '\\n')\nraise ImportError(__name__)\n"
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (folder / f"{name}.py").write_text(code)
    return folder


@pytest.mark.slow
@pytest.mark.cluster
def test_files_of_the_current_folder_are_not_run(hostile: Path, tmp_path: Path) -> None:
    program, results = Path(sys.executable).with_name("lr-sweep"), tmp_path / "results"

    def says(*words: str | Path) -> str:
        done = subprocess.run(
            [program, *words], cwd=hostile, env=environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    study, mine = write_study(tmp_path, rates=[1e-3], variants=["unfrozen-random"]), write_function(tmp_path, BODY)
    there = ("--results", results)
    for command in ("plan", "run"):
        for each in (study, mine):
            says(command, each, *there)
    run_id = says("ls", *there).split("\n")[-2].split()[0]
    for words in (["status", "tiny"], ["report", "tiny"], ["show", run_id], ["verify", mine], ["export", "--mlflow"]):
        says(*words, *there)
    says("judge", results / "studies" / "tiny" / "report" / "runs.csv", "--out", tmp_path / "judged")
    with live_page(results, [program], hostile) as ui:
        ui.mlflow()  # its pages are served
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
