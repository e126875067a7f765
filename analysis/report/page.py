"""The report as one HTML file that needs no network and no library."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from .blocks import Description

WEB = Path(__file__).with_name("web")
SCRIPTS = ("drawing.js", "chart.js", "values.js", "handle.js", "page.js")
"""Scripts of the page in the order in which they run."""
HYPHENATED = re.compile(r"\w[\w.+]*(?:-[\w.+]+)+")
"""Names and learning rates that a browser would break at their hyphens."""
LONG_ENTRY = 20
"""Entries with more characters are broken into lines by a browser, others never."""
MOST_VERDICTS = 2
"""Tasks and models whose verdict is shown unfolded, so that the table is on the first screen, too."""


def page_html(report: Description, data: Mapping[str, Any]) -> str:
    """Return `index.html`, with `data` from `chart_data`; the same content gives the same text.

    Raises ValueError for a number in `data` that is NaN or infinite, which browsers do not read.
    """
    script = "\n".join(web_text(name) for name in SCRIPTS)
    values = {"report": report, "data": data, "style": web_text("page.css")}
    # In a block, which keeps the scripts' names out of the page's global ones.
    values["script"] = f'"use strict";\n{{\n{script}\n}}\n'
    return filled("page.html", **values)


def filled(template: str, *folders: Path, **values: Any) -> str:
    """Return one of the templates, or of those of further folders, with values in the places of their names."""
    return _templates(*folders).get_template(template).render(values)


@cache
def _templates(*folders: Path) -> Environment:
    templates = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {
        "prose": _prose,
        "unbroken": _unbroken,
        "unparted": _unparted,
        "digest": _digest,
    }
    templates.globals["most_verdicts"] = MOST_VERDICTS
    templates.tests |= {
        "long": lambda text: len(text) > LONG_ENTRY,
        "numbers": re.compile(r"[\d ]+").fullmatch,
    }
    templates.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    return templates


def web_text(name: str) -> str:
    """Return a script or style of the page by its file's name."""
    return (WEB / name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Escape text; what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(_unbroken(text))))


def _unbroken(text: str) -> Markup:
    """Escape text, and keep names and learning rates whole: a browser breaks `1e-3` at its hyphen."""
    return Markup(HYPHENATED.sub(r'<data value="\g<0>">\g<0></data>', str(escape(text))))


def _unparted(text: str) -> Markup:
    """As `_unbroken`, and keep marks beside their numbers where a narrow screen breaks an entry into lines."""
    return _unbroken(text.replace("± ", "±\N{NO-BREAK SPACE}").replace(" *", "\N{NO-BREAK SPACE}*"))


def _digest(text: str) -> Markup:
    """Return what the page's policy allows a style or a script by."""
    return Markup(f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}")
