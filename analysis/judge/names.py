"""Columns: the meaning of a name by one table of synonyms, and the kind of its texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

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
METRIC = "metric"
"""Meaning of a column of a metric that does not say its data."""
SETTING = "config."
"""Prefix of the columns of settings that a format keeps apart from results."""
_STARTED_WITH = "config|params|hparams|hyperparameters|args"
_SETTINGS = re.compile(rf"\s*(?:{_STARTED_WITH})[./_]", re.IGNORECASE)
"""Prefixes of what a run was started with, in our readers, Ray Tune, Syne Tune, MLflow, Optuna and others."""
_PREFIXES = re.compile(rf"(?:{_STARTED_WITH}|metrics|summary|user_attrs|st)[./_]")
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
NAN = ("nan", "NaN", "Nan", "NAN")
"""Fields that say that a run diverged."""
_NO_NUMBERS = "none None NONE null Null NULL na NA n/a N/A <na> <NA> - — –"
NOTHING = ("", *_NO_NUMBERS.split())
"""Fields without a number; among texts, all but the empty one are names."""
_NUMBER = re.compile(r"(?ai)[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)")
MOST_SHOWN = 60
"""Characters of a name, and names, in a message."""


def plain(name: str) -> str:
    """Return a name in small letters, without a tool's prefix, with `_` between its words."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name.strip()).lower()
    start = _PREFIXES.match(text)
    return re.sub(r"\W+", "_", text[start.end() if start else 0 :]).strip("_")


def is_setting(name: str) -> bool:
    """Return whether a tool's prefix says that runs were started with the values of a column."""
    return _SETTINGS.match(name) is not None


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table: what its name says, and what its texts are."""

    name: str
    texts: pd.Series[str]

    @cached_property
    def words(self) -> Sequence[str]:
        """Words of the name."""
        return plain(self.name).split("_")

    @cached_property
    def kinds(self) -> set[str | None]:
        """Meanings of the name and of its words."""
        return {_MEANING.get(word) for word in (plain(self.name), *self.words)}

    @cached_property
    def synonym(self) -> str:
        """Entry of `SYNONYMS` that the name is, or that ends a path such as `optimizer.lr`; empty: none."""
        ends = (plain(self.name), plain(re.split(r"[./]", self.name)[-1]))
        return next((end for end in ends if _MEANING.get(end) in ROLES), "")

    @property
    def role(self) -> str:
        """Role that the name means; empty: none."""
        return _MEANING.get(self.synonym, "")

    @cached_property
    def split(self) -> str:
        """Split that a word of the name means; empty: none."""
        return next((split for split in SPLITS if split in self.kinds), "")

    @cached_property
    def measured(self) -> str:
        """Rest of the name beside the data, the seed and words such as `best`: `accuracy` of `best_val_acc`."""
        known = ("beside", "seed", *SPLITS)
        words = [word for word in self.words if _MEANING.get(word) not in known]
        return " ".join(FULL.get(word, word) for word in words if not word.isdigit())

    @cached_property
    def metric(self) -> str:
        """Known metric in the name; empty: there is none, or a further word makes it something else.

        As in `loss_weight`, `min_accuracy` or `num_correct`.
        """
        is_metric = _MEANING.get(self.measured) in ("higher", "lower")
        return self.measured if is_metric and not is_setting(self.name) else ""

    @cached_property
    def metric_word(self) -> str:
        """The one word of the name that is a metric, in full: `accuracy` of `mnist_acc`; empty: none, or several."""
        words = [word for word in self.words if _MEANING.get(word) in ("higher", "lower")]
        return FULL.get(words[0], words[0]) if len(words) == 1 else ""

    @cached_property
    def higher_is_better(self) -> bool | None:
        """Way in which the metric of the name is better; None: the name does not say."""
        ways = self.kinds & {"higher", "lower"}
        return ways == {"higher"} if len(ways) == 1 else None

    @cached_property
    def is_measurement(self) -> bool:
        """Whether the name says that a run had these values, and was not started with them."""
        has_word = self.metric or self.kinds & {"time", "about", "spread"}
        return bool(has_word) and not is_setting(self.name)

    @cached_property
    def meaning(self) -> str:
        """Role or split of the name, `METRIC` where it does not say its split; empty: it is no metric.

        Without a known metric it is one if it has the word of a split, and different numbers.
        """
        if self.role or self.kinds & {"time", "about", "spread"} or is_setting(self.name):
            return self.role
        may_be_metric = self.split and self.num_values > 1 and self.is_numeric
        return self.split or METRIC if self.metric or may_be_metric else ""

    @cached_property
    def num_values(self) -> int:
        """Number of distinct texts without the empty one."""
        return self.texts[self.texts.ne("")].nunique()

    @cached_property
    def is_numeric(self) -> bool:
        """Whether all fields that hold something are numbers, perhaps with the sign %."""
        return are_numbers(self.texts)


def is_number(text: str) -> bool:
    """Return whether a text is a number, NaN and infinity among them."""
    return _NUMBER.fullmatch(text) is not None


def are_numbers(texts: pd.Series[str]) -> bool:
    """Return whether all fields that hold something are numbers, perhaps with the sign %."""
    fields = pd.Series(texts.unique()).str.strip(" %")
    others = fields[pd.to_numeric(fields, errors="coerce").isna()]
    return bool(is_nothing(others).all())


def is_nothing(texts: pd.Series[str]) -> pd.Series[bool]:
    """Return which fields have no number; NaN is none."""
    return texts.isin([*NOTHING, *NAN])


def shortened(name: str) -> str:
    """Return a name for a message; of a very long one, its beginning."""
    return name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}..."


def listed(names: Iterable[str], most: int = MOST_SHOWN) -> str:
    """List names for a message; of very many, a part."""
    shown: Sequence[str] = list(map(shortened, names))
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
