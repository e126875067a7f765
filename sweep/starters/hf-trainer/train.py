"""What one run trains, by Hugging Face's Trainer: `train` is called once a run. The model learns made-up texts."""

import torch
from torch.utils.data import IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Sweep(TrainerCallback):
    """Calls the session around each of the trainer's steps."""

    def __init__(self, session, evaluate):
        self.session, self.evaluate = session, evaluate

    def on_train_begin(self, args, state, control, model, optimizer, lr_scheduler, **more):
        """Restore what a resumed run has."""
        self.session.start(model=model, optimizer=optimizer, schedule=lr_scheduler)
        state.global_step = self.session.step

    def on_step_begin(self, args, state, control, **more):
        """Begin a step."""
        self.session.begin_step()

    def on_step_end(self, args, state, control, model=None, **more):
        """Report where an evaluation is due, and end the step."""
        if self.session.due:
            self.session.report(validation=self.evaluate(model, 1), test=self.evaluate(model, 2))
        self.session.end_step()


class Texts(IterableDataset):
    """Random texts, a function of the run's seed and the example's number."""

    def __init__(self, run, session, size):
        self.run, self.session, self.size = run, session, size

    def __iter__(self):
        number = self.session.step * self.size
        while True:
            number += 1
            tokens = text(self.run.seed, number)
            yield {"input_ids": tokens, "labels": tokens}


def text(seed, number):
    """Return eight tokens that count up."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    return torch.randint(0, 50, (1,), generator=generator).repeat(8) + torch.arange(8)


@torch.no_grad()
def evaluate(model, split):
    """Return the loss on a split's texts."""
    model.eval()
    tokens = torch.stack([text(-split, number) for number in range(16)]).to(model.device)
    loss = model(input_ids=tokens, labels=tokens).loss.item()
    model.train()
    return loss


def train(run, session):
    """Train one run."""
    size = GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    model = GPT2LMHeadModel(size)
    arguments = TrainingArguments(
        output_dir=session.files / "trainer",
        learning_rate=run.learning_rate,
        weight_decay=run.options["weight_decay"],
        seed=run.seed,
        max_steps=run.num_steps,
        lr_scheduler_type="constant",
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=session.device == "cpu",
    )
    texts = Texts(run, session, size=4)
    sweep = Sweep(session, evaluate)
    Trainer(model=model, args=arguments, train_dataset=texts, callbacks=[sweep]).train()
