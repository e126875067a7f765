"""What the report says: the texts of `texts.yaml`, filled in."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from ruamel.yaml import YAML


def say(text: str, **values: Any) -> str:
    """Return one of the texts with values in the places of their names."""
    return _texts().get_template(text).render(values)


@cache
def _texts() -> Environment:
    path = Path(__file__).with_name("texts.yaml")
    return Environment(loader=DictLoader(YAML(typ="safe", pure=True).load(path)), undefined=StrictUndefined)
