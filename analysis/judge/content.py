"""What the fields of a table say of its columns, where names leave it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lr_sweep.analysis.judge.fields import is_nothing, is_number, with_point
from lr_sweep.analysis.judge.table_file import TableFile

LETTER = re.compile(r"[^\W\d_]")
Codes = NDArray[np.intp]


class Content:
    """The columns of a table as sets of values, read when asked for."""

    def __init__(self, table: TableFile) -> None:
        self.table = table
        self._point: Callable[[str], str] = with_point if table.decimal_comma else str
        self._values: dict[str, set[str]] = {}

    def values(self, name: str) -> set[str]:
        """Return the different fields of a column that hold something."""
        if name not in self._values:
            found = {text.strip() for text in set(self.table.columns[name])}
            self._values[name] = {text for text in found if not is_nothing(text)}
        return self._values[name]

    def is_numbers(self, name: str) -> bool:
        """Return whether every field that holds something is a number."""
        return bool(values := self.values(name)) and all(is_number(self._point(text)) for text in values)

    def has_numbers(self, name: str) -> bool:
        """Return whether a column has numbers, well written or not, or nothing at all."""
        values = self.values(name)
        return not values or any(is_number(self._point(text)) or not LETTER.search(text) for text in values)

    def numbers(self, name: str) -> set[float]:
        """Return the different numbers of a column of numbers."""
        return {float(self._point(text)) for text in self.values(name)}

    def same(self, one: str, other: str) -> bool:
        """Return whether two columns of numbers are equal in each row."""
        return bool(self.numbers(one) == self.numbers(other)) and bool((self._floats(one) == self._floats(other)).all())

    def is_scheduled(self, name: str, labels: Sequence[str], step: str) -> bool:
        """Return whether a column changes with the step, where `labels` name a run, and is decided by both."""
        codes = [*(self._codes(label) for label in labels), self._codes(step)]
        return self._most(name, codes[:-1]) > 1 >= self._most(name, codes)

    def _most(self, name: str, keys: Sequence[Codes]) -> int:
        """Return how many values a column has within equal keys, at most."""
        rows = pd.DataFrame({str(i): key for i, key in enumerate(keys)})
        values = pd.Series(self._codes(name))
        return int(values.groupby([rows[i] for i in rows]).nunique().max()) if len(keys) else int(values.nunique())

    def _codes(self, name: str) -> Codes:
        return pd.factorize(np.array(self.table.columns[name], dtype=object))[0]

    def _floats(self, name: str) -> pd.Series[float]:
        texts = [self._point(text.strip()) for text in self.table.columns[name]]
        return pd.to_numeric(pd.Series(texts), errors="coerce")
