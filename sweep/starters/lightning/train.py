"""What one run trains, by Lightning's Trainer: `train` is called once a run. The model learns made-up sums."""

import pytorch_lightning as lightning
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


class Sweep(lightning.Callback):
    """Calls the session around each of the trainer's steps."""

    def __init__(self, session, evaluate):
        self.session, self.evaluate = session, evaluate

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        """Begin a step with the first of the batches whose gradients it adds up."""
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self.session.begin_step()

    def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
        """Report where an evaluation is due, and end the step once the optimizer has taken it."""
        if trainer.global_step == self.session.step:
            return
        if self.session.due:
            self.session.report(validation=self.evaluate(model, 1), test=self.evaluate(model, 2))
        self.session.end_step()


def examples(split, number):
    """Return rows of eight numbers, and the sum of each row."""
    numbers = torch.randn(number, 8, generator=torch.Generator().manual_seed(split))
    return numbers, numbers.sum(1, keepdim=True)


class Model(lightning.LightningModule):
    """A module as you have it."""

    def __init__(self, run):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )
        decay = run.options["weight_decay"]
        self.optimizer = torch.optim.AdamW(
            self.parameters(), lr=run.learning_rate, weight_decay=decay
        )

    def training_step(self, batch, batch_idx):
        """Return the loss of a batch."""
        numbers, sums = batch
        return mse_loss(self.layers(numbers), sums)

    def configure_optimizers(self):
        """Return the optimizer, which is there from the start, so that a resumed run can restore it."""
        return self.optimizer


@torch.no_grad()
def evaluate(model, split):
    """Return the loss on a split's sums."""
    numbers, sums = examples(split, 64)
    return mse_loss(model.layers(numbers.to(model.device)), sums.to(model.device))


def train(run, session):
    """Train one run; `start` restores what a resumed one has, before the trainer asks for its first examples."""
    model = Model(run)
    trainer = lightning.Trainer(
        max_epochs=-1,
        max_steps=run.num_steps,
        accelerator="cpu" if session.device == "cpu" else "gpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=session.files / "lightning",
        callbacks=[Sweep(session, evaluate)],
    )
    data = TensorDataset(*examples(0, 256))  # or your data set
    loader = DataLoader(data, 4, shuffle=True)
    # The position in the loader and in the trainer's epoch are saved, too.
    session.start(model=model, optimizer=model.optimizer, loader=loader, progress=trainer.fit_loop)
    trainer.fit(model, loader)
