"""The meaning of a column's name: one table of synonyms, and how a tool's prefixes are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SYNONYMS = {
    "task": "task dataset env env_id env_name",
    "model": "model model_name arch architecture backbone",
    "variant": "variant method algorithm algo optimizer optim opt condition",
    "learning_rate": """learning_rate lr base_lr init_lr initial_lr start_lr peak_lr max_lr lr0 base_learning_rate
        initial_learning_rate learning_rate_init peak_learning_rate max_learning_rate""",
    "seed": "seed random_seed random_state repeat replicate fold",
    "step": "step global_step training_iteration iteration iter epoch timesteps round",
    "run": "run_id trial_id",
    "status": "status state trial_state run_status diverged is_diverged",
    # Words of a name: the data that were measured, the metric and which way it is better, times, what tools write of a
    # run beside its settings, the spread of several values, and words of no meaning.
    "validation": "validation val valid dev eval",
    "test": "test heldout holdout",
    "train": "train training",
    "higher": """accuracy acc f1 auc auroc ap map precision recall bleu rouge iou miou dice r2 mcc ndcg
        reward return""",
    "lower": "loss error perplexity ppl nll bpb bpc mse rmse mae wer cer fid",
    "time": "time seconds duration runtime timestamp datetime date memory",
    "about": "pid hostname node_ip logdir done artifact_uri number decision",
    "spread": "std stderr sem deviation",
    "beside": "best final last top1",
}
"""Names and words by what they mean, in small letters and without a tool's prefix."""
ROLES = ("variant", "model", "task", "learning_rate", "seed", "run", "step", "status")
SPLITS = ("validation", "test", "train")
SETTING = "config."
"""Prefix of the columns of settings that a format keeps apart from results."""
SETTINGS = (
    SETTING,
    "config/",
    "config_",
    "params.",
    "params_",
    "hparams.",
    "hyperparameters.",
    "args.",
)
"""Prefixes of what a run was started with, in our readers, Ray Tune, Syne Tune, MLflow, Optuna and others."""
PREFIXES = (*SETTINGS, "st_", "metrics.", "metrics/", "user_attrs_", "summary.")
FULL = {"acc": "accuracy", "ppl": "perplexity", "err": "error"}
"""Abbreviations of metrics that a report writes in full."""
_MEANING = {name: meaning for meaning, text in SYNONYMS.items() for name in text.split()}
_STATES = {
    "complete": """complete completed finished terminated done success succeeded ok keep
        kept discard discarded""",
    "diverged": "diverged nan true",
    "failed": "failed fail failure crash crashed killed error preempted cancelled timeout oom",
    "stopped": "stopped pruned early_stopped",
    "missing": "missing running inprogress pending scheduled paused waiting queued created",
}
STATUS = {word: status for status, text in _STATES.items() for word in text.split()}
"""Outcome of a run by the word that a tool writes; `true` is of a column that says whether runs diverged."""
STATUS["false"] = "complete"
MOST_SHOWN = 60
"""Characters of a name, and names, in a message."""


def words_of(*meanings: str) -> list[str]:
    """Return the entries of `SYNONYMS` with some meanings."""
    return [word for meaning in meanings for word in SYNONYMS[meaning].split()]


def plain(name: str) -> str:
    """Return a name in small letters, without a tool's prefix, with `_` between its words."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name.strip()).lower()
    prefix = next(filter(text.startswith, PREFIXES), "")
    return re.sub(r"\W+", "_", text.removeprefix(prefix)).strip("_")


def is_setting(name: str) -> bool:
    """Return whether a tool's prefix says that runs were started with the values of a column."""
    return name.strip().lower().startswith(SETTINGS)


def synonym_of(name: str) -> str:
    """Return the name of `SYNONYMS` that a name is, or that ends a path such as `optimizer.lr`; empty: none."""
    ends = (plain(name), plain(re.split(r"[./]", name)[-1]))
    return next((end for end in ends if _MEANING.get(end) in ROLES), "")


def role_of(name: str) -> str:
    """Return which of `ROLES` a name means; empty: none."""
    return _MEANING.get(synonym_of(name), "")


def measured(name: str) -> str:
    """Return what a name says beside the data, the seed, and words such as `best`: `accuracy` of `best_val_acc`."""
    known = ("beside", "seed", *SPLITS)
    words = [word for word in plain(name).split("_") if _MEANING.get(word) not in known]
    words = [word for word in words if not word.isdigit()]
    return " ".join(FULL.get(word, word) for word in words)


def metric_of(name: str) -> str:
    """Return the known metric in a name; empty: there is none, or a further word makes it something else.

    As in `loss_weight`, `min_accuracy` or `num_correct`.
    """
    metric = measured(name)
    is_metric = _MEANING.get(metric) in ("higher", "lower") and not is_setting(name)
    return metric if is_metric else ""


def split_of(name: str) -> str:
    """Return which of `SPLITS` the words of a name mean; empty: none."""
    kinds = {_MEANING.get(word) for word in plain(name).split("_")}
    return next((split for split in SPLITS if split in kinds), "")


def has_word(name: str, kind: str) -> bool:
    """Return whether a name, or a word of it, means a kind of `SYNONYMS`."""
    return _MEANING.get(plain(name)) == kind or any(
        _MEANING.get(word) == kind for word in plain(name).split("_")
    )


def is_higher_better(metric: str) -> bool | None:
    """Return which way a metric is better; None: its name does not say."""
    kinds = {_MEANING.get(word) for word in plain(metric).split("_")} & {"higher", "lower"}
    return kinds == {"higher"} if len(kinds) == 1 else None


def is_measurement(name: str) -> bool:
    """Return whether a name says that a run had these values, and was not started with them."""
    kinds = ("time", "about", "spread")
    known = bool(metric_of(name)) or any(has_word(name, kind) for kind in kinds)
    return known and not is_setting(name)


def shortened(name: str) -> str:
    """Return a name for a message; of a very long one, its beginning."""
    return name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}..."


def listed(names: Iterable[str], most: int = MOST_SHOWN) -> str:
    """List names for a message; of very many, a part."""
    shown: Sequence[str] = list(map(shortened, names))
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
