"""An average of the weights, in three forms; what is reported is the average's loss."""

import copy

import torch
from problem import drawn, learn, network, report
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Shadow:
    """Keeps averages of tensors, and has no `state_dict`; it updates them every few steps."""

    def __init__(self, model, every):
        self.tensors = [tensor.detach().clone() for tensor in model.parameters()]
        self.module, self.every, self.count = copy.deepcopy(model), every, 0

    @torch.no_grad()
    def update_parameters(self, model):
        """Count a step, and average after every few of them."""
        self.count += 1
        if self.count % self.every == 0:
            for average, tensor in zip(self.tensors, model.parameters(), strict=True):
                average.lerp_(tensor, 0.1)

    def filled(self):
        """Return a model with the averages."""
        for parameter, average in zip(self.module.parameters(), self.tensors, strict=True):
            parameter.data.copy_(average)
        return self.module


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    if run.options["form"] == "torch":
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    else:
        average = Shadow(model, run.options["every"])
    for _ in session.steps(model=model, optimizer=optimizer, average=average):
        learn(model, optimizer, drawn())
        average.update_parameters(model)
        report(session, average.module if run.options["form"] == "torch" else average.filled())
