"""The MCP server, driven over stdio by the SDK's client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from lr_sweep.sweep.cli.parser import main
from lr_sweep.tests.support.tiny_study import environment

EARLIER = Path(__file__).parents[2] / "earlier_record" / "results"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("gate", {"baseline": "base.csv", "candidate": "better.csv"}),
    ("gate", {"baseline": "base.csv", "candidate": "few.csv", "min_gain": 1.5}),
    ("judge", {"tables": ["sweep.csv"], "columns": {"learning_rate": "eta"}, "out": "report"}),
    ("plan", {"studies": ["quickstart"]}),
    ("status", {"studies": ["tiny"], "results": str(EARLIER)}),
]
MAX_SEEDS = {"baseline": "base.csv", "candidate": "few.csv", "max_seeds": 1}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("gate", {"baseline": "base.csv", "candidate": "none.csv"}, "no file none.csv: name a CSV or Parquet file"),
    ("gate", {"baseline": "base.csv"}, "wrong arguments: candidate: field required"),
    ("gate", MAX_SEEDS, "--max-seeds: got '1', want a whole"),
    ("judge", {"tables": ["--out=x", "-"]}, "no file --out=x: name a CSV or Parquet file"),
    ("judge", {"tables": ["sweep.csv"]}, "sweep.csv: no column of learning rates in eta, seed, val_acc"),
    ("plan", {"studies": ["nothing"]}, "nothing"),
    ("status", {"studies": ["tiny"]}, "no results directory at"),
    ("train", {}, "unknown tool 'train'"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name, value in (("base", 0.5), ("better", 0.6), ("few", 0.6)):
        rows = [f"{seed},{value + seed / 100}" for seed in range(2 if name == "few" else 5)]
        (folder / f"{name}.csv").write_text("seed,val_acc\n" + "\n".join(rows) + "\n")
    rows = [f"{lr},{seed},{0.9 - lr + seed / 100}" for lr in (0.1, 0.2, 0.3) for seed in range(2)]
    (folder / "sweep.csv").write_text("eta,seed,val_acc\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path) -> tuple[set[str], list[Any]]:
    """The tools of a server that is started in the folder, and its answers to all calls, first the right ones."""
    words = ["-m", "lr_sweep.sweep", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=folder, env=environment())

    async def talk() -> tuple[set[str], list[Any]]:
        async with Client(server) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            calls = [*CALLS, *((name, arguments) for name, arguments, _ in WRONG)]
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(talk)


def text_of(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def test_a_client_judges_gates_and_plans(folder: Path, answers: tuple[set[str], list[Any]]) -> None:
    tools, found = answers
    accepted, more, judged, planned, state = right = found[: len(CALLS)]
    assert tools == {"judge", "gate", "plan", "status"}
    assert accepted.structured_content["decision"] == "accept"
    assert "it gains 10.0 points in validation accuracy" in accepted.structured_content["text"]
    assert more.structured_content["decision"] == "run more seeds"
    assert more.structured_content["text"].startswith("run seed 5 of the baseline and seeds 2 to 5 of the")
    assert "learning rate = eta" in text_of(judged)
    assert (folder / "report" / "index.html").is_file()
    assert "60 runs" in text_of(planned)
    assert "no sweep is running" in text_of(state)
    assert not any(each.is_error for each in right)


def test_errors_are_sentences(answers: tuple[set[str], list[Any]]) -> None:
    for (name, _, message), result in zip(WRONG, answers[1][len(CALLS) :], strict=True):
        assert result.is_error, name
        assert message in text_of(result)
        assert not any(word in text_of(result) for word in ("Traceback", "Error executing", "pydantic"))


def test_without_the_package_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mcp", "mcp.server"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "lr_sweep.sweep.cli.mcp_server", raising=False)
    assert main(["mcp"]) == 2
    assert capsys.readouterr().err.startswith("error: the package mcp is not installed: `pip install 'lr-sweep[mcp]'`")
