"""The report as one HTML file that needs nothing else: no network, no library, JavaScript only for its one chart."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lr_sweep.analysis.report.blocks import Section

WEB = Path(__file__).with_name("web")
SCRIPTS = ("drawing.js", "chart.js", "values.js", "handle.js", "page.js")
"""In the order in which they run."""
LONG_ENTRY = 20
"""Entries with more characters are broken into lines by a browser, others never."""


def page_html(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """Return `index.html`, with `data` from `chart.chart_data`; the same content gives the same text.

    `refresh_s`: seconds after which the page reads itself again; None: never.
    Raises ValueError for a number in `data` that is NaN or infinite, which browsers do not read.
    """
    script = "\n".join(web_text(name) for name in SCRIPTS)
    values = {"title": title, "sections": sections, "data": data, "style": web_text("page.css")}
    # In a block, which keeps the scripts' names out of the page's global ones.
    values["script"] = f'"use strict";\n{{\n{script}\n}}\n'
    return _templates().get_template("page.html").render(values)


@cache
def _templates() -> Environment:
    """Return the templates, in which all text is escaped unless a filter here, or `safe`, says otherwise."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates.filters |= {"prose": _prose, "unbroken": _unbroken, "digest": _digest}
    templates.tests |= {"long": lambda text: len(text) > LONG_ENTRY, "numbers": re.compile(r"[\d ]+").fullmatch}
    templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return templates


def web_text(name: str) -> str:
    """Return a script or style of the page by its file's name."""
    return (WEB / name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Escape text; what stands between backticks is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _unbroken(text: str) -> Markup:
    """Escape text, and keep learning rates on one line: a browser breaks `1e-3` at its hyphen."""
    return Markup(re.sub(r"\b\d+(?:\.\d+)?e-\d+\b", r'<data value="\g<0>">\g<0></data>', str(escape(text))))


def _digest(text: str) -> Markup:
    """Return what the page's policy allows a style or a script by."""
    return Markup(f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}")
