"""The learning rate falls with each epoch of ten steps, by a counter in the function or by the session's step."""

import torch
from problem import drawn, learn, network, report


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    epoch, seen = 0, 0
    for step in session.steps(model=model, optimizer=optimizer):
        if run.options["by"] == "session":
            epoch = session.step // 10
        optimizer.param_groups[0]["lr"] = run.learning_rate * 0.7**epoch
        learn(model, optimizer, drawn())
        if run.options["by"] == "counter" and step % 10 == 0:
            epoch += 1
        if run.options.get("prints"):
            seen += 8
            print(f"step {step}: {seen} examples")
        report(session, model)
