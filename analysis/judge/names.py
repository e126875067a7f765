"""The names and words by which columns, metrics and states are known, one table for all tools, and what they say."""

from __future__ import annotations

import re
from collections.abc import Sequence


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list."""
    return tuple(text.split())


NAMES = {
    meaning: words(text)
    for meaning, text in {
        "task": "task dataset data_set benchmark env environment env_name env_id",
        "model": "model model_name architecture arch backbone network",
        "variant": """variant method algorithm treatment algo optimizer optimiser optim approach strategy agent
            condition arm recipe exp_name experiment experiment_name optimizer_name configuration""",
        "learning_rate": """learning_rate lr learningrate base_lr init_lr initial_lr peak_lr max_lr start_lr
            base_learning_rate init_learning_rate initial_learning_rate peak_learning_rate max_learning_rate
            start_learning_rate learning_rate_init lr_init lr0 eta0""",
        "seed": "seed random_seed torch_seed random_state rng_seed repeat replicate rep fold",
        "step": """step _step global_step training_iteration iteration iter epoch trainer_global_step timesteps timestep
            env_steps timesteps_total time_total_timesteps num_timesteps tokens_seen samples_seen examples_seen
            images_seen consumed_tokens consumed_samples round communication_round generation frame frames
            env_frames""",
        "num_steps": "num_steps max_steps total_steps num_epochs max_epochs",
        "run": "run_id trial_id run id",
        "status": "status state trial_state run_status st_status",
        # Of rows: on which data they were measured, whether the run had diverged, a value of a metric that the column
        # does not name, which metric that is, which way it is better; on what a run was trained; and names that a
        # learning rate may have, as other settings.
        "split": "split data_split phase mode subset partition eval_split stage",
        "diverged": "diverged is_diverged has_diverged did_diverge exploded is_nan has_nan",
        "value": "value metric_value objective score result values_0",
        "metric": "metric metric_name metric_key metric_key_used objective_name monitor",
        "direction": "direction mode goal metric_mode objective_direction",
        "device": "device gpu gpu_name accelerator hardware",
        "rate symbol": "rate eta stepsize step_size",
    }.items()
}
"""What a column may mean, with the names that mean it, in small letters and without a tool's prefix."""
ROLES = words(
    "task model variant learning_rate seed step num_steps run status"
)  # that the user may give
SEVERAL = {
    "task",
    "model",
    "variant",
    "seed",
    "run",
    "nuisance",
    "ignored",
}  # that several columns may have together
SPLITS = {  # what else a column may mean, with the words in its name that mean it; the rest of it is the metric
    "validation": {*words("validation val valid dev eval evaluation")},
    "test": {"test", "heldout", "holdout"},
    "train": {"train", "training"},
}
SETTINGS = words(  # prefixes of what a run was started with, in MLflow, Optuna, Lightning, Ray Tune and W&B
    """hyperparameters.values. params. params_ param_ hparams. hparams/ config/ config. config_ hyperparameters. args.
    cfg. hps."""
)
PREFIXES = (*SETTINGS, *words("hparam/ metrics. metrics/ summary/ summary. user_attrs_"))
SYNONYMS = {
    "acc": "accuracy",
    "ppl": "perplexity",
    "err": "error",
    "rew": "reward",
    "returns": "return",
}
WORDS = {  # words of names by what they say of a column
    kind: frozenset(text.split())
    for kind, text in {
        # Metrics: which way they are better; which are no fractions; which are percents if they reach up to 100.
        "higher": """accuracy f1 auc auroc precision recall bleu iou miou dice r2 mcc ndcg reward return rouge map
            bacc ap auprc kappa psnr ssim gleu""",
        "lower": "loss error perplexity nll bpc bpb mse rmse mae wer cer fid entropy mape ece",
        "distance": "l1 l2",  # lower, in a metric's name alone: else these are penalties
        "either": "top1 top5",  # of accuracies, or of errors
        "gradient": "grad gradient",
        "negated": "neg negative minus",
        "error rate": "error wer cer",
        "unbounded": "reward return",
        "accuracy": "accuracy",
        "percent": "accuracy error",
        "loss": "loss nll perplexity bpb bpc",  # beside the metric that is judged, it shows that a run diverged
        # Words beside a metric's name: those of no meaning, of a mean unless one of the third follows, of its spread.
        "beside": "best final last epoch step at metrics metric",
        "mean": "mean avg",
        "of a mean": "squared absolute average iou precision",
        "deviation": "std stddev sd sem stderr stdev var variance ci ci95",
        "count": "count correct tn fp tp",
        "extreme": "min max",
        "before": "baseline initial before",
        "so far": "best final last",
        "runs": "seeds runs repeats replicates reps folds",  # how many a mean is of
        "time": "time times seconds duration runtime timestamp created date datetime s sec vram gb gib mb mib",
        "rate": "lr rate",  # of a learning rate, unless one of the next is there
        "no rate": """scheduler schedule decay warmup min end final ratio mult multiplier factor current last log log10
            steps step type gamma epoch epochs patience""",
        # Settings: of a loss or of data; repeats; what is tuned as the rate is; the size of a model or its data.
        "setting": """weight coef coefficient lambda scale function fn type size split dataset steps samples batches
            limit examples num ratio reg""",
        "repeat": "seed fold repeat replicate rep",
        "tuned": """bs batch batchsize wd decay reg regularization l2 dropout momentum beta beta1 beta2 gamma warmup
            clip grad eps epsilon label_smoothing smoothing steps exploration entropy tau alpha lambda temperature""",
        "size": "n d params parameters tokens width depth dim hidden layers layer size heads scale",
        # Where a run was, or how it went, and not how it was started; and its name.
        "about": """host hostname node gpu device user note notes comment tags path logdir url pid ip commit version
            sweep dir epoch decision message traceback job uuid name index worker rank log file checkpoint run trial
            converged diverged ran elapsed""",
        "label": "name run trial tag label",
        "candidate": "description desc change idea hypothesis folder name label",  # that was tried
        "up": "maximize maximise max higher",
        "down": "minimize minimise min lower",
    }.items()
}
WORDS["summary"] = WORDS["mean"] | WORDS["deviation"] | WORDS["count"] | WORDS["extreme"] | {"rank"}
_STATES = {
    "complete": """complete completed finished terminated done success succeeded successful ok keep kept discard
        discarded""",
    "diverged": "diverged nan",
    "failed": """failed fail crash crashed killed error preempted cancelled timeout canceled timed_out failure errored
        oom out_of_memory node_fail""",
    "stopped": "stopped pruned earlystopped early_stopped",
    "missing": "missing running inprogress in_progress pending scheduled paused preempting waiting queued created",
}
STATUS = {
    word: status for status, text in _STATES.items() for word in words(text)
}  # by how tools name it
VERDICTS = {
    "keep",
    "kept",
    "discard",
    "discarded",
}  # of an agent's log: other words beside them are verdicts, too
JOIN = "+"  # joins the names of columns that mean one thing together
MOST_LISTED = 60  # names, and characters of each, in a message


def plain(name: str) -> str:
    """Return a name in small letters, without a tool's prefix, with `_` between words."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name.strip()).lower()
    text = next((text.removeprefix(prefix) for prefix in PREFIXES if text.startswith(prefix)), text)
    return re.sub(r"\W+", "_", text).rstrip("_") or text


def is_named(name: str, *roles: str) -> bool:
    """Return whether a name is one of those that have some meanings; of none: of any that the user may give."""
    text = plain(name)
    return any(text in NAMES[role] for role in roles or ROLES)


def words_of(name: str) -> list[str]:
    """Return the words of a name."""
    return [word for word in plain(name).split("_") if word]


def has_word(name: str, *kinds: str) -> bool:
    """Return whether a word of some kinds is in a name."""
    return any(SYNONYMS.get(word, word) in WORDS[kind] for word in words_of(name) for kind in kinds)


def is_setting(name: str) -> bool:
    """Return whether a tool says of a column that runs were started with its values."""
    return name.strip().lower().startswith(SETTINGS)


def is_rate(name: str) -> bool:
    """Return whether a learning rate is in a name, and nothing that makes it another number."""
    return has_rate_word(name) and not has_word(name, "no rate") and not has_unit(name)


def has_rate_word(name: str) -> bool:
    """Return whether a word of learning rates is in a name, whatever else is."""
    return any(
        f"_{word}_" in f"_{plain(name)}_" for word in ("lr", "learning_rate", "learningrate")
    )


def has_unit(name: str) -> bool:
    """Return whether the values of a column are not to be taken as they are: those of `lr (x1e-3)`."""
    return re.search(r"%|percent|10\^|10\*\*|\de[+-]?\d", name, re.IGNORECASE) is not None


def is_result(name: str) -> bool:
    """Return whether a column's name is that of a metric or of a time; one that weighs a loss is a setting."""
    return (is_known(name) and not has_word(name, "setting")) or has_word(name, "time")


def is_metric(name: str) -> bool:
    """Return whether a column may be a metric's, and not how it spreads, or a time."""
    known = (split_of(name) or is_known(name)) and words_of(name)[-1] not in NAMES["step"]
    return bool(known) and not (
        has_word(name, "deviation", "count", "extreme", "time", "setting") or is_setting(name)
    )


def split_of(name: str) -> str:
    """Return which data a column was measured on, by its name; empty: the name does not say."""
    return next((split for split, meaning in SPLITS.items() if meaning & {*words_of(name)}), "")


def measured(name: str) -> str:
    """Return the metric in a column's name: `accuracy` of `best_val_acc`; of names joined by `+` what all have."""
    means = frozenset() if has_word(name, "of a mean") else WORDS["mean"]
    known = WORDS["beside"].union(means, *SPLITS.values())
    of_all = set.intersection(*(set(words_of(part)) for part in name.split(JOIN)))
    return " ".join(
        SYNONYMS.get(word, word) for word in words_of(name.split(JOIN)[0]) if word in of_all - known
    )


def is_known(metric: str) -> bool:
    """Return whether the words of a metric's name say what it is, if not always which way it is better."""
    return has_word(metric, "higher", "lower", "either") and not has_word(metric, "negated")


def is_higher_better(metric: str) -> bool | None:
    """Return which way a metric is better, by the words of its name; None: they do not say."""
    is_lower = has_word(metric, "lower", "distance")
    return (
        None
        if has_word(metric, "negated") or not (is_lower or has_word(metric, "higher"))
        else not is_lower
    )


def agree(one: str, other: str) -> bool:
    """Return whether two names of metrics may be of one; `loss` is any that is better when lower."""
    are_alike = kinds(one) & kinds(other) or {"loss"} in (kinds(one), kinds(other))
    return bool(are_alike) and is_higher_better(one) is is_higher_better(other)


def kinds(metric: str) -> set[str]:
    """Return the words of a metric's name that are known."""
    return {SYNONYMS.get(word, word) for word in words_of(metric)} & (
        WORDS["higher"] | WORDS["lower"]
    )


def listed(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """List names of columns, for messages; of very many, and of very long ones, a part."""
    shown = [
        name if len(name) <= MOST_LISTED else f"{name[:MOST_LISTED]}..." for name in names[:most]
    ]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")
