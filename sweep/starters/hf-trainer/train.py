"""What one run trains, by Hugging Face's Trainer: `train` is called once a run. The model learns made-up texts."""

import torch
from torch.utils.data import Sampler
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


class Shuffled(Sampler):
    """Shuffles your data set anew in each epoch; a resumed run begins where it stopped."""

    def __init__(self, data, per_step, run, session):
        self.data, self.per_step, self.run, self.session = data, per_step, run, session

    def __iter__(self):
        epoch, done = divmod(self.session.step * self.per_step, len(self.data))
        while True:
            generator = torch.Generator().manual_seed(1_000_003 * self.run.seed + epoch)
            yield from torch.randperm(len(self.data), generator=generator)[done:].tolist()
            epoch, done = epoch + 1, 0


def texts(split, number):
    """Return texts of eight tokens that count up, a row each."""
    generator = torch.Generator().manual_seed(split)
    return torch.randint(0, 50, (number, 1), generator=generator) + torch.arange(8)


@torch.no_grad()
def evaluate(model, split):
    """Return the loss on a split's texts."""
    model.eval()
    tokens = texts(split, 16).to(model.device)
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
    data = [{"input_ids": text, "labels": text} for text in texts(0, 64)]  # or your data set
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Sweep(session, evaluate)])
    trainer._get_train_sampler = lambda *_: Shuffled(data, 4, run, session)
    trainer.train()
