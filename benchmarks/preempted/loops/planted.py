"""Training loops that are killed: what each keeps beside model and optimizer, passed to the session or forgotten."""

import copy
import os
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from problem import INPUTS, LABELS, batches, drawn, learn, loss_of, network, report
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset


def built(run):
    """Return a model and its optimizer."""
    model = network()
    return model, torch.optim.AdamW(model.parameters(), run.learning_rate)


def accumulate(run, session):
    """Add gradients up over several steps before the optimizer takes one."""
    every = run.options["every"]
    model, optimizer = built(run)
    for step in session.steps(model=model, optimizer=optimizer):
        (loss_of(model, drawn()) / every).backward()
        if step % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        report(session, model)


def accelerated(run, session):
    """Let Accelerate add gradients up over four steps; its loader reads a batch ahead."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    data = DataLoader(TensorDataset(INPUTS, LABELS), 8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(*built(run), data)
    steps = session.steps(model=model, optimizer=optimizer, loader=loader, accelerator=accelerator)
    for _, batch in zip(steps, batches(loader), strict=False):
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
            optimizer.zero_grad()
        report(session, model)


def ranks(run, session):
    """Add gradients up over four steps in two processes, which average one step in four."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), run.learning_rate)
    torch.manual_seed(100 * run.seed + int(os.environ["RANK"]))
    for step in session.steps(model=model, optimizer=optimizer):
        with nullcontext() if step % 4 == 0 else model.no_sync():
            loss_of(model, drawn()).backward()
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        report(session, model.module)
    dist.destroy_process_group()


def scaled(run, session):
    """Train in mixed precision with a gradient scaler, whose scale doubles every ten steps."""
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


def averaged(run, session):
    """Report the loss of an average of the weights, in three forms."""
    model, optimizer = built(run)
    if run.options["form"] == "torch":
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    else:
        average = Shadow(model, run.options["every"])
    for _ in session.steps(model=model, optimizer=optimizer, average=average):
        learn(model, optimizer, drawn())
        average.update_parameters(model)
        report(session, average.module if run.options["form"] == "torch" else average.filled())


def schedule(run, session):
    """Follow a schedule of torch: every ten steps, or where the loss stops falling."""
    model, optimizer = built(run)
    if run.options["kind"] == "plateau":
        rates = ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    else:
        rates = StepLR(optimizer, 10, gamma=0.5)
    saved = {"schedule": rates} if run.options["passed"] else {}
    for _ in session.steps(model=model, optimizer=optimizer, **saved):
        batch = drawn()
        learn(model, optimizer, batch)
        metrics = [loss_of(model, batch).item()] if run.options["kind"] == "plateau" else []
        rates.step(*metrics)
        report(session, model)


def epochs(run, session):
    """Let the learning rate fall with each epoch of ten steps, by a counter here or by the session's step."""
    model, optimizer = built(run)
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


def switch(run, session):
    """Change at step 30: by a flag in the function, or by a layer that is trained from then on."""
    model, optimizer = built(run)
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


def target(run, session):
    """Learn the outputs of a network that follows the trained one every ten steps."""
    model, optimizer = built(run)
    slow = copy.deepcopy(model).requires_grad_(False)
    saved = {"target": slow} if run.options["passed"] else {}
    for step in session.steps(model=model, optimizer=optimizer, **saved):
        inputs, labels = drawn()
        optimizer.zero_grad()
        distance = (model(inputs) - slow(inputs)).square().mean()
        (loss_of(model, (inputs, labels)) + distance).backward()
        optimizer.step()
        if step % 10 == 0:
            slow.load_state_dict(model.state_dict())
        report(session, model)


def counters(run, session):
    """Keep numbers of the training in a dict, which decide how much noise a batch has."""
    model, optimizer = built(run)
    numbers = {"seen": 0, "best": float("inf"), "history": []}
    saved = {"counters": numbers} if run.options["passed"] else {}
    for _ in session.steps(model=model, optimizer=optimizer, **saved):
        inputs, labels = drawn()
        noise = 0.1 * (numbers["seen"] % 5)
        learn(model, optimizer, (inputs + noise * torch.randn_like(inputs), labels))
        loss = loss_of(model, (inputs, labels)).item()
        numbers["seen"] += 1
        numbers["best"] = min(numbers["best"], loss)
        numbers["history"].append(loss)
        session.log(best=numbers["best"])
        report(session, model)


def generators(run, session):
    """Draw batches by generators of torch and of numpy that belong to the function."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), run.learning_rate)
    order, noise = torch.Generator().manual_seed(3), np.random.default_rng(4)
    for _ in session.steps(model=model, optimizer=optimizer, order=order, noise=noise):
        batch = torch.randint(len(INPUTS), (8,), generator=order)
        inputs = INPUTS[batch] + torch.from_numpy(noise.normal(0, 0.1, (8, 8))).float()
        learn(model, optimizer, (inputs, LABELS[batch]))
        report(session, model)


def statistics(run, session):
    """Keep running means of the inputs in a tensor that is not passed."""
    model, optimizer = built(run)
    means = torch.zeros(8)
    for _ in session.steps(model=model, optimizer=optimizer):
        inputs, labels = drawn()
        means = 0.9 * means + 0.1 * inputs.mean(dim=0)
        learn(model, optimizer, (inputs - means, labels))
        report(session, model)
