"""At step 30 the training changes: by a flag in the function, or by a layer that is trained from then on."""

import torch
from problem import drawn, learn, loss_of, network, report


def train(run, session):
    """Train one run."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    noisy, unfreezes = False, run.options["kind"] == "unfreeze"
    model[0].requires_grad_(not unfreezes)
    for step in session.steps(model=model, optimizer=optimizer):
        if step == 30:
            noisy = not unfreezes
            model[0].requires_grad_(True)
        inputs, labels = drawn()
        if noisy:
            inputs = inputs + 0.5 * torch.randn_like(inputs)
        learn(model, optimizer, (inputs, labels))
        session.log(loss=loss_of(model, (inputs, labels)))
        report(session, model)
