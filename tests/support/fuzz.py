"""Random tables with random faults, by the number of a case; and the limits of a case."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product

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


def table(case: int) -> tuple[bytes, Reading]:
    """Make a table, well formed or not, and how to read it."""
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
