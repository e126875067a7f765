"""A schedule of torch: every ten steps, or where the loss stops falling; it is passed, or forgotten."""

import torch
from problem import drawn, learn, loss_of, network, report
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    if run.options["kind"] == "plateau":
        schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    else:
        schedule = StepLR(optimizer, 10, gamma=0.5)
    saved = {"schedule": schedule} if run.options["passed"] else {}
    for _ in session.steps(model=model, optimizer=optimizer, **saved):
        batch = drawn()
        learn(model, optimizer, batch)
        metrics = [loss_of(model, batch).item()] if run.options["kind"] == "plateau" else []
        schedule.step(*metrics)
        report(session, model)
