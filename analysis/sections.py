"""The report's sections: what `report.md` and `index.html` both show, each in its own form."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from analysis.table_formats import html_text

MAX_SVG_BYTES = 120_000
"""A drawing larger than this, one with very many points, goes into the page as PNG if that is smaller."""


class Block(Protocol):
    """A piece of a section: a table, prose, a figure."""

    def markdown(self) -> str:
        """Render for `report.md`, with a line break at the end."""

    def html(self) -> str:
        """Render for `index.html`: text is escaped, nothing outside the page is referred to."""


@dataclass(frozen=True)
class Paragraph:
    """Prose; text between backticks is code, nothing else is marked up."""

    text: str

    def markdown(self) -> str:
        """Render for `report.md`."""
        return f"{self.text}\n"

    def html(self) -> str:
        """Render for `index.html`."""
        return f"<p>{html_text(self.text)}</p>"


@dataclass(frozen=True)
class Bullets:
    """A list of paragraphs."""

    items: Sequence[str]

    def markdown(self) -> str:
        """Render for `report.md`."""
        return "".join(f"- {item}\n" for item in self.items)

    def html(self) -> str:
        """Render for `index.html`."""
        return "\n".join(["<ul>", *(f"<li>{html_text(item)}</li>" for item in self.items), "</ul>"])


@dataclass(frozen=True, kw_only=True)
class Image:
    """A figure that was drawn into files beside the report."""

    title: str
    png: Path
    others: tuple[Path, ...]
    """The same figure in other formats."""

    def markdown(self) -> str:
        """Link the files."""
        links = " and ".join(f"[{path.suffix[1:].upper()}]({path.name})" for path in self.others)
        return f"![{self.title}]({self.png.name})\n\n{self.title}, also as {links}.\n"

    def html(self) -> str:
        """Carry the picture in the page itself; `page.js` folds it where the interactive figure shows the same."""
        title, source = html.escape(self.title), _data_url(self._for_page())
        return f'<details open><summary>{title}</summary><img alt="{title}" src="{source}"></details>'

    def _for_page(self) -> Path:
        """Return the sharper file, unless it is too large."""
        drawn = next((path for path in self.others if path.suffix == ".svg"), self.png)
        size = drawn.stat().st_size
        return self.png if size > max(MAX_SVG_BYTES, self.png.stat().st_size) else drawn


@dataclass(frozen=True)
class SweepChart:
    """The place of the interactive figure, which `page.js` draws from the page's data."""

    caption: str

    def markdown(self) -> str:
        """Say where it is."""
        return "`index.html`, beside this file, shows the following with values under the pointer.\n"

    def html(self) -> str:
        """Give its empty parts; without JavaScript it stays hidden and the images stand for it."""
        return SWEEP_CHART.format(caption=html_text(self.caption))


SWEEP_CHART = """\
<div id="sweep" class="sweep" hidden>
<div class="controls">
<label>Task <select id="task"></select></label>
<label id="choose-model">Model <select id="model"></select></label>
<fieldset id="variants"><legend>Variants</legend></fieldset>
</div>
<div id="plot" class="plot"></div>
<div id="key" class="key"></div>
<p class="hint">Point at a value, or press Tab and the arrow keys, to read it.</p>
<p class="caption">{caption}</p>
</div>"""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    """Empty: no heading."""
    body: Sequence[Block]

    def markdown(self) -> str:
        """Render for `report.md`."""
        heading = f"## {self.title}\n\n" if self.title else ""
        return heading + "\n".join(block.markdown() for block in self.body)


def report_markdown(title: str, sections: Sequence[Section]) -> str:
    """Render the whole of `report.md`."""
    return "\n".join([f"# {title}\n", *(section.markdown() for section in sections)])


def _data_url(path: Path) -> str:
    kind = {".png": "png", ".svg": "svg+xml"}[path.suffix]
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
