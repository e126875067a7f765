"""The program as an MCP server over stdio: agents judge tables, gate changes, and look at studies.

Each call is a command in a process of its own, as a user would start it: a crash, a lost library or too little memory
ends the call, and the server answers.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal, TypedDict

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, ValidationError

from lr_sweep.common.errors import unknown

MOST_TEXT = 50_000
"""Characters of an answer; a report's page has the rest."""
DONE, REFUSED = (0,), 2
DECISIONS = {0: "accept", 1: "reject", 3: "run more seeds"}
"""By the exit code of `judge --gate`."""
INSTRUCTIONS = (
    "Compare training runs with intervals and checks. Before you keep a change of a model or its training, call `gate` "
    "with the runs of the baseline and of the change, and do what it says: a difference of a few seeds is often noise."
)

Tables = Annotated[
    list[str],
    Field(
        description="CSV, Parquet, JSON; a folder of Ray Tune, Hydra, Lightning, TensorBoard; a database of Optuna, "
        "MLflow"
    ),
]
Columns = Annotated[
    dict[str, str] | None,
    Field(
        description="Column by its meaning where it is not guessed: task, model, variant, learning_rate, seed, step, "
        "validation, test, nuisance (tuned as the rate is), ignored, ...; A+B for several"
    ),
]
Metric = Annotated[str | None, Field(description="Name of the metric; else that of the validation column")]
Higher = Annotated[bool | None, Field(description="Whether more is better; else by the metric's name")]
OnTest = Annotated[bool, Field(description="Choose on test data, in a table without validation data")]
Studies = Annotated[list[str], Field(description="Names of studies, or paths of their YAML files")]
Results = Annotated[str, Field(description="Results directory")]
Run = Annotated[str, Field(description="Table of runs, or TABLE#VARIANT")]


class Gate(TypedDict):
    """What the gate says."""

    decision: Literal["accept", "reject", "run more seeds"]
    text: str


class Server(MCPServer[Any]):
    """A server whose errors are sentences, without a library's words around them."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool; raises ToolError with what the client can put right."""
        tools = [tool.name for tool in await self.list_tools()]
        if name not in tools:
            raise ToolError(unknown("tool", name, tools))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_wrong_arguments(error.__cause__)) from error
            raise ToolError(str(error).removeprefix(f"Error executing tool {name}: ")) from error


server = Server("lr-sweep", instructions=INSTRUCTIONS, log_level="ERROR")


@server.tool(structured_output=False)
async def judge(
    tables: Tables,
    columns: Columns = None,
    metric: Metric = None,
    higher_is_better: Higher = None,
    select_on_test: OnTest = False,
    out: Annotated[str | None, Field(description="Folder of the report; else judged/TABLE")] = None,
) -> str:
    """Say which way of training is best once each has its own learning rate, and how sure that is; write a report."""
    options = [f"--out={out}"] if out is not None else []
    text, _ = await _run("judge", *_reading(columns, metric, higher_is_better, select_on_test), *options, "--", *tables)
    return text


@server.tool()
async def gate(
    baseline: Run,
    candidate: Run,
    min_gain: Annotated[float, Field(description="What to gain more than, in points or the metric's unit")] = 0.0,
    max_seeds: Annotated[int, Field(description="Fresh seeds of each, at most; keep it from call to call")] = 20,
    columns: Columns = None,
    metric: Metric = None,
    higher_is_better: Higher = None,
    select_on_test: OnTest = False,
) -> Gate:
    """Accept a change, reject it, or say which seeds to run next; seeds that chose a learning rate do not count."""
    options = [f"--min-gain={min_gain}", f"--max-seeds={max_seeds}", "--gate"]
    options += _reading(columns, metric, higher_is_better, select_on_test)
    text, code = await _run("judge", *options, "--", baseline, candidate, codes=tuple(DECISIONS))
    return Gate(decision=DECISIONS[code], text=text)  # type: ignore[typeddict-item]


@server.tool(structured_output=False)
async def plan(studies: Studies, results: Results = "results") -> str:
    """Say what a study would train, and what it needs and costs; nothing is trained."""
    return (await _run("plan", f"--results={results}", "--", *studies))[0]


@server.tool(structured_output=False)
async def status(studies: Studies, results: Results = "results") -> str:
    """Say how far a study is."""
    return (await _run("status", f"--results={results}", "--", *studies))[0]


def _reading(
    columns: dict[str, str] | None, metric: str | None, higher_is_better: bool | None, select_on_test: bool
) -> list[str]:
    """Write how a table is to be read as options."""
    words = [f"--columns={role}={name}" for role, name in (columns or {}).items()]
    words += [f"--metric={metric}"] if metric is not None else []
    words += {True: ["--higher-is-better"], False: ["--lower-is-better"], None: []}[higher_is_better]
    return [*words, *["--select-on-test"] * select_on_test]


async def _run(*words: str, codes: tuple[int, ...] = DONE) -> tuple[str, int]:
    """Run a command; returns what it prints and its exit code, raises ToolError with its message for another code."""
    if any("\0" in word for word in words):
        raise ToolError("got a character that no name has (NUL): leave it out")
    command = [sys.executable, "-m", "lr_sweep.sweep", *words]
    done = await anyio.run_process(command, check=False, stdin=subprocess.DEVNULL)
    text, errors = (each.decode(errors="replace").strip() for each in (done.stdout, done.stderr))
    if done.returncode == REFUSED:
        raise ToolError(errors.removeprefix("error: "))
    if done.returncode not in codes or not text:
        raise ToolError(f"`{words[0]}` ended with code {done.returncode}: {(errors or text).splitlines()[-1:]}")
    return text[:MOST_TEXT], done.returncode


def _wrong_arguments(error: ValidationError) -> str:
    wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}" for each in error.errors()]
    return f"wrong arguments: {'; '.join(wrong)}"
