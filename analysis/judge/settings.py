"""Settings, in which runs of one cell, learning rate and seed differ: compared, tuned as the rate is, or a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.judge.columns import Columns
from lr_sweep.analysis.judge.fields import LEAST_GROWN, Column, are_names, is_nothing, parsed
from lr_sweep.analysis.judge.names import JOIN, has_word, listed, plain
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.rows import LABEL, UNREAD, beside, decisive, joined_labels
from lr_sweep.analysis.judge.runs import RATE, Runs
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, finding_of
from lr_sweep.analysis.statistics.selection.best import (
    CELL,
    each_cell,
    labels_of,
    rounded,
    tuples_in,
)
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text

MOST_NAMED = 10  # variants whose chosen settings are named
BESIDE = "\x1f"  # joins a variant and its settings while runs are read; in no name of a table
Offer = tuple[
    float, str, dict[str, str]
]  # what settings may mean: a weight (0: no), a clause, columns that say so


def with_settings(rows: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Give a meaning to settings in which runs of one cell, learning rate and seed differ.

    The only one of a table without variants is compared, as `columns` then say. Raises QuestionError where settings may
    mean several things.
    """
    if (
        "step" not in rows and "num_steps" in rows and rows["num_steps"].nunique() > 1
    ):  # a budget may be a setting
        _ask_if_rows_are_runs(rows, columns.of)
        rows = rows.assign(
            **{UNREAD + columns.of["num_steps"]: rows["num_steps"].map("{:g}".format)}
        )
    settings, shared = _telling_apart(rows)
    named = {"variant", "model"} & columns.of.keys()
    if not settings:
        settings = [each for each in _columns(rows, UNREAD) if _is_crossed(each, rows)]
        settings, named = settings if len(settings) == 1 else [], named - {"model"}
    if not settings:
        _ask_if_names_are_repeats(rows, columns)
        return rows
    first, names = settings[0], _name_of_runs(settings, rows)
    is_clear = (
        first.kind not in ("repeat", "count") and not _is_drawn(first) and not _grows(first, rows)
    )
    if named or names or shared or len(settings) > 1 or not is_clear:
        raise _question(settings, shared, names, rows, columns.of)
    labels = joined_labels([(first.name, first.texts)])
    variants = {label: parsed("variant", label) for label in set(labels)}
    columns.take("variant", first.name, "the one setting that differs")
    return rows.assign(model=rows["variant"], variant=[variants[label] for label in labels])


def with_tuned(rows: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Let runs of different settings that are tuned be those of different variants until `best_settings`.

    Raises UserError if nothing chooses among them.
    """
    if "nuisance" not in rows:
        return rows
    if not metric.chosen_on:
        advice = "compare them, as in --columns variant=NAME, or give --select-on-test"
        raise UserError(
            f"nuisance: settings are tuned on validation data, and the table has none: {advice}"
        )
    return rows.assign(variant=rows["variant"] + BESIDE + rows["nuisance"])


def _columns(rows: pd.DataFrame, prefix: str) -> list[Column]:
    return [Column(name.removeprefix(prefix), list(rows[name])) for name in beside(rows, prefix)]


def _differs(column: Column, key: str | list[str], runs: pd.DataFrame) -> bool:
    return bool(runs.groupby(key, sort=False)[UNREAD + column.name].nunique().gt(1).any())


def _telling_apart(rows: pd.DataFrame) -> tuple[list[Column], list[str]]:
    """Return the settings that tell runs of one cell, learning rate and seed apart; without seeds, all that differ.

    Also those in which the rows of one run's name differ: several runs share it. A setting that tells no more rows
    apart than those before it is left out.
    """
    key = [name for name in (*RATE, "nuisance", "seed") if name in rows]
    every, shared, runs = _columns(rows, UNREAD), list[str](), rows
    if (
        "run" in rows
    ):  # what changes within runs is no setting, but what no tool calls one may grow with the step
        changing = [each for each in every if _differs(each, "run", rows)]
        texts = [each for each in changing if each.is_text and not has_word(each.name, "time")]
        shared = [
            each.name
            for each in changing
            if each.is_setting or (each in texts and not each.is_about_run)
        ]
        every = [each for each in every if each not in changing or each.name in shared]
        runs = rows.drop_duplicates(["run", *(UNREAD + name for name in shared)])
    elif "step" in rows:
        key, runs = [*key, "step"], rows[rows[decisive(rows)].notna() | rows["diverged"]]
    several = runs[runs.duplicated(key, keep=False)]
    differing = [each for each in every if _differs(each, key, several)]
    found, apart = list[Column](), several.groupby(key, sort=False).ngroups
    for column in sorted(differing, key=_place):
        names = [UNREAD + each.name for each in (*found, column)]
        together = several.groupby([*key, *names], sort=False, dropna=False).ngroups
        if together > apart and (not column.is_about_run or _names_variants(column, runs)):
            found, apart = [*found, column], together
    return found, shared


def _name_of_runs(settings: Sequence[Column], rows: pd.DataFrame) -> str:
    """Return the first column of texts that names each combination of settings and rates; empty: there is none.

    Or these are a grid: more than if one setting at a time were changed, as in an ablation.
    """
    levels = rows[[*RATE, *(UNREAD + each.name for each in settings)]]
    combinations = levels.groupby(list(levels), sort=False, dropna=False).ngroup()
    number, others = combinations.nunique(), levels.nunique(dropna=False) - 1
    if (
        others > 0
    ).sum() < 2 or number > 1 + others.sum():  # the one that differs names them itself
        return ""
    texts = [each for each in _columns(rows, LABEL) if not has_word(each.name, "time")]
    texts = [
        each
        for each in texts
        if len(each.values) == number == len({*zip(each.texts, combinations, strict=True)})
    ]
    return texts[0].name if texts else ""


def _is_crossed(column: Column, runs: pd.DataFrame) -> bool:
    """Return whether each cell has each value of a column of texts: at one rate of its own; at several in one cell."""
    if column.is_about_run or not column.is_text or column.is_setting:
        return False
    cells = runs.groupby(CELL, sort=False).ngroup()
    values = cells.groupby(runs[UNREAD + column.name]).nunique()
    rates = runs.groupby([*CELL, UNREAD + column.name])["learning_rate"].nunique()
    has_own_rates = rates.eq(1).all() if cells.nunique() > 1 else rates.gt(1).all()
    return len(values) > 1 and values.min() == cells.nunique() and bool(has_own_rates)


def _is_drawn(column: Column) -> bool:
    """Return whether most rows have a number of their own, as where a search draws it: there is nothing to compare."""
    return column.differs and not column.is_chosen


def _ask_if_names_are_repeats(rows: pd.DataFrame, columns: Columns) -> None:
    """Raise QuestionError if runs of one cell and learning rate, without seeds, have names and not only numbers."""
    if "seed" in rows or "run" in columns.given or ("step" in rows and "run" not in rows):
        return
    runs = rows.drop_duplicates("run") if "run" in rows else rows
    labels = {
        each.name: runs[LABEL + each.name]
        for each in _columns(rows, LABEL)
        if has_word(each.name, "label")
    }
    if plain(columns.of.get("run", "")) == "run":  # others are ids by their names
        labels[columns.of["run"]] = runs["run"]
    cells = [runs[name] for name in RATE]
    for name in [
        name for name, texts in labels.items() if texts.groupby(cells).agg(are_names).any()
    ]:
        compared = Reading(columns={"variant": name} | ({"run": ""} if "run" in rows else {}))
        repeats = Reading(columns={"run": name})
        choices = [Choice("each name is a variant", compared), Choice("they are repeats", repeats)]
        raise QuestionError(
            f"runs of one learning rate have names in {name}: are they repeats?", choices
        )


def _ask_if_rows_are_runs(rows: pd.DataFrame, of: Mapping[str, str]) -> None:
    """Raise QuestionError if a run has several numbers of steps: no column says at which step a row is."""
    if "run" in of and rows.groupby("run")["num_steps"].nunique().gt(1).any():
        evaluations = Reading(columns={"step": of["num_steps"], "num_steps": ""})
        choices = [Choice("each row is a run", Reading(columns={"run": ""}))]
        choices += [Choice("rows are evaluations of runs", evaluations)]
        raise QuestionError(
            f"a run in {of['run']} has several {of['num_steps']}: is each row a run?", choices
        )


def _names_variants(column: Column, runs: pd.DataFrame) -> bool:
    """Return whether a column's values have several rates each, and without seeds are names with a run at each."""
    name = UNREAD + column.name
    several = runs.groupby(name)["learning_rate"].nunique().gt(1).all()
    single = not runs[name].map(is_nothing).any() and not runs.duplicated([*RATE, name]).any()
    return bool(several and ("seed" in runs or (single and has_word(column.name, "label"))))


def _place(column: Column) -> tuple[float, ...]:
    """Return where a setting stands among others: those that a tool calls so first, then sizes; ratios are last."""
    about = column.is_about_run, not column.is_setting, "/" in column.name
    return (
        *about,
        not has_word(column.name, "size"),
        any(map(is_nothing, column.texts)),
        len(column.values),
    )


def _grows(column: Column, rows: pd.DataFrame) -> bool:
    """Return whether a column of numbers only grows within the rows of a cell, learning rate and seed, as steps do."""
    if "step" in rows or not column.numbers or column.kind in ("size", "tuned"):
        return False
    numbers = pd.to_numeric(rows[UNREAD + column.name].str.strip(), errors="coerce")
    groups = numbers.groupby([rows[key] for key in (*RATE, "seed") if key in rows], sort=False)
    return bool(groups.size().min() >= LEAST_GROWN and groups.diff().dropna().gt(0).all())


def _question(
    settings: Sequence[Column],
    shared: Sequence[str],
    names: str,
    rows: pd.DataFrame,
    of: Mapping[str, str],
) -> QuestionError:
    """Ask what some settings mean, and for `shared` ones the columns that tell runs of one name apart."""
    differ = listed([f"{each.name} ({len(each.values)} values)" for each in settings])
    text = f"runs differ in {differ}: settings are no seeds, and their spread is no noise"
    offers = sorted(_offers(settings, of, rows), key=lambda offer: -offer[0])
    choices = [Choice(f"each {names} compared", Reading(columns={"variant": names}))] * bool(names)
    choices += [
        Choice(says, Reading(columns=columns)) for weight, says, columns in offers if weight
    ]
    if shared:
        text = f"runs of one name differ in {listed(shared)}; {text}"
        apart = Reading(columns={"run": JOIN.join([of["run"], *shared])})
        choices = [
            Choice(says, each if "ignored" in each.columns else each.but(apart))
            for says, each in choices
        ]
    return QuestionError(text, choices)


def _offers(
    settings: Sequence[Column], of: Mapping[str, str], rows: pd.DataFrame
) -> Iterator[Offer]:
    named, names = of.get("variant") or of.get("model") or "", [each.name for each in settings]

    def also(role: str, *names: str) -> dict[str, str]:
        """Return columns beside those that have the meaning already: a setting may hide another one."""
        return {
            role: JOIN.join(filter(None, [named if role == "variant" else of.get(role), *names]))
        }

    def of_kind(*kinds: str) -> list[str]:
        return [each.name for each in settings if each.kind in kinds]

    every, is_tuned, has_sizes = JOIN.join(names), "validation" in rows, bool(of_kind("size"))
    # Numbers that are crossed with those of another setting are a grid, and count no repeats.
    repeats = of_kind("repeat") or of_kind("count") * (
        "seed" not in rows and len(names) == 1 + len(of_kind("text"))
    )
    for name in repeats[:1]:
        yield 9.0, f"{name} numbers repeats", also("seed", name)
    for each in settings:
        yield (
            8.0 * _grows(each, rows),
            f"{each.name} numbers the evaluations of a run",
            {"step": each.name},
        )
    # Where no rate is tuned, settings are hardly; texts, as of methods, are rather compared.
    compared = of_kind("size", *(["text"] * (not named)))
    rates = rows.groupby([*CELL, *(UNREAD + name for name in names)], dropna=False)[
        "learning_rate"
    ].nunique()
    is_compared = rates.max() == 1 or (not named and len(compared) == len(names))
    together = also("variant", *names)
    weight = 0.0 if any(map(_is_drawn, settings)) else 7.0 if is_compared else 2.0
    yield weight, f"{together['variant']} compared, each value", together
    if (
        is_tuned
        and compared
        and (rest := [name for name in names if name not in (*compared, *repeats)])
    ):
        some = also("variant", *compared)
        yield (
            6.0,
            f"{some['variant']} compared, {JOIN.join(rest)} tuned",
            some | also("nuisance", *rest),
        )
    if named and "task" not in of and len(names) == 1:
        yield 5.0 if has_sizes else 1.5, f"a table for each value of {every}", {"task": every}
    if is_tuned:
        yield (
            4.0 if named else 1.5,
            f"{every} tuned as the learning rate is",
            also("nuisance", *names),
        )
    if "seed" not in rows:
        yield 1.0, f"{every} no setting, as a result is", also("ignored", *names)


def settings_findings(rows: pd.DataFrame) -> list[CheckFinding]:
    """Find settings that differ between the seeds of a learning rate, and between the learning rates of a cell."""
    runs = rows.drop_duplicates("run_id").sort_values("learning_rate", kind="stable")
    settings = _columns(runs, UNREAD)
    # What a seed decides is no setting.
    varied = [each for each in settings if _differs(each, "seed", runs) and _is_varied(each, runs)]
    found = []
    for cell, of_cell in each_cell(runs) if settings else ():
        labels = labels_of(cell)
        labels["variant"] = labels["variant"].partition(BESIDE)[0]
        if names := [each.name for each in varied if _differs(each, "learning_rate", of_cell)]:
            text = f"runs of one learning rate differ in {listed(names)} besides their seeds: the spread is not noise"
            found.append(
                finding_of(labels, "settings", "problem", text, "judge a table for each value")
            )
        if "nuisance" not in rows and (
            moved := [each for each in settings if _moves_with_rate(each, of_cell)]
        ):
            sure = not of_cell["learning_rate"].is_unique or any(each.is_setting for each in moved)
            also = listed([each.name for each in moved])
            text = f"its learning rates differ in {also} as well: what is better may be due to any of them"
            fix = "vary the learning rate alone"
            found.append(finding_of(labels, "settings", "problem" if sure else "note", text, fix))
    return list(dict.fromkeys(found))


def _moves_with_rate(column: Column, runs: pd.DataFrame) -> bool:
    """Return whether a setting differs between the learning rates of a cell, and does not follow the rate.

    As where a search draws all settings at once: the curve over the rate is then not the rate's alone. A column that
    no tool calls a setting counts only where the runs of each rate have one value of it: a result would differ.
    """
    texts = runs[UNREAD + column.name]
    at_rates = texts.groupby(runs["learning_rate"]).agg(frozenset)
    alike = (
        at_rates.map(len).eq(1).all()
        and not column.is_about_run
        and not has_word(column.name, "rate")
    )
    if not (column.is_setting or alike) or at_rates.nunique() < 2:
        return False
    numbers = pd.to_numeric(texts, errors="coerce")
    return bool(
        numbers.isna().any()
        or not (numbers.is_monotonic_increasing or numbers.is_monotonic_decreasing)
    )


def _is_varied(column: Column, runs: pd.DataFrame) -> bool:
    """Return whether a column was varied on purpose: it has the same few values at most learning rates.

    Results, such as times, have others at each.
    """
    values = runs.groupby(RATE, sort=False)[UNREAD + column.name].agg(frozenset)
    several = values[values.map(len) > 1]
    least_common = min(len(values), max(2, len(values) / 2))
    return bool(len(several) if column.is_setting else several.value_counts().max() >= least_common)


def best_settings(runs: Runs) -> tuple[Runs, int, pd.DataFrame]:
    """Keep at each learning rate of a variant the settings with the best mean over seeds by validation.

    Of settings without a value for each seed those with the most values are compared, as of learning rates. Returns the
    runs of the best settings, the number of settings tried, and the best `settings` by `RATE`.
    """
    summary = runs.summary()
    rates = _apart(summary.learning_rates)
    rates["mean"] = summary.metric.sign * rounded(rates["validation_mean"].to_numpy(float))
    ordered = rates.sort_values(["num_values", "mean"], ascending=False, kind="stable")
    best = ordered.drop_duplicates(RATE)[[*RATE, "settings"]]
    kept = _apart(runs.wanted).merge(best, on=[*RATE, "settings"])
    return replace(runs, wanted=kept.drop(columns="settings")), rates["settings"].nunique(), best


def tuned_remark(cells: pd.DataFrame, num_settings: int, best: pd.DataFrame) -> str:
    """Name the chosen settings; `num_settings`, `best`: from `best_settings`."""
    chosen = tuples_in(cells[RATE].merge(best, on=RATE))
    said = [
        f"{variant} {rate_text(rate)} with {settings}" for *_, variant, rate, settings in chosen
    ]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    start = f"settings tuned as the learning rate, {num_settings} of them: at each rate the best by validation is shown"
    return f"{start}. Chosen: {'; '.join(said[:MOST_NAMED])}{more}"


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame["variant"].str.partition(BESIDE)
    return frame.assign(variant=parts[0], settings=parts[2])
