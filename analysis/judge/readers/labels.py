"""Settings in the names of runs, files and folders, and nested settings as flat ones."""

from __future__ import annotations

import re

from lr_sweep.analysis.judge.names import SETTING
from lr_sweep.common.files import Fields, ReadFields

MOST_LABEL = 2000  # characters of a name that are searched; file systems allow 255
_TRIAL = re.compile(  # what Ray writes around the settings of a trial: its id, and the time
    r"^.*_[0-9a-f]{5,8}_\d{5}_\d+_|_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\w*"
)
_PAIR = re.compile(  # after and before a separator, or `_` behind a digit
    r"(?:^|[\s,;/]|(?<=\d)_)\+*([A-Za-z][\w.-]*)=['\"]?([^\s,;/='\"]+?)['\"]?"
    r"(?=$|[\s,;/]|(?<=\d)_[A-Za-z][\w.-]*=)"
)


def settings_in(name: str) -> dict[str, str]:
    """Return the pairs in a part of a path, such as `lr=0.1,seed=1`, or in a name that Ray gives a trial.

    What can be read in several ways is left out: `opt=adam_lr=0.1`.
    """
    return dict(_PAIR.findall(_TRIAL.sub("", name[:MOST_LABEL]))) if "=" in name else {}


def flat_settings(settings: ReadFields, above: str = SETTING) -> Fields:
    """Return settings by the names of their columns, nested ones by the path of their keys, without private ones."""
    flat = Fields()
    for name, value in settings.items():
        if above == SETTING and name[:1] == "_":
            continue
        path = f"{above}{name}"
        if isinstance(value, dict) and "value" in value and value.keys() <= {"desc", "value"}:
            value = value["value"]  # a setting of W&B
        flat |= flat_settings(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat
