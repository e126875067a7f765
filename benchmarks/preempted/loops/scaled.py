"""Mixed precision with a gradient scaler, whose scale doubles every ten steps."""

import torch
from problem import drawn, loss_of, network, report


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), run.learning_rate, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", growth_interval=10)
    for _ in session.steps(model=model, optimizer=optimizer, scaler=scaler):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, drawn())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        session.log(scale=scaler.get_scale())
        report(session, model)
