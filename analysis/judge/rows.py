"""The rows of a table: fields as numbers; every mistake with its line."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge import fields
from lr_sweep.analysis.judge.columns import Columns, parts_of
from lr_sweep.analysis.judge.fields import Column, as_number, is_nothing, parsed
from lr_sweep.analysis.judge.names import (
    SPLITS,
    VERDICTS,
    has_word,
    is_named,
    is_setting,
    listed,
    plain,
)
from lr_sweep.analysis.judge.reading import MOST_CHOICES, Choice, QuestionError, Reading
from lr_sweep.analysis.judge.table_file import TableFile, printable, raise_mistakes, stem_of
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields
from lr_sweep.common.text import counted

ALL = "all"  # the model, or the variant, of a table that names none
UNREAD, LOSS, LABEL = (
    "unread ",
    "loss ",
    "label ",
)  # prefixes of settings, losses beside the metric, texts as names
UNTUNED = 1.0  # stands for the learning rate in the frames of a table that has none
ZEROS = {"0", "0.0"}  # rates; one with more digits, as 0.00, may be a small rate that was rounded
TRUE, FALSE = {"true", "yes", "1", "1.0"}, {"false", "no", "0", "0.0"}
MOST_LACKING = 0.25  # share of the rows without a learning rate up to which these are left out


def decisive(names: Container[str]) -> str:
    """Return the split that selects: `validation`, or `test` where there is no validation data."""
    return "validation" if "validation" in names else "test"


def splits_in(names: Container[str]) -> list[str]:
    """Return the splits that have values, of the columns of a frame, or of the meanings of a table's columns."""
    return [split for split in SPLITS if split in names]


def beside(rows: pd.DataFrame, prefix: str) -> list[str]:
    """Return the further columns of a frame that begin with `UNREAD`, `LOSS` or `LABEL`."""
    return [name for name in map(str, rows) if name.startswith(prefix)]


def only(table: TableFile, where: Sequence[str]) -> TableFile:
    """Return the rows with the values that are wanted of columns, as `state=finished`, or not, as `state!=failed`.

    Raises UserError for a column that is not there, and if no row is left.
    """
    kept = list(range(len(table.lines)))
    for text in where:
        name, _, wanted = text.partition("=")
        differs, name = name.endswith("!"), name.removesuffix("!").strip()
        if name not in table.columns:
            there = listed(list(table.columns))
            raise UserError(
                f"--where {text}: want COLUMN=VALUE or COLUMN!=VALUE, with a column of {there}"
            )
        texts, value = table.columns[name], as_number(wanted.strip())
        kept = [
            place for place in kept if (as_number(texts[place].strip()) == value) is not differs
        ]
    if not kept:
        raise UserError(f"--where {' '.join(where)}: no row of {table.path} is left")
    return table.rows_at(kept) if where else table


def rows_of(table: TableFile, columns: Columns, remarks: list[str]) -> pd.DataFrame:
    """Read the rows of a table, with a task, a model and a variant each; raises UserError with every mistake."""
    table = _without_untrained(_with_run_rates(table, columns, remarks), columns, remarks)
    rows = _read_rows(table, columns)
    if "task" not in rows:
        rows["task"] = _tasks(table, columns, remarks)
    if "variant" not in rows and "model" in rows:  # what is compared is called a variant here
        rows = rows.rename(columns={"model": "variant"})
    rows = rows.assign(**{name: ALL for name in ("model", "variant") if name not in rows})
    _refuse_spellings(rows)
    return rows


def _tasks(table: TableFile, columns: Columns, remarks: list[str]) -> list[str]:
    """Name each row's task where no column does: by its file, unless files are parts of one table."""
    stems = {path: stem_of(path) for path in dict.fromkeys(line.path for line in table.lines)}
    for what in ("learning rate", "run", "variant"):
        texts = table.columns.get(columns.of.get(what.replace(" ", "_"), ""), ())
        pairs = {(line.path, text) for line, text in zip(table.lines, texts, strict=False)}
        if 1 < len(stems) == len(pairs) and len({text for _, text in pairs}) > 1:
            remarks.append(f"{len(stems)} files with one {what} each are parts of one table")
            return [ALL] * len(table.lines)
    remarks.append("no column of tasks: each file is one, by its name")
    return [stems[line.path] for line in table.lines]


def _refuse_spellings(rows: pd.DataFrame) -> None:
    """Raise UserError for names that look alike: `é` may be one character or two, and others are invisible."""
    for role in ("task", "model", "variant"):
        first: dict[str, str] = {}
        for name in rows[role].unique():
            seen = "".join(each for each in name if unicodedata.category(each) != "Cf")
            other = first.setdefault(unicodedata.normalize("NFC", seen).casefold(), name)
            if other != name:
                advice = "write one name, or two that differ in more than capitals"
                raise UserError(f"{role} has {other!r} and {name!r}: one or two? {advice}")


def _with_run_rates(table: TableFile, columns: Columns, remarks: list[str]) -> TableFile:
    """Give each run the largest rate of its schedule, where only the rates of single steps are known."""
    name, run = columns.of.get("learning_rate", ""), columns.of.get("run", "")
    if not {name, run} <= table.columns.keys() or "step" not in columns.of or is_setting(name):
        return table
    texts, runs = pd.Series(table.columns[name], dtype=object), table.columns[run]
    if len({*zip(runs, texts, strict=True)}) == len({*runs}):
        return table
    rates = pd.to_numeric(texts, errors="coerce")
    highest = rates.groupby(runs).transform("max")
    changed = highest.notna() & rates.ne(highest)
    if not changed.any() or highest.le(0).any() or np.isinf(highest).any():
        return table
    counts = "the largest one of each run counts as its learning rate"
    remarks.append(f"{name} changes within runs, as a schedule does: {counts}")
    return replace(
        table, columns=table.columns | {name: texts.mask(changed, highest.map(repr)).tolist()}
    )


def _without_untrained(table: TableFile, columns: Columns, remarks: list[str]) -> TableFile:
    """Leave out rows of a learning rate of 0, and few without one; in a table without rates, those without a value.

    A rate of 0 is an untrained model's if it is there at all steps; else a schedule may end there.
    """
    values = [_texts(table, split, columns.of[split]) for split in splits_in(columns.of)]
    empty = {text for texts in values for text in set(texts) if text.lower() in fields.NOTHING}
    without = pd.Series([empty.issuperset(row) for row in zip(*values, strict=True)])
    untrained, what = pd.Series(False, without.index), "value"
    if name := columns.of.get("learning_rate"):
        rates, has_value, what = (
            pd.Series(_texts(table, "learning_rate", name)),
            ~without,
            "learning rate",
        )
        lacking = sorted(filter(is_nothing, rates.unique()))
        without, zero = rates.isin(lacking), rates.isin(ZEROS)
        steps = pd.Series(table.columns.get(columns.of.get("step", ""), [""] * len(rates)))
        untrained = zero if set(steps) == set(steps[zero]) else untrained
        lost = (has_value & without).sum()
        if MOST_LACKING * (has_value.sum() - untrained.sum()) < lost < len(rates):
            left = Reading(where=[f"{name}!={text}" for text in lacking])
            text = f"{table.path}: {lost} of {len(rates)} rows have no learning rate in {name}"
            raise QuestionError(text, [Choice("these rows are left out", left)])
    kept = np.flatnonzero(~(without | untrained)).tolist()
    if len(kept) in (0, len(without)):
        return table
    if without.any():
        remarks.append(
            f"{table.name}: left out: {counted(int(without.sum()), 'row')} without a {what}"
        )
    if untrained.any():
        rows = counted(int(untrained.sum()), "row")
        remarks.append(f"NO TRAINING at a learning rate of 0: {rows} of {table.name} left out")
    return table.rows_at(kept)


def _read_rows(table: TableFile, columns: Columns) -> pd.DataFrame:
    """Read the columns of a table that mean something; raises UserError with every mistake.

    Returns a frame with a column for each meaning, `where` (`FILE:LINE`), `diverged` (whether validation, or test where
    there is no validation, is NaN or infinite), and those of `UNREAD`, `LOSS` and `LABEL`. Values of metrics are NaN
    where there is none.
    """
    read: Fields = {"where": list(map(str, table.lines))}
    mistakes: list[tuple[int, str, str]] = []
    for role, name in [(role, name) for role, name in columns.of.items() if role != "ignored"]:
        texts = _texts(table, role, name)
        values = {text: parsed(role, text) for text in dict.fromkeys(texts)}
        read[role] = [values[text] for text in texts]
        wrong = {text for text, value in values.items() if isinstance(value, ValueError)}
        places = [place for place, text in enumerate(texts) if text in wrong] if wrong else []
        mistakes += [
            (place, f"{name}: {read[role][place]}", f"{name}!={texts[place]}") for place in places
        ]
    if "step" in read and not mistakes:
        name, values = columns.of["step"], read[decisive(read)]
        wanted = f"{name}: got no step for an evaluation, want a number from 0"
        lacking = [place for place, text in enumerate(table.columns[name]) if is_nothing(text)]
        mistakes += [
            (place, wanted, f"{name}!=") for place in lacking if not math.isnan(values[place])
        ]
    _refuse_mistakes(table, sorted(mistakes))
    return _measured(pd.DataFrame(read), table, columns)


def _refuse_mistakes(table: TableFile, mistakes: Sequence[tuple[int, str, str]]) -> None:
    """Raise UserError with every mistake in the rows, and QuestionError if few `--where` leave these rows out."""
    try:
        raise_mistakes([f"{table.lines[place]}: {mistake}" for place, mistake, _ in mistakes])
    except UserError as error:
        where = list(dict.fromkeys(where for _, _, where in mistakes))
        if len(where) > MOST_CHOICES:
            raise
        raise QuestionError(
            str(error), [Choice("these rows are left out", Reading(where=where))]
        ) from error


def _measured(frame: pd.DataFrame, table: TableFile, columns: Columns) -> pd.DataFrame:
    """Drop values that are no measurements, mark diverged runs, and read what is not asked for."""
    chooses = decisive(frame)
    if (
        "status" in frame
    ):  # the 0 that a log has beside a crash, and an agent's log beside what it never ran
        is_agents = bool(VERDICTS & set(map(str.lower, table.columns[columns.of["status"]])))
        no_loss = (
            is_agents and has_word(columns.of[chooses], "loss") and bool(frame[chooses].gt(0).any())
        )
        frame[chooses] = frame[chooses].mask(
            frame[chooses].eq(0) & (frame["status"].eq("failed") | no_loss)
        )
    if "learning_rate" not in frame:
        frame["learning_rate"] = UNTUNED
    frame["diverged"] = np.isinf(frame[chooses].astype(float))
    splits, unread = (
        splits_in(frame),
        [Column(each.name, table.columns[each.name]) for each in columns.unread],
    )
    frame[splits] = frame[splits].astype(float).where(lambda values: ~np.isinf(values))
    for column in [each for each in unread if is_named(each.name, "diverged")]:
        if set(map(str.lower, column.values)) <= TRUE | FALSE:
            frame["diverged"] |= np.array([text.strip().lower() in TRUE for text in column.texts])
    is_numbered = (
        not {"seed", "step"} & columns.of.keys()
    )  # rows are repeats only if no setting differs
    return frame.assign(**_beside(unread, chooses, is_numbered))


def _beside(unread: Sequence[Column], chooses: str, is_numbered: bool) -> Fields:
    """Read what is not asked for: columns that may be settings, and losses, which show that a run diverged."""
    found: Fields = {}
    for column in unread:
        if (
            column.split in ("train", chooses)
            and has_word(column.measure, "loss")
            and not column.is_setting
        ):
            read = {text: parsed("train", text.strip()) for text in set(column.texts)}
            found[LOSS + column.name] = [
                math.nan if isinstance(read[x], ValueError) else read[x] for x in column.texts
            ]
        elif column.may_be_setting or (is_numbered and column.is_chosen):
            found[UNREAD + column.name] = column.texts
        if column.is_text and (has_word(column.name, "label") or not column.is_about_run):
            found[LABEL + column.name] = column.texts
    return found


def _texts(table: TableFile, role: str, name: str) -> list[str]:
    """Return the fields that have a meaning: numbers with a point, several labels as one."""
    parts = [(part, table.columns[part]) for part in parts_of(name, table.columns)]
    # The values of one column may need its name: 0.1 is a weight decay as well as a rate.
    is_label = role in ("task", "model", "variant") and not is_named(name, role)
    if len(parts) > 1 or role == "nuisance" or (is_label and Column(*parts[0]).numbers):
        labels = joined_labels(parts)
        places = {label: str(place) for place, label in enumerate(sorted(set(labels)))}
        return [places[label] for label in labels] if role == "seed" else labels
    texts = list(map(str.strip, table.columns[name]))
    if role in SPLITS:
        return fields.without_percent(texts)
    if role == "status" and VERDICTS & set(map(str.lower, texts)):
        return [text if fields.state_in(text) else "complete" for text in texts]
    return fields.without_prefix(texts) if role == "seed" else texts


def joined_labels(columns: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return one label for the values of several columns: `adam, gamma=0.9`; what is not there is left out."""
    texts = []
    for name, values in columns:
        shown = {text: printable(text) for text in dict.fromkeys(values)}
        held = {text.lower() for text in shown.values() if not is_nothing(text)}
        start = (
            f"{plain(name)}=" if held <= fields.TRUTHS or all(map(fields.is_number, held)) else ""
        )
        labels = {
            text: "" if is_nothing(field) else start + as_number(field)
            for text, field in shown.items()
        }
        texts.append([labels[text] for text in values])
    return [", ".join(filter(None, parts)) or "none" for parts in zip(*texts, strict=True)]


def whole_steps(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Count steps in a part of the table's own unit where they have fractions, as those of epochs may.

    Raises UserError if they are too large for that.
    """
    steps = rows[[name for name in ("step", "num_steps") if name in rows]]
    fitting = (
        10**power for power in range(6) if ((steps * 10**power + 1e-6) % 1).le(2e-6).all(axis=None)
    )
    parts = next(fitting, 10**6)
    if (highest := float(steps.max().max())) * parts >= 2**53:
        raise UserError(f"steps have fractions and go up to {highest:g}: write whole numbers")
    if parts > 1:
        remarks.append(f"steps have fractions: in the report a step is 1/{parts} of the table's")
    return rows.assign(**(steps * parts).round().astype("int64"))
