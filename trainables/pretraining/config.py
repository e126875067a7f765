"""What `config.json` of pretrained weights must say, so that a body computes what they are for. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ConfigFields:
    """The fields of a family's configuration that change hidden states of a body that gets embeddings."""

    model_type: str
    """Of the family. Others may have tensors of the same names and compute something else."""
    sizes: Mapping[str, str]
    """Fields that must agree with the study's model -> their names in the family's `Size`."""
    computed: Mapping[str, tuple[Any, ...]]
    """Fields that change the function -> the values that are computed, first the one that a missing field means."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names that transformers reads -> the names above."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `sizes` that may be missing -> what they are then."""

    def mistakes(self, config: Mapping[str, Any], size: Any) -> Iterator[str]:
        """Yield what is wrong with a configuration, field by field; size None: of any size."""
        if config.get("model_type") != self.model_type:
            yield f"model_type: {got(config, 'model_type')}, want {self.model_type!r}: only that family is computed"
            return
        config = dict(config)
        for alias, name in self.aliases.items():
            if alias in config and config.setdefault(name, config[alias]) != config[alias]:
                yield f"{name}: {got(config, name)}, and {shown(config[alias])} as {alias}, want one"
        for name, values in self.computed.items():
            if name in config and config[name] not in values:
                first, *others = map(shown, values)
                same = f" (or {', '.join(others)}, which are the same)" if others else ""
                yield f"{name}: {got(config, name)}, want {first}{same}"
        for name, attribute in self.sizes.items() if size is not None else ():
            value = getattr(size, attribute)
            if config.get(name, self.defaults.get(name)) != value:
                yield f"{name}: {got(config, name)}, want {value}: the study's model has {attribute}: {value}"


def file_mistakes(folder: Path, names: str, mistakes_of: Callable[[dict[str, Any]], Iterable[str]]) -> list[str]:
    """Return what is wrong with the `config.json` of a `save_pretrained` folder; `names` are examples of its fields."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ["there is no config.json, which says how many heads there are and what the model computes"]
    except (OSError, ValueError, RecursionError) as error:
        return [f"config.json cannot be read ({error}): put the one there that was saved with the weights"]
    if not isinstance(config, dict):
        return [f"config.json: got {shown(config)}, want an object with {names} and so on"]
    return [f"config.json: {mistake}" for mistake in mistakes_of(config)]


def got(config: Mapping[str, Any], name: str) -> str:
    """Return what a configuration has as a field."""
    return f"got {shown(config[name])}" if name in config else "it is missing"


def shown(value: Any) -> str:
    """Return a JSON value in 60 characters at most."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
