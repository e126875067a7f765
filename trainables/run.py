"""What defines a run: everything that can change its numbers, and the id hashed from it."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Interval

from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.common.limits import Count, Dimension, Fraction, NotNegative, Positive, Steps
from lr_sweep.datasets.task import options_content

from .parts import Initialisation, sorted_parts

PROTOCOL_VERSION = 1
"""Raised when the code changes the numbers of a run whose record did not change."""

Precision = Literal["fp32", "tf32", "bf16"]
OptimizerName = Literal["adam", "adamw", "sgd", "lion", "muon"]
Schedule = Literal["constant", "cosine", "warmup-stable-decay"]
EngineName = Literal["stacked", "plain", "own"]
Attention = Literal["written", "blocked"]
Parametrization = Literal["standard", "mup"]

QUERY_BLOCK = 128
"""Queries of a block of `trainables.models.gpt2`; its masks depend on it."""
BLOCKED_FROM_TOKENS = 512
"""Tokens from which GPT-2's attention is blocked where a study leaves it open."""

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class BodySize:
    """A backbone by its size; each family of `trainables.models` has a subclass with its options."""

    family: ClassVar[str]
    """Its name in `trainables.models.FAMILIES`."""
    layers: Annotated[int, Interval(ge=1, le=1000)]
    """Transformer blocks, or recurrent layers."""
    width: Dimension
    """Hidden size D."""

    later: ClassVar[ReadFields] = MappingProxyType({})
    """Options that came after runs were recorded, with the values that held before."""


@dataclass(frozen=True, kw_only=True)
class ModelSize(BodySize):
    """A GPT-2 architecture (Radford et al. 2019); `gpt2` is 12 layers, 12 heads, width 768."""

    family: ClassVar[str] = "gpt2"
    heads: Dimension
    """Attention heads in each layer; divides `width`."""
    positions: Dimension = 1024
    """Rows of the position table. Tasks with more tokens get further rows (`Protocol.position_std`)."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a run is trained and evaluated. Defaults: Rothermel et al. 2021 section 3, else Lu et al.'s public code."""

    batch_size: Count = 8
    """Examples a gradient step (Rothermel et al. 2021, section 3)."""
    adam_beta1: Fraction = 0.9
    """Adam's decay of the mean; torch's default (Lu et al. 2021, appendix)."""
    adam_beta2: Fraction = 0.999
    """Adam's decay of the variance; torch's default (Lu et al. 2021, appendix)."""
    adam_eps: Positive = 1e-8
    """Added to Adam's denominator; torch's default (Lu et al. 2021, appendix)."""
    gradient_clip_norm: Positive | None = 1.0
    """Largest gradient norm; null: no clipping. In Lu et al.'s code, in neither paper."""
    dropout: Fraction = 0.1
    """Dropout of embeddings, attention and residuals (Hugging Face default)."""
    input_dropout: Fraction = 0.1
    """Dropout after the input layer; real-valued tokens only (Lu et al.'s code)."""
    input_gain: Positive = 1.41
    """Gain of the input layer's orthogonal initialisation; real-valued tokens only (Lu et al.'s code)."""
    random_init: Literal["reference-2021", "library"] = "reference-2021"
    """`reference-2021`: every weight N(0, 0.02); `library`: newer transformers, `c_proj` scaled by 1/sqrt(2 layers)."""
    position_std: NotNegative = 0.02
    """Standard deviation of position rows beyond the model's own (ListOps: 2000 > 1024). The papers don't say."""
    readout: Literal["final_position"] = "final_position"
    """Where the output layer reads: the last position, even padding. Run ids have it; there is no other."""
    evaluate_every: Steps = 2000
    """Gradient steps between evaluations; candidates for early stopping. Step budgets are multiples of it."""
    train_examples_evaluated: Count = 2000
    """First training examples on which train accuracy is measured."""
    attention: Attention | None = None
    """GPT-2's attention with dropout; null: by the number of tokens T in a study (`attention_for`). `written`
    keeps T x T weights and masks; `blocked` has other masks and computes both again, going back. Null in a run:
    `written`, so that its id stays."""
    test_evaluated: Literal["always", "best"] = "always"
    """When test data are evaluated; `best`: where validation is the best so far."""
    precision: Precision = "fp32"
    """Number format of matrix products; `tf32` needs a GPU, `bf16` is autocast's. All else is fp32."""
    optimizer: OptimizerName = "adam"
    """Optimizer of all trained parameters; `muon` trains the body's matrices, and AdamW the rest."""
    weight_decay: NotNegative = 0.0
    """Weight decay of all trained parameters; Adam and SGD add it to the gradient, the others decouple it, as torch."""
    momentum: Fraction = 0.9
    """SGD's momentum; 0: none."""
    lion_beta1: Fraction = 0.9
    """Lion's decay in the update (Chen et al. 2023, section 4.1)."""
    lion_beta2: Fraction = 0.99
    """Lion's decay of the momentum (Chen et al. 2023, section 4.1)."""
    muon_momentum: Fraction = 0.95
    """Muon's momentum; torch's default (Jordan et al. 2024)."""
    parametrization: Parametrization = "standard"
    """`mup`: starts and learning rates follow the width (Yang et al. 2022); GPT-2 with adam, adamw or lion."""
    base_width: Dimension = 64
    """Width at which `mup` is the same as `standard`."""
    schedule: Schedule = "constant"
    """Learning rate after the warm-up (`trainables.factors.rate_factor`)."""
    warmup_steps: Annotated[int, Interval(ge=0, le=10**12)] = 0
    """Steps in which the learning rate rises linearly from 0."""
    decay_fraction: Annotated[float, Interval(gt=0, le=1)] = 0.2
    """Last share of the steps, in which `warmup-stable-decay` decays (Hägele et al. 2024, section 3)."""

    gone: ClassVar[ReadFields] = MappingProxyType(
        {"lora_rank": 8, "lora_alpha": 8.0, "muon_rate_ratio": 1.0, "base_heads": None}
    )
    """Options of earlier versions, with the values that changed nothing: recorded studies have every option."""
    later: ClassVar[tuple[str, ...]] = (
        *("precision", "optimizer", "weight_decay", "momentum", "lion_beta1", "lion_beta2"),
        *("muon_momentum", "schedule", "warmup_steps", "decay_fraction", "test_evaluated"),
        *("attention", "parametrization", "base_width"),
    )
    """Options that came after runs were recorded; their defaults held before (`options_content`)."""


class AnyRun(ABC):
    """What all runs have: what their ids are hashed from, and what the record says of each."""

    task: str
    data_checksum: str
    weights_checksum: str | None
    learning_rate: float
    seed: int

    @abstractmethod
    def content(self) -> Fields:
        """Return everything that can change the run's numbers, as plain JSON values."""

    @property
    @abstractmethod
    def steps_between_evaluations(self) -> int:
        """Gradient steps from one evaluation to the next."""

    def canonical_json(self) -> str:
        """Return `content()` as text that is the same for equal runs."""
        return _CANONICAL.encode(self.content())

    @property
    def run_id(self) -> str:
        """16 hex digits of the sha256 of `canonical_json()`."""
        return id_of(self.content())

    def sibling(self, learning_rate: float, seed: int) -> Self:
        """Return the run that differs in learning rate and seed alone."""
        dataclass_run: Any = self  # each kind of run is one
        sibling: Self = replace(dataclass_run, learning_rate=learning_rate, seed=seed)
        return sibling

    def sibling_ids(self) -> Callable[[float, int], str]:
        """Return the ids of siblings as a function of rate and seed; writing out the rest again is most of the work."""
        parts = {name: _CANONICAL.encode(value) for name, value in sorted(self.content().items())}

        def run_id(learning_rate: float, seed: int) -> str:
            parts["learning_rate"] = _CANONICAL.encode(learning_rate)
            parts["seed"] = _CANONICAL.encode(seed)
            entries = [f'"{name}":{part}' for name, part in parts.items()]
            return _hashed("{" + ",".join(entries) + "}")

        return run_id


@dataclass(frozen=True, kw_only=True)
class Run(AnyRun):
    """One (task, model, variant, learning rate, seed) with every option that can change its numbers.

    Not in it, because they change no number: resources, names, and the step budget of a constant schedule.
    """

    task: str
    task_options: Fields
    """Every option of the task, defaults filled in."""
    data_checksum: str
    """Checksum of the task's examples (`Task.checksum`)."""
    model: BodySize
    initialisation: Initialisation
    weights_checksum: str | None
    """sha256 of the pretrained `model.safetensors`; None for `random`."""
    trained: tuple[str, ...]
    """Names of trained parts; see `trainables.parts.PARTS`. Sorted here: their order changes no number."""
    learning_rate: float
    """Learning rate at the schedule's highest."""
    seed: int
    """Keys every random choice together with a purpose and a step."""
    schedule_steps: int | None = None
    """The step budget where the schedule depends on it (`trainables.factors.depends_on_budget`), else None."""
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trained", sorted_parts(self.trained))

    def content(self) -> Fields:
        """Return the run as plain JSON values. Fields that came later are left out at their defaults: ids stay."""
        before = self.model.later
        model = {
            name: value
            for name, value in vars(self.model).items()
            if (name, value) not in before.items()
        }
        content = dict(vars(self)) | {
            "task_options": dict(self.task_options),
            "model": model | ({} if self.model.family == "gpt2" else {"family": self.model.family}),
            "trained": list(self.trained),
            "protocol": options_content(self.protocol),
            "protocol_version": PROTOCOL_VERSION,
        }  # not by `asdict`, which takes six times as long: a plan hashes every run
        if self.schedule_steps is None:
            del content["schedule_steps"]
        return content

    @property
    def steps_between_evaluations(self) -> int:
        """Gradient steps from one evaluation to the next."""
        return self.protocol.evaluate_every


def engine_for(model: BodySize, wanted: EngineName) -> EngineName:
    """Return the engine that trains a model: the wanted one, but only GPT-2 has a stacked version."""
    return wanted if model.family == "gpt2" else "plain"


def engine_of(run: AnyRun, wanted: EngineName) -> EngineName:
    """Return the engine that trains a run; only the plain one reads features and has Muon."""
    if not isinstance(run, Run):
        return "own"
    if run.protocol.optimizer == "muon" or reads_features(run):
        return "plain"
    return engine_for(run.model, wanted)


def reads_features(run: Run) -> bool:
    """Return whether only the output layer is trained, without dropout: see `trainables.plain.evaluation`."""
    has_dropout = run.protocol.dropout or run.protocol.input_dropout
    return run.trained == ("output",) and not has_dropout


def attention_for(protocol: Protocol, model: BodySize, num_tokens: int) -> Attention | None:
    """Return a run's `Protocol.attention`; without dropout torch's own attention is linear in memory and needs none."""
    if model.family != "gpt2" or not protocol.dropout or protocol.attention == "written":
        return None
    return protocol.attention or ("blocked" if num_tokens >= BLOCKED_FROM_TOKENS else None)


def gpt2_size(run: Run) -> ModelSize:
    """Return the size of a run's GPT-2, which the run must have."""
    assert isinstance(run.model, ModelSize), f"a GPT-2, got a {run.model.family}"
    return run.model


def id_of(content: ReadFields) -> str:
    """Return the id of the run with this content: 16 hex digits of a sha256."""
    return _hashed(_CANONICAL.encode(content))


def _hashed(canonical_json: str) -> str:
    return hashlib.sha256(canonical_json.encode()).hexdigest()[:16]
