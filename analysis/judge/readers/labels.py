"""Settings in the names of runs, files and folders, and nested settings as flat ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lr_sweep.analysis.judge.names import is_named, plain
from lr_sweep.common.files import Fields, ReadFields

MOST_LABEL = (
    2000  # characters of a name that is searched for settings: file systems take 255 of a folder
)
SETTING = "config."  # prefix of the columns of settings that are found beside a table
_PAIR = re.compile(r"([A-Za-z][\w.]*?)\s*[=:]\s*([^\s,;/=:]+)")
_SPLIT = re.compile(
    r"(?<![^\W_])(?!base|init|initial|peak|max|start)([A-Za-z0-9]+)_(lr|learning_rate|seed)(?=\s*[=:])"
)
_NUMBERED = re.compile(
    r"(?<![A-Za-z])(?<!vit[-_])(?<!mixer[-_])"  # ViT-S/16 has no seed
    r"(lr|learning_rate|seed|s)[_-]?(\d[\d.]*(?:e[+-]?\d+)?)(?![^\W_]|\.\d)",
    re.IGNORECASE,
)
_REPEAT = re.compile(
    r"(.*?)(?:^|_|(?<=[^a-z]))(?:seed|fold|rep(?:eat|licate)?|split|run|trial)_?(\d{1,18})(?:_(.*)|$)"
)
_FRACTION = re.compile(r"0?\.\d+|\d(?:\.\d+)?e-\d+", re.IGNORECASE)
_SEED = re.compile(r"(?:seed|s|run|rep)?-?\d{1,6}", re.IGNORECASE)
_TIME = re.compile(r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\w*")  # at the end of a name of Ray
_BETWEEN = re.compile(r"(?<=[\d'\"])_(?=[A-Za-z]\w*=)")  # settings that `_` joins


def labels_of(name: str) -> dict[str, str]:
    """Return the settings in the name of a run or a folder: `lr=0.1,seed=1`, `adam-lr0.1-s1`; the rest is a variant."""
    if len(name) > MOST_LABEL:
        return {}
    text = _SPLIT.sub(r"\1 \2", _BETWEEN.sub(" ", _TIME.sub("", name)))
    found: dict[str, str] = dict(_PAIR.findall(text))
    rest = _PAIR.sub(" ", text)
    for key, value in _NUMBERED.findall(rest):
        found.setdefault("seed" if key.lower() == "s" else key, value.rstrip("."))
    rest = " ".join(re.sub(r"[\s,;/()_-]+", " ", _NUMBERED.sub(" ", rest)).split())
    named = any(is_named(key, "variant") for key in found)
    return {**found, "variant": rest} if found and rest and not named else found


def repeat_in(name: str) -> tuple[str, int] | None:
    """Return the number of a repeat in a name, as in `seed_0` or `val_acc fold 1`, behind the rest of the name."""
    match = _REPEAT.fullmatch(plain(name))
    return (
        (f"{match[1].strip('_')}_{(match[3] or '').strip('_')}".strip("_"), int(match[2]))
        if match
        else None
    )


def flat_settings(found: ReadFields, above: str = SETTING) -> Fields:
    """Return settings by the names of their columns, nested ones by the path of their keys, without private ones."""
    flat = Fields()
    for name, value in found.items():
        if above != SETTING or name[:1] != "_":
            path = f"{above}{name}"
            flat |= flat_settings(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def settings_by_place(names: Sequence[str]) -> list[dict[str, str]]:
    """Return the settings in names that differ in words of the same places, as `adam/0.1/0` and `sgd/0.01/1`.

    One place has to have fractions, as learning rates are; whole numbers elsewhere are seeds, and texts variants.
    Empty: the names have another form.
    """
    parts = [re.split(r"[/_ ]|-(?!\d+(?:$|[/_ ]))(?<!e-)", name) for name in names]
    places = [place for place in zip(*parts, strict=False) if len(set(place)) > 1]
    rates = [place for place in places if all(map(_FRACTION.fullmatch, place))]
    if len(set(map(len, parts))) > 1 or len(rates) != 1:
        return []
    seeds = [
        place
        for place in places
        if all(map(_SEED.fullmatch, place)) and len(set(place)) < len(place)
    ]
    texts = [
        place
        for place in places
        if place not in seeds and not any(word[:1].isdigit() for word in place)
    ]
    variants = [" ".join(words) for words in zip(*texts, strict=True)]
    found = {"lr": rates[0], "seed": seeds and seeds[0], "variant": variants}
    columns = {key: values for key, values in found.items() if values}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
