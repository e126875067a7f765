"""Optimizers by their names in `Protocol.optimizer`: torch's, and Lion; for the plain engine, or a row of a stack."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from lr_sweep.common.files import Fields
from lr_sweep.trainables.factors import matrix_rate_factor
from lr_sweep.trainables.models.classifier import Classifier
from lr_sweep.trainables.models.family import parameters_of
from lr_sweep.trainables.run import Protocol


def lion_(
    parameter: Tensor,
    gradient: Tensor,
    exp_avg: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> None:
    """Take a step of Lion in place (Chen et al. 2023, algorithm 2); all tensors have one shape."""
    update = exp_avg.lerp(gradient, 1 - beta1).sign_()
    parameter.mul_(1 - lr * weight_decay).add_(update, alpha=-lr)
    exp_avg.lerp_(gradient, 1 - beta2)


class Lion(Optimizer):
    """Lion (Chen et al. 2023): the sign of an interpolation between momentum and gradient."""

    def __init__(
        self, params: ParamsT, lr: float, beta1: float, beta2: float, weight_decay: float
    ) -> None:
        super().__init__(
            params, {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step of every parameter that has a gradient."""
        for group in self.param_groups:
            options = {name: group[name] for name in ("lr", "beta1", "beta2", "weight_decay")}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if not state:
                        state["exp_avg"] = torch.zeros_like(parameter)
                    lion_(parameter, parameter.grad, state["exp_avg"], **options)


def optimizers_of(protocol: Protocol, learning_rate: float, model: Classifier) -> list[Optimizer]:
    """Return what trains a model's trained parameters: one optimizer, or Muon and AdamW (see `hidden_matrices`).

    Each parameter group has a `rate_factor`, which is to multiply the learning rate at each step.
    """
    p, factor = protocol, matrix_rate_factor(protocol, model.output_layer.in_features)
    matrices = hidden_matrices(model) if p.optimizer == "muon" or factor != 1.0 else {}
    others = [parameter for name, parameter in model.trained_parameters() if name not in matrices]
    rest: Fields = {"params": others, "rate_factor": 1.0}
    hidden: Fields = {"params": list(matrices.values()), "rate_factor": factor}
    trained = [rest, hidden | {"weight_decay": p.weight_decay / factor}] if matrices else [rest]
    decay: Fields = {"lr": learning_rate, "weight_decay": p.weight_decay}
    adam: Fields = decay | {"betas": (p.adam_beta1, p.adam_beta2), "eps": p.adam_eps, "fused": True}
    match p.optimizer:
        case "adam":
            return [torch.optim.Adam(trained, **adam)]
        case "adamw":
            return [torch.optim.AdamW(trained, **adam)]
        case "sgd":
            return [torch.optim.SGD(trained, momentum=p.momentum, fused=True, **decay)]
        case "lion":
            return [Lion(trained, beta1=p.lion_beta1, beta2=p.lion_beta2, **decay)]
        case "muon":
            if not matrices:
                raise ValueError(
                    "optimizer muon trains matrices of attention and feedforward, and the run trains none"
                )
            # Updates as large as AdamW's (Liu et al. 2025), so that one learning rate serves both.
            muon = torch.optim.Muon(
                [hidden], momentum=p.muon_momentum, adjust_lr_fn="match_rms_adamw", **decay
            )
            return [muon, torch.optim.AdamW([rest], **adam)]


def hidden_matrices(model: Classifier) -> dict[str, nn.Parameter]:
    """Return the trained matrices of attention and feedforward by name, which Muon is for (Jordan et al. 2024)."""
    parts = model.parts()
    inner = {
        id(p) for part in ("attention", "feedforward") for p in parameters_of(parts.get(part, []))
    }
    return {name: p for name, p in model.trained_parameters() if id(p) in inner and p.ndim == 2}


def moments_of(protocol: Protocol) -> tuple[str, ...]:
    """Return the names of the tensors, each of a parameter's shape, that an optimizer but Muon keeps."""
    match protocol.optimizer:
        case "adam" | "adamw":
            return ("exp_avg", "exp_avg_sq")
        case "sgd":
            return ("momentum_buffer",) if protocol.momentum else ()
        case "lion":
            return ("exp_avg",)
    raise ValueError(f"the stacked engine has no {protocol.optimizer}")


def step_row(
    protocol: Protocol,
    row: Tensor,
    gradient: Tensor,
    moments: list[Tensor],
    steps: Tensor,
    *,
    lr: float,
    skip: Tensor,
    rate_factor: float = 1.0,
) -> None:
    """Take step `steps` of a run's row (P,) in place by torch's fused operations, unless `skip` is 1.

    Called directly: an optimizer with a parameter group for each run spends more time on the groups than a small
    model's step takes. `steps` and `skip` are float32 scalars on the device; gradient and `moments_of` are (P,), too.
    """
    p = protocol
    decay: Fields = {"lr": lr * rate_factor, "weight_decay": p.weight_decay / rate_factor}
    fused: Fields = decay | {"maximize": False, "found_inf": skip}
    match p.optimizer:
        case "adam" | "adamw":
            kernel = torch._fused_adam_ if p.optimizer == "adam" else torch._fused_adamw_
            first, second = moments
            fused |= {
                "beta1": p.adam_beta1,
                "beta2": p.adam_beta2,
                "eps": p.adam_eps,
                "amsgrad": False,
            }
            kernel([row], [gradient], [first], [second], [], [steps], **fused)
        case "sgd":
            # A first step differs only where the buffer is not 0 before it.
            fused |= {
                "momentum": p.momentum,
                "dampening": 0.0,
                "nesterov": False,
                "is_first_step": False,
            }
            torch._fused_sgd_([row], [gradient], moments, **fused)
        case "lion":
            before = row.clone(), moments[0].clone()
            lion_(row, gradient, moments[0], beta1=p.lion_beta1, beta2=p.lion_beta2, **decay)
            for changed, old in zip((row, moments[0]), before, strict=True):
                changed.copy_(torch.where(skip.bool(), old, changed))
