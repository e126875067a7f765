"""The names and words by which columns, metrics and states are known: one table for all tools."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ROLES = {
    "task": _words("task dataset data_set benchmark env environment env_name env_id"),
    "model": _words("model model_name architecture arch backbone network"),
    "variant": _words(
        """variant method algorithm treatment algo optimizer optimiser optim approach strategy agent condition arm
        recipe exp_name experiment experiment_name optimizer_name"""
    ),
    "learning_rate": _words(
        """learning_rate lr learningrate base_lr init_lr initial_lr peak_lr max_lr start_lr base_learning_rate
        init_learning_rate initial_learning_rate peak_learning_rate max_learning_rate start_learning_rate
        learning_rate_init lr_init lr0 eta0"""
    ),
    "seed": _words("seed random_seed random_state rng_seed repeat replicate rep fold"),
    "step": _words(
        """step _step global_step training_iteration iteration iter epoch trainer_global_step timesteps timestep
        env_steps timesteps_total time_total_timesteps num_timesteps"""
    ),
    "num_steps": _words("num_steps max_steps total_steps num_epochs max_epochs"),
    "run": _words("run_id trial_id run id"),
    "status": _words("status state trial_state run_status"),
}
"""What a column may mean, with the names that mean it, in small letters and without a tool's prefix."""
GIVEN_ROLES = (*ROLES, "nuisance", "ignored")
"""Meanings that the user may give, too: `nuisance`: settings that are tuned as the rate is; `ignored`: no settings."""
SEVERAL = {"task", "model", "variant", "seed", "run", "nuisance", "ignored"}
"""Meanings that several columns may have together."""
REPEATS = {"seed", "fold", "repeat", "replicate", "rep"}
"""Words of columns that number repeats."""
SPLITS = {
    "validation": {*_words("validation val valid dev eval evaluation")},
    "test": {"test", "heldout", "holdout"},
    "train": {"train", "training"},
}
"""What else a column may mean, with the words in its name that mean it; the rest of the name is the metric."""
SPLIT_NAMES = _words("split data_split phase mode subset partition eval_split stage")
"""Columns that say on which data a row was measured."""
DIVERGED = _words("diverged is_diverged has_diverged did_diverge exploded is_nan has_nan")
"""Columns that say of each row whether the run had diverged."""
RATE_WORDS = ("lr", "learning_rate", "learningrate")
"""A column of numbers with one of these in its name may be the learning rate, if none of `NO_RATE` is."""
NO_RATE = {
    *_words("scheduler schedule decay warmup min end final ratio mult multiplier factor"),
    *_words("current last log log10 steps step type gamma epoch epochs patience"),
}
SETTINGS = _words("params. params_ hparams. hparams/ config/ config. hyperparameters.")
"""Before the names of what a run was started with, of MLflow, Optuna, Lightning, Ray Tune and W&B."""
PREFIXES = (*SETTINGS, *_words("hparam/ metrics. metrics/ summary/ summary. user_attrs_"))
PASSED_OVER = {*_words("best final last epoch step at metrics metric")}
"""Words in the name of a metric's column that are no part of the metric's name."""
MEANS, OF_MEANS = {"mean", "avg"}, {"squared", "absolute", "average", "iou", "precision"}
"""Words that are none either, unless one of the others follows."""
DEVIATIONS = {*_words("std sd sem stderr stdev var variance ci ci95")}
SPREADS = DEVIATIONS | {"count", "min", "max", "correct"}
"""With one of these a column is no metric but its spread, or a count."""
SETTING_WORDS = {*_words("weight coef coefficient lambda scale function fn type size split dataset")}
"""With one of these a column is a setting, as `aux_loss_weight` and `train_size` are."""
TIMES = {*_words("time times seconds duration runtime timestamp created date datetime s sec")}
"""Words of a time, which is a result."""
WORDS = {"acc": "accuracy", "ppl": "perplexity", "err": "error", "rew": "reward", "returns": "return"}
HIGHER = {
    *_words("accuracy f1 auc auroc precision recall bleu iou miou dice r2 mcc ndcg reward return top1 top5 rouge map"),
    *_words("bacc ap auprc kappa psnr ssim"),
}
LOWER = {*_words("loss error perplexity nll bpc bpb mse rmse mae wer cer fid entropy mape ece")}
FRACTIONS = HIGHER - {"reward", "return"} | {"error", "wer", "cer"}
"""Metrics whose values are fractions, shown in percent, if all are from 0 to 1."""
NEGATED = {"neg", "negative", "minus"}
"""With one of these a metric's name does not say which way it is better: `neg_mean_squared_error`."""
PERCENTS = {"accuracy", "error"}
"""Metrics whose values are percents if they reach up to 100."""
LOSSES = {"loss", "nll", "perplexity"}
"""Beside the metric they show that a run diverged."""
VALUES = _words("value metric_value objective score result values_0")
"""Names of a column that was optimised, and that says not what it is."""
METRIC_NAMES = _words("metric metric_name metric_key metric_key_used objective_name monitor")
"""Columns that say of which metric `VALUES` are."""
DIRECTIONS = _words("direction mode goal metric_mode objective_direction")
"""Columns that say which way a metric is better, in `UP` or `DOWN`."""
UP, DOWN = {*_words("maximize maximise max higher")}, {*_words("minimize minimise min lower")}
ABOUT_RUNS = {
    *_words("host hostname node gpu device user note notes comment tags path logdir url pid ip commit version sweep"),
    *_words("dir epoch message traceback job uuid name index worker rank log file checkpoint run trial converged"),
    "diverged",
}
"""Words of columns that say where a run was, or how it went, and not how it was started."""
_STATES = {
    "complete": "complete completed finished terminated done success succeeded successful ok",
    "diverged": "diverged nan",
    "failed": """failed fail crashed killed error preempted cancelled timeout canceled timed_out failure errored oom
        out_of_memory node_fail""",
    "stopped": "stopped pruned earlystopped early_stopped",
    "missing": "missing running pending scheduled paused preempting waiting queued created",
}
STATUS = {word: status for status, text in _STATES.items() for word in _words(text)}
"""How tools name the state of a run, in small letters."""
STATUS_PREFIXES = _words("trialstate. runstatus. state. status.")
"""Before the names of states, where an enumeration was written as text."""
