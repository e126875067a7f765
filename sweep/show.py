"""`show`: everything that is known of one run, with its curve."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from analysis.access import denied
from analysis.columns import RUNS
from analysis.record import check_format
from analysis.text import rate_text
from datasets.files import hash_file
from sweep.curve_text import curve_lines
from sweep.errors import UserError
from sweep.known_runs import LABELS, KnownRun, known_runs, label, read_all_wanted, run_title
from sweep.results import Results
from sweep.standing import SHOWN, Row, read_ends, state_of
from sweep.text import aligned, counted, duration, gigabytes, percent

SHORTEST_PREFIX = 4
"""Letters of an id that name a run, if no other id begins with them."""
CANDIDATES_SHOWN = 10

Fact = tuple[str, str]
"""What it is, and what it says."""


def run_text(results: Results, given: str) -> str:
    """Return everything about a run, for the terminal.

    Args:
        results: a results directory.
        given: the run's id, or its first letters.

    Raises:
        UserError: no such run, or several.
        RecordError: no results directory, or the record is damaged.
    """
    check_format(results.root)
    wanted = read_all_wanted(results)
    run = _find(given, known_runs(results, wanted))
    end = read_ends(results, [run.run_id], [column.name for column in RUNS]).get(run.run_id)
    sections: list[list[str]] = [_section("", _outcome(run, end)), _section("wanted by", _studies(run, end, results))]
    if end is not None:
        sections += [
            _section("content", list(_flat(json.loads(end["content"])))),
            _section("provenance", _provenance(end)),
            _section("cost", _cost(end)),
        ]
    sections.append(_section("files", _files(run.run_id, results)))
    sections.append(["curve", *_indented(curve_lines(results, run.run_id))])
    return "\n\n".join("\n".join(section) for section in sections)


def _find(given: str, runs: Sequence[KnownRun]) -> KnownRun:
    by_id = {run.run_id: run for run in runs}
    if len(given) < SHORTEST_PREFIX:
        raise UserError(
            f"got {given!r} as a run, want its id or at least {SHORTEST_PREFIX} of its first letters; "
            f"`python -m sweep ls` lists all runs"
        )
    found = [run_id for run_id in by_id if run_id.startswith(given)]
    if len(found) == 1:
        return by_id[found[0]]
    if found:
        shown = "".join(f"\n  {run_id}  {_title(by_id[run_id])}" for run_id in found[:CANDIDATES_SHOWN])
        more = f"\n  and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
        raise UserError(f"{len(found)} runs begin with {given!r}; give more letters of one of:{shown}{more}")
    close = difflib.get_close_matches(given, [*by_id, *(run_id[: len(given)] for run_id in by_id)], n=1, cutoff=0.5)
    hint = f"; did you mean {next(run_id for run_id in by_id if run_id.startswith(close[0]))}?" if close else ";"
    raise UserError(f"no run {given!r}{hint} `python -m sweep ls` lists all {len(by_id)} runs")


def _title(run: KnownRun) -> str:
    if run.labels is None:
        return "wanted by no study here"
    return run_title(run.labels)


def _section(title: str, facts: Sequence[Fact]) -> list[str]:
    lines = aligned(facts) if facts else ["nothing"]
    return [title, *_indented(lines)] if title else lines


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _outcome(run: KnownRun, end: Row | None) -> list[Fact]:
    facts = [("run", run.run_id), ("status", _status(run, end))]
    if end is not None and end["failure"]:
        facts.append(("failure", end["failure"]))
    if end is not None:
        facts.append(("steps", f"{end['num_steps']} trained"))
    if end is not None and end["best_step"] is not None:
        accuracies = f"validation {percent(end['validation_at_best'])}, test {percent(end['test_at_best'])}"
        facts.append(("accuracy", f"{accuracies}, at step {end['best_step']}, where validation is highest"))
    if run.labels is None:
        return [*facts, ("labels", "not known: no study here wants it, and its row is written when it ends")]
    return facts + [(name.replace("_", " "), label(run.labels, name)) for name in LABELS]


def _status(run: KnownRun, end: Row | None) -> str:
    if end is not None and end["diverged_at_step"] is not None:
        return f"{run.status} at step {end['diverged_at_step']}"
    return run.status


def _studies(run: KnownRun, end: Row | None, results: Results) -> list[Fact]:
    return [
        (study, f"up to step {budget}: {SHOWN[state_of(run.run_id, budget, end, results)]}")
        for study, budget in run.budgets.items()
    ] or [("no study", "that is recorded here")]


def _flat(content: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the plain values first, then those of each mapping under its name."""
    for name, value in content.items():
        if not isinstance(value, Mapping):
            yield name, _rate(value) if name == "learning_rate" else _plain(value)
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", _plain(each)) for key, each in value.items())


def _rate(rate: float) -> str:
    """Return a learning rate as everywhere, unless that would round it."""
    return text if float(text := rate_text(rate)) == rate else _plain(rate)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else json.dumps(value)


def _provenance(end: Row) -> list[Fact]:
    changed = ", with changes" if end["git_dirty"] else ""
    versions: dict[str, str] = json.loads(end["versions"])
    return [
        ("data", f"{end['data_origin']}, {end['data_checksum']}"),
        ("weights", f"{end['pretrained_on']}, {end['weights_checksum']}" if end["weights_checksum"] else "random"),
        ("commit", f"{end['git_commit']}{changed}" if end["git_commit"] else "not a git checkout"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]


def _cost(end: Row) -> list[Fact]:
    return [
        ("device", end["device"]),
        ("trained for", f"{duration(end['wall_s'])} ({end['wall_s']:.1f} s)"),
        ("device time", f"{duration(end['device_s'])} ({end['device_s']:.1f} s)"),
        ("attempts", str(end["attempts"])),
        ("trained again", "not counted" if end["lost_steps"] is None else counted(end["lost_steps"], "lost step")),
        ("started", _moment(end["started_at"])),
        ("finished", _moment(end["finished_at"])),
    ]


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _files(run_id: str, results: Results) -> list[Fact]:
    places = {"row": results.run(run_id), "evaluations": results.curve(run_id)}
    facts = [(name, str(path) if path.exists() else "none") for name, path in places.items()]
    if results.uri is not None:
        return [*facts, ("checkpoints", f"{results.uri}/checkpoints/{run_id}")]
    saved = [_checkpoint(path) for path in sorted(results.checkpoints(run_id).glob("*"), reverse=True)]
    return facts + (saved or [("checkpoint", "none")])


def _checkpoint(path: Path) -> Fact:
    """Describe a file of a run's folder of checkpoints: `[damaged-]step-<step>-<sha256 prefix>.safetensors`."""
    try:
        size = gigabytes(path.stat().st_size)
        name = path.name.removeprefix("damaged-")
        if not name.startswith("step-"):
            return "unfinished", f"{path}  {size}"
        _, step, checksum = name.removesuffix(".safetensors").split("-")
        damaged = "" if hash_file(path)[:16] == checksum else ", DAMAGED: its checksum differs"
        return "checkpoint", f"{path}  step {int(step)}, {size}{damaged}"
    except PermissionError:
        return "checkpoint", denied(path)
    except FileNotFoundError:  # a sweep is going on, and has saved a newer one
        return "checkpoint", f"{path}  just removed"
