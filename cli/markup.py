"""What pages are put together from, each one file that needs nothing else. Who passes text as HTML has escaped it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from cli.style import CSS

KINDS = {">": ' class="right"', "=": ' class="why"'}


def document(title: str, sections: Iterable[str], style: str = "") -> str:
    """A page. `title` is plain text, the sections are HTML, and empty ones are left out."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def figures(items: Iterable[tuple[str, str, str]]) -> str:
    """Key figures: label, value, and what stands beside it; plain text."""
    return f'<dl class="figures">{"".join(_figure(*item) for item in items)}</dl>'


def _figure(label: str, value: str, beside: str) -> str:
    more = f"<small>{escape(beside)}</small>" if beside else ""
    return f"<div><dt>{escape(label)}</dt><dd>{escape(value)}{more}</dd></div>"


def table(title: str, caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], below: str = "") -> str:
    """A section with a table of cells that are HTML already; a heading's sign sets its column's kind. Empty: none."""
    found = cells(headings, rows, caption)
    return f'<section><h2>{title}</h2><div class="scroll">{found}</div>{below}</section>' if found else ""


def cells(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """The table alone."""
    kinds = [KINDS.get(heading[0], "") for heading in headings]
    head = "".join(
        f'<th scope="col"{kind}>{escape(heading.lstrip("".join(KINDS)))}</th>'
        for heading, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>" for row in rows
    )
    if not body:
        return ""
    compact = ' class="compact"' if len(headings) < 5 else ""
    told = f"<caption>{caption}</caption>" if caption else ""
    return f"<table{compact}>{told}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
