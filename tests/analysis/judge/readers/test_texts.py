"""Separated fields, tables of Markdown and logs as columns of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.judge.readers.files import table_of_content
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.tables import shown_columns

MARKDOWN = "|lr|**acc**|\n|--:|---|\n|`0.1`|1|\n"
TABLES = {
    "no names": ("adam,0.1,5\nadam,0.2,6\n", "#1: adam adam; #2: 0.1 0.2; #3: 5 6"),
    "numbers alone": ("0.1,5\n0.2,6\n", "#1: 0.1 0.2; #2: 5 6"),
    "rates as names": ("seed,0.1,0.2\n0,5,6\n", "seed: 0; 0.1: 5; 0.2: 6"),
    "an unnamed index and rates as names": (",0.1,0.2\na,5,6\n", "#1: a; 0.1: 5; 0.2: 6"),
    "quotes": ('name,acc\n"a, b\nc",1\n', "name: a, b\nc; acc: 1"),
    "a table of Markdown": (f"Text\n{MARKDOWN}", "lr: 0.1; acc: 1"),
    "several tables of Markdown": (
        f"# A\n{MARKDOWN}\n## B\n{MARKDOWN.replace('acc', 'f1')}",
        "table: 1 2; heading: A B; lr: 0.1 0.1; acc: 1 -; f1: - 1",
    ),
}


@pytest.mark.parametrize(("text", "columns"), TABLES.values(), ids=TABLES)
def test_tables(text: str, columns: str) -> None:
    assert shown_columns(text, "t.csv") == columns


LOGS = {
    "nanoGPT": (
        "number of parameters: 0.80M\nstep 0: train loss 1.5, val loss 2.5\niter 0: loss 2.2, time 105.3ms\n",
        "config.number of parameters: 0.80M; step: 0; train loss: 1.5; val loss: 2.5",
    ),
    "steps of all": ("step:1/9 val_loss:3.5 t:2s\nstep:2/9 val_loss:nan\n", "step: 1 2; val_loss: 3.5 nan"),
    "Keras": ("Epoch 1/2\n9/9 - 1s - 5ms/step - loss: 1 - acc: 2\n", "loss: 1; acc: 2; Epoch: 1"),
    "a step above": (
        "Epoch [1/2], Step [5/9], Loss: 0.5\nWe test.\nval/acc=0.5 f1=nan\n",
        "val/acc: 0.5; f1: nan; Epoch: 1; Step: 5",
    ),
    "dicts": ("{'loss': 1.5, 'epoch': 1.0}\n{'acc': 2, 'epoch': 1.0}\n", "loss: 1.5 -; epoch: 1.0 1.0; acc: - 2"),
    "arguments": (
        "Namespace(lr=0.1, opt='a', betas=[0.9, 1])\n[10:01] INFO epoch=1 acc=5e-1\n",
        "config.lr: 0.1; config.opt: a; config.betas: [0.9, 1]; epoch: 1; acc: 5e-1",
    ),
    "a logger's prefix": ("10:00:00,1 - INFO - Epoch 1: loss tensor(0.5)\n", "Epoch: 1; loss: 0.5"),
    "fractions": ("Test: Mean loss: 0.5, Accuracy: 98/100 (98%)\n", "Mean loss: 0.5; Accuracy: 98/100"),
    "text among pairs": ("split=val lr=0.1 acc=0.5\n", "split: val; lr: 0.1; acc: 0.5"),
    "source above": ("lr = 0.1\nbeta=0.9, eps=1\nepoch 1 | acc 0.5\n", "config.lr: 0.1; epoch: 1; acc: 0.5"),
    "settings alone, of a run that was killed": ("lr: 0.1\nWe began.\n", "config.lr: 0.1"),
    "lines of JSON": ('{"lr": 0.1, "opt": "a"}\n', "lr: 0.1; opt: a"),
}


@pytest.mark.parametrize(("text", "columns"), LOGS.values(), ids=LOGS)
def test_logs(text: str, columns: str) -> None:
    assert shown_columns(text, "train.log") == columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr,a\n0.1,1,2\n0.2\n", "t.csv:2: got 3 fields, want 2 as in line 1: .*\nt.csv:3: got 1"),
        ("lr,acc,acc\n0.1,1,2\n", "t.csv:1: two columns are named 'acc'"),
        ("lr,acc\n", "has no runs to read"),
        ("# nothing\n\n", "is empty"),
        ("lr,acc\n0.1,1\n0.2,0.", "t.csv ends within a number"),
        ("<table>", "is HTML or LaTeX"),
        ('lr,acc\n0.1,"1', "cannot be read"),
        ("We tried two.\nBoth were fine, see the paper.\n", "t.csv:2: got 6 fields, want 3"),
    ],
)
def test_what_is_no_table(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shown_columns(text, "t.csv")


@pytest.mark.parametrize("name", ["t.csv", "t.log"])
def test_a_text_without_a_line_end_is_remarked(name: str) -> None:
    table = table_of_content(Path(name), b"a=1 step=2\n\na=2 step=3", name)
    assert table.remarks == (f"{name}: no line end after the last row; was the file cut?",)
    assert table.frame.index[-1] == f"{name}:3"
