"""The report as one HTML file that needs nothing else: no network, no library, JavaScript only for its one chart."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lr_sweep.analysis.report.blocks import Section

WEB = Path(__file__).with_name("web")
SCRIPTS = ("drawing.js", "chart.js", "values.js", "handle.js", "page.js")
"""In the order in which they run."""

POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"
)
"""Forbids every request, and every style and script but the page's own two."""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">{refresh}
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>{live}
{opening}
{nav}
{body}
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


REFRESH = '\n<noscript><meta http-equiv="refresh" content="{}"></noscript>'
LIVE = '\n<p class="live" data-refresh-s="{0}">Live: this page reads itself again every {0} seconds.</p>'
"""With scripts the page reads itself again when nobody drags, and keeps what is chosen."""


def page_html(title: str, sections: Sequence[Section], data: Mapping[str, Any], refresh_s: int | None = None) -> str:
    """Return `index.html`, with `data` from `chart.chart_data`; the same content gives the same text.

    `refresh_s`: seconds after which the page reads itself again; None: never.
    """
    style, script = (WEB / "page.css").read_text(encoding="utf-8"), _script()
    links = [f'<li><a href="#{_anchor(s.title)}">{html.escape(s.title)}</a></li>' for s in sections if s.title]
    return PAGE.format(
        policy=POLICY.format(style=_hash(style), script=_hash(script)),
        title=html.escape(title),
        refresh=REFRESH.format(refresh_s) if refresh_s else "",
        live=LIVE.format(refresh_s) if refresh_s else "",
        style=style,
        nav="\n".join(['<nav aria-label="Sections"><ul>', *links, "</ul></nav>"]),
        opening="\n".join(_section(section) for section in sections if not section.title),
        body="\n".join(_section(section) for section in sections if section.title),
        data=inline_json(data),
        script=script,
    )


def inline_json(data: Mapping[str, Any]) -> str:
    """Write JSON for a script element: nothing in it can end the element or start a comment.

    Raises ValueError for a number that is NaN or infinite, which browsers do not read.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _script() -> str:
    """Join the scripts in one block, which keeps their names out of the page's global ones."""
    return "\n".join(['"use strict";\n{', *((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS), "}\n"])


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _section(section: Section) -> str:
    body = "\n".join(block.html() for block in section.body)
    if not section.title:
        return body
    anchor = _anchor(section.title)
    heading = f'<h2 id="{anchor}">{html.escape(section.title)}</h2>'
    return f'<section aria-labelledby="{anchor}">\n{heading}\n{body}\n</section>'


def _anchor(title: str) -> str:
    """Return a section's id: letters, digits and `-`, as a heading may name the study's metric."""
    return re.sub(r"\W+", "-", title.lower())
