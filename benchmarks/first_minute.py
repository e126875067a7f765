"""What a first-time user waits for: `lr-sweep run quickstart` into an empty folder, and commands that answer at once.

Of the sweep, also where the time goes: its stages, and the CPU seconds of the program, of trials and of Ray in each.
Start it on an idle machine: `python -m benchmarks.first_minute --rounds 5`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from lr_sweep.analysis.record.read import read_runs
from lr_sweep.benchmarks.shared import machine, options, spread

PROGRAM = (sys.executable, "-m", "lr_sweep.sweep")
TABLE = "Test accuracy by learning rate"
COMMANDS = (("plan", "quickstart"), ("ls",), ("judge", "--help"))
LOOK_EVERY_S = 0.1
STAGES = {
    "imports": "the program's imports, the study, the data, the weights",
    "ray": "Ray and the trials' processes start, and import",
    "first": "trials train, to the first ended run",
    "last": "and to the last one",
    "table": "Ray ends; the report",
    "prompt": "the end",
}
"""Each ends with what it is named after, as seconds of the sweep."""
KINDS = ("program", "trials", "Ray")
RAY_S_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


class Sample(NamedTuple):
    """The CPU seconds of a kind of process so far, `at` some seconds after the sweep began."""

    at: float
    kind: str
    cpu_s: float


def kind_of(name: str, *, is_first: bool) -> str:
    """Return the kind of process, by the names that Ray (2.60) gives its own."""
    is_worker = name.startswith("ray::") and not name.startswith(RAY_S_AGENTS)
    return "program" if is_first else "trials" if is_worker else "Ray"


def stage_costs(
    ends: Mapping[str, float], samples: Iterable[Sample]
) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of each kind of process in each stage; `ends`: of the stages, in order."""
    series: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        series[sample.kind].append(sample)
    begins = dict(zip(ends, [0.0, *ends.values()], strict=False))
    return {
        stage: {
            kind: _so_far(series[kind], end) - _so_far(series[kind], begins[stage])
            for kind in KINDS
        }
        for stage, end in ends.items()
    }


def _so_far(samples: Iterable[Sample], at: float) -> float:
    return max((sample.cpu_s for sample in samples if sample.at <= at), default=0.0)


def watch(process: psutil.Process, began: float, ended: Event) -> Iterator[Sample]:
    """Look at a process and those that it started until it has ended; those that end keep what they had taken."""
    taken: dict[tuple[int, float], tuple[str, float]] = {}
    while not ended.wait(LOOK_EVERY_S):
        try:
            for each in [process, *process.children(recursive=True)]:
                times, key = each.cpu_times(), (each.pid, each.create_time())
                name = kind_of(each.name(), is_first=each == process)
                taken[key] = (name, times.user + times.system)
        except psutil.Error:
            continue  # one has ended since
        for kind in KINDS:
            yield Sample(
                time.time() - began,
                kind,
                sum(cpu_s for name, cpu_s in taken.values() if name == kind),
            )


def first_minute(folder: Path) -> tuple[dict[str, float], list[Sample]]:
    """Run the quickstart into a folder; return when each stage ended, and what was seen meanwhile."""
    began, table_at, samples, ended = time.time(), 0.0, list[Sample](), Event()
    command = [*PROGRAM, "run", "quickstart", "--results", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watching = watch(psutil.Process(process.pid), began, ended)
        looking = Thread(target=lambda: samples.extend(watching))
        looking.start()
        assert process.stdout is not None
        imports_at, output = 0.0, ""
        for line in process.stdout:
            output += line
            imports_at = time.time() - began if line.startswith("training ") else imports_at
            table_at = table_at or (time.time() - began if line.startswith(TABLE) else 0.0)
    prompt_at = time.time() - began
    ended.set()
    looking.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{output[-3000:]}")
    runs = read_runs(folder)
    started, finished = (
        runs[name].map(lambda moment: moment.timestamp()) - began
        for name in ("started_at", "finished_at")
    )
    ends = [imports_at, started.min(), finished.min(), finished.max(), table_at, prompt_at]
    return dict(zip(STAGES, map(float, ends), strict=True)), samples


def command_s(command: tuple[str, ...], folder: Path) -> float:
    """Run a command in a folder; return its seconds."""
    began = time.monotonic()
    subprocess.run([*PROGRAM, *command], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    chosen = options(__doc__, arguments, rounds=5)
    print(machine())
    ends, costs, commands = [], [], defaultdict(list)
    for number in range(1, chosen.rounds + 1):
        with tempfile.TemporaryDirectory() as temporary:
            found, samples = first_minute(Path(temporary) / "results")
            ends.append(found)
            costs.append(stage_costs(found, samples))
            for command in COMMANDS:
                commands[" ".join(command)].append(command_s(command, Path(temporary)))
        print(
            f"round {number}: {', '.join(f'{stage} {at:.1f}' for stage, at in found.items())}",
            flush=True,
        )
    print(
        "\nMedians: seconds since the start; CPU seconds since the line before, of",
        ", ".join(KINDS),
    )
    for stage, text in STAGES.items():
        taken = "  ".join(
            f"{statistics.median(cost[stage][kind] for cost in costs):5.1f}" for kind in KINDS
        )
        print(f"{stage:8}{spread([found[stage] for found in ends], 1):24}{taken}  {text}")
    for name, times_s in commands.items():
        print(f"{name:16}{spread(times_s)}")


if __name__ == "__main__":
    main()
