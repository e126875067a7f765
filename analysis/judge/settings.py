"""Settings, in which runs of one cell, learning rate and seed differ: compared, tuned as the rate is, or a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lr_sweep.analysis.judge.columns import JOIN, Columns
from lr_sweep.analysis.judge.fields import is_nothing, is_number, parsed, parser_of, without_prefix
from lr_sweep.analysis.judge.names import (
    ABOUT_RUNS,
    REPEATS,
    SCALES,
    SPREADS,
    TIMES,
    TUNED,
    has_word,
    is_setting,
    listed,
    words_of,
)
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.rows import TRUTHS, UNREAD, joined_labels
from lr_sweep.analysis.judge.runs import RATE, Runs
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, Level, finding_of
from lr_sweep.analysis.statistics.selection.best import each_cell, labels_of, rounded, tuples_in
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import rate_text

LABELS = {"name", "run", "trial", "tag", "label"}
"""Words of columns that name a run, or what is compared."""
LEAST_GROWN = 3
"""Numbers that have to grow in a row to be taken for steps."""
MOST_SETTINGS = 20
"""Settings among which it is looked for those that decide others."""
MOST_DIGITS = 10
"""Digits of a number that may count repeats."""
RATE_NAMES = {"lr", "rate"}
"""Words of columns that name the learning rate itself."""
BESIDE = "\x1f"
"""Mark that joins a variant and its settings while runs are read; in no name of a table."""
MOST_NAMED = 10
"""Variants whose chosen settings are named."""


def with_settings(rows: pd.DataFrame, columns: Columns, decisive: str) -> tuple[pd.DataFrame, str]:
    """Give a meaning to settings in which runs of one cell, learning rate and seed differ.

    The only one of a table without variants is compared: its name is returned; empty: there is none. Raises
    QuestionError where settings may mean several things.
    """
    if "step" not in rows and "num_steps" in rows and rows["num_steps"].nunique() > 1:  # a budget may be a setting
        rows = rows.assign(**{UNREAD + columns.of["num_steps"]: rows["num_steps"].map("{:g}".format)})
    if not (names := _telling_apart(rows, decisive)):
        return rows, ""
    named = columns.of.get("variant") or columns.of.get("model")
    if named or len(names) > 1 or _counts(names[0], rows) or _names_shared(rows):
        raise _question(names, columns, rows, decisive)
    values = rows[UNREAD + names[0]]
    texts = [parsed(parser_of("variant"), text) for text in joined_labels([(names[0], list(values.unique()))])]
    if mistake := next((text for text in texts if isinstance(text, ValueError)), None):
        leave_out = Choice(f"{names[0]} left out", Reading(columns={"ignored": names[0]}))
        raise QuestionError(f"{names[0]}, which is compared: {mistake}", [leave_out])
    return rows.assign(variant=values.map(dict(zip(values.unique(), texts, strict=True)))), names[0]


def with_nuisance(rows: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Let runs of different settings that are tuned be those of different variants until `best_settings`.

    Raises UserError if nothing chooses among them.
    """
    if "nuisance" not in rows:
        return rows
    if not metric.chosen_on:
        raise UserError(
            "nuisance: settings are tuned on validation data, and the table has none: compare them, as in "
            "--columns variant=NAME, or give --select-on-test"
        )
    return rows.assign(variant=rows["variant"] + BESIDE + rows["nuisance"])


def _telling_apart(rows: pd.DataFrame, decisive: str) -> list[str]:
    """Return the settings that tell runs of one cell, learning rate and seed apart; without seeds, all that differ."""
    key = [*RATE, *(name for name in ("nuisance", "seed") if name in rows)]
    shared = _names_shared(rows)
    if "run" in rows:
        runs = rows.drop_duplicates(["run", *(UNREAD + name for name in shared)])
    else:
        key += ["step"] if "step" in rows else []
        runs = rows[rows[decisive].notna() | rows["diverged"]] if "step" in rows else rows
    several = runs[runs.duplicated(key, keep=False)]
    names = [name for name in _settings(rows) if several.groupby(key, sort=False)[UNREAD + name].nunique().gt(1).any()]
    if "run" in rows:  # what changes within runs is no setting, unless several runs share a name
        within = rows.groupby("run", sort=False)
        names = [name for name in names if name in shared or within[UNREAD + name].nunique().le(1).all()]
    crossed = [name for name in names if _is_crossed(name, runs) and ("seed" in rows or _names_variants(name, runs))]
    names = [name for name in names if not _is_about_run(name) or name in crossed]
    places = {
        name: ("/" in name, -_num_decided(name, names, runs), not has_word(name, SCALES), runs[UNREAD + name].nunique())
        for name in names
    }
    names.sort(key=lambda name: (_is_about_run(name), not is_setting(name), places[name]))
    found = _needed(names, several, key)
    if "seed" in rows or ("step" in rows and "run" not in rows):  # then they have to tell all apart
        return [] if several.duplicated([*key, *(UNREAD + name for name in found)]).any() else found
    return found


def _num_decided(name: str, names: Sequence[str], runs: pd.DataFrame) -> int:
    """Return how many other settings a setting decides, as a model's size does its width."""
    others = [UNREAD + other for other in names if other != name]
    return int(runs.groupby(UNREAD + name)[others].nunique().le(1).all().sum()) if len(names) <= MOST_SETTINGS else 0


def _names_shared(rows: pd.DataFrame) -> list[str]:
    """Return the settings that differ among the rows of one run's name: several runs share it.

    Numbers and times that no tool calls a setting are left out: they may grow with the step.
    """
    if "run" not in rows:
        return []
    names = [
        name
        for name in _settings(rows)
        if is_setting(name) or not (_is_about_run(name) or has_word(name, TIMES) or _has_numbers(name, rows))
    ]
    return [name for name in names if rows.groupby("run", sort=False)[UNREAD + name].nunique().gt(1).any()]


def _has_numbers(name: str, rows: pd.DataFrame) -> bool:
    return any(is_number(text.strip()) or text.strip().lower() in TRUTHS for text in rows[UNREAD + name].unique())


def _is_crossed(name: str, runs: pd.DataFrame) -> bool:
    return bool(runs.groupby(UNREAD + name)["learning_rate"].nunique().gt(1).all())


def _names_variants(name: str, runs: pd.DataFrame) -> bool:
    """Return whether a column without gaps has one run for each of its values and learning rates."""
    column = UNREAD + name
    filled = not runs[column].map(is_nothing).any()
    return set(words_of(name)) <= LABELS and filled and not runs.duplicated([*RATE, column]).any()


def _is_about_run(name: str) -> bool:
    """Return whether a column says how a run went, or where, and not how it was started."""
    return not is_setting(name) and bool((ABOUT_RUNS | SPREADS) & set(words_of(name)))


def _needed(names: Sequence[str], rows: pd.DataFrame, key: Sequence[str]) -> list[str]:
    """Leave out columns that tell no more rows apart than those before them."""
    found: list[str] = []
    groups = rows.groupby(list(key), sort=False).ngroups
    for name in names:
        together = rows.groupby([*key, *(UNREAD + each for each in (*found, name))], sort=False, dropna=False).ngroups
        if together > groups:
            found, groups = [*found, name], together
    return found


def _counts(name: str, rows: pd.DataFrame) -> bool:
    """Return whether a column may number repeats: 0, 1, 2 or 1, 2, 3."""
    values = set(without_prefix([text.strip() for text in rows[UNREAD + name].unique() if not is_nothing(text)]))
    if not all(text.isascii() and text.isdigit() and len(text) < MOST_DIGITS for text in values):
        return False
    numbers = sorted(map(int, values))
    return numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))


def _grows(name: str, rows: pd.DataFrame) -> bool:
    """Return whether a column of numbers only grows within the rows of a cell, learning rate and seed, as steps do."""
    numbers = pd.to_numeric(rows[UNREAD + name].str.strip(), errors="coerce")
    groups = numbers.groupby([rows[key] for key in (*RATE, "seed") if key in rows], sort=False)
    known = numbers.notna().all() and not has_word(name, SCALES | TUNED)
    return bool(known and groups.size().min() >= LEAST_GROWN and groups.agg(_is_growing).all())


def _is_growing(numbers: pd.Series[float]) -> bool:
    return numbers.is_monotonic_increasing and numbers.is_unique


def _question(names: Sequence[str], columns: Columns, rows: pd.DataFrame, decisive: str) -> QuestionError:
    values = {name: {text.strip() for text in rows[UNREAD + name].unique()} - {""} for name in names}
    differ = listed([f"{name} ({len(values[name])} values)" for name in names])
    text = f"runs of one learning rate differ in {differ}: settings are no seeds, and their spread is no noise"
    choices = _choices(names, columns.of, rows, decisive)
    if shared := _names_shared(rows):
        text = f"runs of one name differ in {listed(shared)}; {text}"
        apart = Reading(columns={"run": JOIN.join([columns.of["run"], *shared])})
        choices = [
            Choice(says, reading if "ignored" in reading.columns else reading.but(apart)) for says, reading in choices
        ]
    return QuestionError(text, choices)


def _choices(names: Sequence[str], of: Mapping[str, str], rows: pd.DataFrame, decisive: str) -> list[Choice]:
    """Offer what some settings may mean, the likeliest first."""
    named = of.get("variant") or of.get("model") or ""

    def join(*names: str) -> str:
        return JOIN.join(filter(None, names))

    def also(role: str, *names: str) -> dict[str, str]:
        """Return columns beside those that have the meaning already: a setting may hide another one."""
        return {role: join(of.get(role, ""), *names)}

    counting = [name for name in names if _counts(name, rows) and not has_word(name, SCALES | TUNED)]
    repeats = [name for name in names if REPEATS & set(words_of(name))] or counting * ("seed" not in rows)
    tuned = [name for name in names if TUNED & set(words_of(name))]
    scales = [name for name in names if SCALES & set(words_of(name)) and name not in tuned]
    texts = [name for name in names if not named and not _has_numbers(name, rows) and name not in (*tuned, *repeats)]
    others = [name for name in names if name in scales or name in texts]
    rest = [name for name in names if name not in (*others, *repeats)]
    every, together, chosen = join(*names), join(named, *names), decisive == "validation"
    compared = (f"{together} compared, each value", {"variant": together})
    split = (f"a table for each value of {every}", {"task": every})
    # Where no rate is tuned, settings are hardly; texts, as of methods, are rather compared.
    at_first = rows["learning_rate"].nunique() == 1 or (not named and len(others) == len(names))
    is_split = bool(named) and "task" not in of and len(names) == 1
    offers = [(True, f"{name} numbers repeats", also("seed", name)) for name in repeats[:1]]
    offers += [
        ("step" not in rows and _grows(name, rows), f"{name} numbers the evaluations of a run", {"step": name})
        for name in names
    ]
    offers += [(at_first, *compared)]
    both = {"variant": join(named, *others), **also("nuisance", *rest)}
    offers += [(chosen and bool(rest and others), f"{both['variant']} compared, {join(*rest)} tuned", both)]
    offers += [(is_split and bool(scales), *split)]
    offers += [(chosen, f"{every} tuned as the learning rate is", also("nuisance", *names))]
    for name in names if chosen and len(names) > 1 and not named else ():
        left = [other for other in names if other != name]
        offers += [(True, f"{name} compared, {join(*left)} tuned", {"variant": name, **also("nuisance", *left)})]
    offers += [(not at_first, *compared), (is_split and not scales, *split)]
    offers += [("seed" not in rows, f"{every} no setting, as a result is", also("ignored", *names))]
    return [Choice(says, Reading(columns=columns)) for is_offered, says, columns in offers if is_offered]


def settings_findings(rows: pd.DataFrame) -> list[CheckFinding]:
    """Find settings that differ between the seeds of a learning rate, and between the learning rates of a cell."""
    runs = rows.drop_duplicates("run_id").sort_values("learning_rate", kind="stable")
    if not (settings := _settings(runs)):
        return []
    varied = [name for name in settings if _is_varied(name, runs)]
    varied = [name for name in varied if _differs(name, "seed", runs)]  # what a seed decides is no setting
    found = []
    for cell, of_cell in each_cell(runs):
        labels = labels_of(cell)
        labels["variant"] = labels["variant"].partition(BESIDE)[0]
        if names := [name for name in varied if _differs(name, "learning_rate", of_cell)]:
            message = f"runs of one learning rate differ in {listed(names)} besides their seeds"
            message, fix = f"{message}: the spread is not noise", "judge a table for each value"
            found.append(finding_of(labels, "settings", "problem", message, fix))
        if "nuisance" not in rows and (moved := [name for name in settings if _moves_with_rate(name, of_cell)]):
            once = of_cell["learning_rate"].is_unique
            level: Level = "problem" if not once or any(map(is_setting, moved)) else "note"
            message = f"its learning rates differ in {listed(moved)} as well: what is better may be due to any of them"
            found.append(finding_of(labels, "settings", level, message, "vary the learning rate alone"))
    return list(dict.fromkeys(found))


def _differs(name: str, key: str, runs: pd.DataFrame) -> bool:
    return bool(runs.groupby(key)[UNREAD + name].nunique().gt(1).any())


def _moves_with_rate(name: str, runs: pd.DataFrame) -> bool:
    """Return whether a setting differs between the learning rates of a cell, and does not follow the rate.

    As where a search draws all settings at once: the curve over the rate is then not the rate's alone. A column that
    no tool calls a setting counts only where the runs of each rate have one value of it: a result would differ.
    """
    at_rates = runs.groupby("learning_rate")[UNREAD + name].agg(frozenset)
    alike = at_rates.map(len).eq(1).all() and not _is_about_run(name) and not RATE_NAMES & set(words_of(name))
    return bool((is_setting(name) or alike) and at_rates.nunique() > 1 and not _follows(runs[UNREAD + name]))


def _follows(values: pd.Series[str]) -> bool:
    if not values.map(lambda text: is_number(text.strip())).all():
        return False
    numbers = values.astype(float)
    return bool(numbers.is_monotonic_increasing or numbers.is_monotonic_decreasing)


def _settings(runs: pd.DataFrame) -> list[str]:
    return [str(name).removeprefix(UNREAD) for name in runs if str(name).startswith(UNREAD)]


def _is_varied(name: str, runs: pd.DataFrame) -> bool:
    """Return whether a column was varied on purpose: it has the same few values at most learning rates.

    Results, such as times, have others at each.
    """
    column = UNREAD + name
    pairs = runs[[*RATE, column]].drop_duplicates().dropna()
    rates = pairs.groupby(RATE, sort=False)[column]
    if is_setting(name) or rates.size().le(1).all():
        return bool(rates.size().gt(1).any())
    number = rates.ngroups
    if number == 1:
        return bool(len(pairs) <= len(runs) / 2)
    common = Counter(map(frozenset, rates.agg(list)[rates.size() > 1])).most_common(1)
    return common[0][1] >= max(2, number / 2)


def best_settings(runs: Runs, metric: Metric) -> tuple[Runs, pd.DataFrame, pd.DataFrame]:
    """Keep at each learning rate of a variant the settings with the best mean over seeds by validation.

    Of settings without a value for each seed those with the most values are compared, as of learning rates.

    Returns:
        The runs of the best settings; all runs, as of `StudySummary.runs`, with a column `settings`: intervals choose
        among rates and settings; and the best `settings` by `RATE`.
    """
    summary = summarise(runs.wanted, runs.ended, runs.curves, metric)
    rates = _apart(summary.learning_rates)
    rates["mean"] = metric.sign * rounded(rates["validation_mean"].to_numpy(float))
    ordered = rates.sort_values(["num_values", "mean"], ascending=False, kind="stable")
    best = ordered.drop_duplicates(RATE)[[*RATE, "settings"]]
    kept = _apart(runs.wanted).merge(best, on=[*RATE, "settings"])
    return replace(runs, wanted=kept.drop(columns="settings")), _apart(summary.runs), best


def tuned_remark(cells: pd.DataFrame, candidates: pd.DataFrame, best: pd.DataFrame) -> str:
    """Say which settings were chosen, and that intervals count it; `candidates`, `best`: from `best_settings`."""
    chosen = tuples_in(cells[RATE].merge(best, on=RATE))
    said = [f"{variant} {rate_text(rate)} with {settings}" for *_, variant, rate, settings in chosen]
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return (
        f"settings tuned as the learning rate, {candidates['settings'].nunique()} of them: at each rate the best by "
        f"validation is shown; intervals count the choice. Chosen: {'; '.join(said[:MOST_NAMED])}{more}"
    )


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    parts = frame["variant"].str.partition(BESIDE)
    return frame.assign(variant=parts[0], settings=parts[2])
