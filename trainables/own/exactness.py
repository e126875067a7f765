"""What a trial of a training function found: is it deterministic, and does it resume exactly?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lr_sweep.trainables.engine import Resumed

STOP, STEPS = 3, 8
"""Gradient steps after which a trial stops and resumes, and at which it ends. An odd step falls on no round number."""
EVALUATE_EVERY = 2
"""Gradient steps between two evaluations of a trial."""

ADVICE = (
    "Pass objects by name, such as `session.steps(..., schedule=schedule)`; keep numbers in an object, such as "
    "`types.SimpleNamespace(count=0)`, and pass that"
)


RANDOM_GENERATORS = "the random generators"
"""Name of the states of torch's, numpy's and `random`'s generators among the results."""
AHEAD = ". Random numbers are drawn outside of the steps, such as by a collator that reads ahead"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a trial found, or why it found nothing."""

    random: Sequence[str] = ()
    """Names of what differed, by bits, between two equal trainings."""
    differs: Sequence[str] = ()
    """Names of results that differed, by bits, after a resume: what is saved, and the reported numbers."""
    not_saved: Sequence[str] = ()
    """Names of variables that changed in training and differed after a resume."""
    judged: Sequence[str] = ()
    """Names of variables that changed within the trial, so that it could compare them."""
    unchecked: str = ""
    """Why nothing was compared, as a sentence without its subject; empty: results were compared."""

    failure: str = ""
    """Why the function failed in the trial; empty: it did not."""

    @property
    def lost(self) -> Sequence[str]:
        """Names of what a resume loses: the variables, or without any the results that differ."""
        return self.not_saved or self.differs

    @property
    def resumed(self) -> Resumed:
        """How a run that stops resumes."""
        if self.lost:
            return "inexactly"
        return "unchecked" if self.unchecked or self.random else "exactly"

    def text(self) -> str:
        """Return what was found, as a sentence; its subject, the function, stands before it."""
        if self.unchecked:
            return self.unchecked
        stopped = f"stopped at step {STOP} of {STEPS} and resumed"
        if self.random:
            return f"is not deterministic: two equal trainings differ in {', '.join(self.random)}"
        if not self.lost:
            return f"{stopped}: nothing differs, and everything that changes is saved"
        names = ", ".join(self.differs)
        differs = f"these differ: {names}" if names else "nothing differs yet"
        if not self.not_saved:
            return f"{stopped}: {differs}{AHEAD if RANDOM_GENERATORS in self.differs else ''}"
        return f"{stopped}: {differs}. Not saved: {', '.join(self.not_saved)}. {ADVICE}"


NOT_TRIED = Probe(unchecked="was not tried")
