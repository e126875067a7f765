"""Whatever is in a baseline, a log of candidates or a table, the gate ends in a message and an exit code."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.fuzz import limited

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63,
        10**400,
        -(10**400),
        0.5,
        1e308,
        -1e308,
        1e-320,
        math.nan,
        math.inf,
        -math.inf,
    ),
    *("", "x", "accuracy", "nan", "\0", "é\ud800", "x" * 5000, [], [1], [0.5, 0.5], ["x"], [[]], [None], [math.nan]),
    *([1e308, -1e308], list(range(50)), {}, {"x": 1}, {"name": 1}, {"": {}}),
)
"""Values of each type, and of each size."""
TEXTS = (
    "",
    "{}",
    "[]",
    "null",
    "1",
    '"x"',
    "{" * 5000,
    "[" * 100_000,
    "\0",
    "nan\n",
    "{}\n{}\n",
    "\ud800",
    "a,b\n1,2\n",
)
TABLES = {
    "csv": "seed,val_acc\n" + "".join(f"{seed},{0.5 + seed % 7 / 100}\n" for seed in range(24)),
    "json": json.dumps([{"seed": seed, "val_acc": 0.5 + seed % 5 / 100} for seed in range(12)]),
    "yaml": "".join(f"- {{seed: {seed}, val_acc: {0.5 + seed % 3 / 100}}}\n" for seed in range(12)),
    "log": "seed: 1\n" + "".join(f"step:{step} val_acc:0.{step}\n" for step in range(1, 9)),
}
OPTIONS = ((), ("--drift",), ("--accept",), ("--guard", "val_acc"), ("--guard", "x<=0x"), ("--min-gain", "1e308"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline and a log of candidates, as the gate writes them."""
    folder = tmp_path_factory.mktemp("stored")
    for kind, text in TABLES.items():
        (folder / f"t.{kind}").write_text(text)
    assert main(["gate", f"{folder}/b.json", f"{folder}/t.csv", "--accept", "--guard", "val_acc"]) == 0
    assert main(["gate", f"{folder}/b.json", f"{folder}/t.json", "--stream", f"{folder}/s.jsonl"]) in (1, 3)
    return folder


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container below a value, with each of its keys."""
    keys = content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from places(content[key])


def changed(content: Any, chance: random.Random) -> str:
    """Return JSON with one value replaced, or left out."""
    content = json.loads(json.dumps(content))
    for _ in range(chance.choice((1, 1, 2))):
        container, key = chance.choice(list(places(content)) or [({}, "")])
        if chance.random() < 0.2 and container:
            del container[key]
        else:
            container[key] = deepcopy(chance.choice(VALUES))  # a later change may go into it
    return json.dumps(content)


def damaged(text: str, chance: random.Random) -> bytes:
    """Return a text with one field replaced, or bytes of it changed, or another text."""
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(TEXTS).encode(errors="surrogatepass")
    content = bytearray(text.encode())
    if kind < 0.3:
        place = chance.randrange(len(content))
        content[place : place + chance.choice((1, 1, 30, len(content)))] = chance.randbytes(chance.choice((0, 1, 3)))
        return bytes(content)
    fields = text.replace("\n", ",\n").split(",")
    fields[chance.randrange(len(fields))] = str(chance.choice(VALUES))
    return ",".join(fields).replace(",\n", "\n").encode(errors="surrogatepass")


def put(path: Path, content: bytes | None) -> Path:
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("cases", [range(12), pytest.param(range(12, 1012), marks=pytest.mark.slow)], ids=len)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_files_of_the_gate_end_in_messages(
    stored: Path, tmp_path: Path, cases: range, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, log = json.loads((stored / "b.json").read_text()), json.loads((stored / "s.jsonl").read_text())
    for case in cases:
        chance = random.Random(case)
        (folder := tmp_path / str(case)).mkdir()
        kind, which = chance.choice(list(TABLES)), chance.choice(("baseline", "stream", "table"))
        old, turn, text = json.dumps(baseline), json.dumps(log), TABLES[kind].encode()
        if which == "baseline":
            old = changed(baseline, chance) if chance.random() < 0.8 else chance.choice(TEXTS)
        elif which == "stream":
            turn = changed(log, chance) if chance.random() < 0.8 else chance.choice(TEXTS)
        else:
            text = damaged(TABLES[kind], chance)
        contents = {"b.json": old.encode(errors="surrogatepass"), "s.jsonl": turn.encode(errors="surrogatepass")}
        paths = {name: put(folder / name, content) for name, content in (contents | {f"t.{kind}": text}).items()}
        words = ["gate", str(paths["b.json"]), str(paths[f"t.{kind}"]), "--stream", str(paths["s.jsonl"])]
        words += chance.choice(OPTIONS) + chance.choice(((), ("--json",)))
        with limited(case):
            code = main(words)
        said = capsys.readouterr()
        is_listed = "--json" in words and '"doubts"' in said.out
        assert (code == 2) == (is_listed or said.err.startswith("error: ")), (case, words, said)
        assert code in (0, 1, 2, 3), case
        if "--json" in words and code != 2 and not {"--accept", "--drift"} & {*words}:
            assert json.loads(said.out)["format"] == 1
