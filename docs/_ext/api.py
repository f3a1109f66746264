"""The pages of the API, one for each section of reference.md, and the links from there to them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
from names import Name, located, sections

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config


def slug(title: str) -> str:
    """Return a section's file name."""
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def page(title: str, names: list[Name]) -> str:
    """Return a page in reStructuredText: each name once, methods with their class."""
    lines = [title, "=" * len(title), ""]
    for name in names:
        if not name.method:
            lines += [f".. {directive(name.value)}:: {name.path}", ""]
    return "\n".join(lines)


def directive(value: Any) -> str:
    """Return the directive that documents a value."""
    if isinstance(value, type):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else "autodata"


def write(app: Sphinx, config: Config) -> None:
    """Write the pages, those that changed."""
    source = Path(app.srcdir)
    folder = source / "api"
    folder.mkdir(exist_ok=True)
    found = sections((source / "reference.md").read_text(encoding="utf-8"))
    pages = {slug(title): page(title, names) for title, names in found if has_classes(names)}
    listed = "\n".join(f"   {name}" for name in pages)
    pages["index"] = (
        "API\n===\n\n"
        "What each public name takes, gives and rests on, from its docstring, in the order of the\n"
        ":doc:`list of names </reference>`.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    )
    for name, text in pages.items():
        file = folder / f"{name}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    for file in folder.glob("*.rst"):
        if file.stem not in pages:
            file.unlink()


def has_classes(names: list[Name]) -> bool:
    """Whether a section has more than methods of classes from another section."""
    return any(not name.method for name in names)


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Link the names of reference.md to their pages; name files instead of linking them."""
    text = re.sub(r"\[([^\]]+)\]\((?:\.\./)+([\w./-]+)\)", r"`\2`", source[0])
    if docname == "index":  # which leaves places for pages to come
        text = re.sub(r"^[\w/]+$", lambda page: there(app, page[0]), text, flags=re.MULTILINE)
    if docname == "reference":
        text = "\n".join(linked(line) for line in text.split("\n"))
    source[0] = text


def there(app: Sphinx, page: str) -> str:
    """Return the page, or nothing if there is none."""
    found = any(Path(app.srcdir, page + end).exists() for end in (".md", ".rst"))
    return page if found else ""


def linked(line: str) -> str:
    """Return a row of a table with links in its first column."""
    if not line.startswith("| `"):
        return line
    first, *rest = line.split(" | ")
    file = re.search(r"`(\w[\w/]+)\.py`", rest[-1]) if rest else None
    module = file[1].replace("/", ".") if file else None

    def link(found: re.Match[str]) -> str:
        try:
            name = located(found[1], module, KNOWN)
        except LookupError:
            return found[0]
        if name is None:
            return found[0]
        KNOWN.append(name.path)
        return f"{{py:obj}}`{found[1]}{found[2]} <{name.path}>`"

    first = re.sub(r"`([\w.]+)([^`]*)`", link, first)
    return " | ".join([first, *rest]).replace("/__init__.py`", "`")


KNOWN: list[str] = []


def plain(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Keep bars in docstrings, as in ``|x|``, from being read as substitutions."""
    if what in ("attribute", "data", "property"):
        lines[:0] = [".. comment", ""]  # else napoleon takes what is before a colon for a type
    literal: int | None = None  # the indentation of what a literal block follows
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None:
            parts = re.split(r"(``.*?``)", line)
            lines[i] = "".join(p if p.startswith("``") else p.replace("|", r"\|") for p in parts)
            if line.rstrip().endswith("::"):
                literal = indent
            elif line.lstrip().startswith(">>>"):
                lines[i], literal = line, indent - 1
        elif not line.strip() and lines[i - 1].strip() and doctest(lines, i):
            literal = None


def doctest(lines: list[str], end: int) -> bool:
    """Whether the block that ends before line ``end`` is a doctest."""
    start = end
    while start and lines[start - 1].strip():
        start -= 1
    return lines[start].lstrip().startswith(">>>")


def skip(
    app: Sphinx, what: str, name: str, value: object, skipped: bool, options: object
) -> bool | None:
    """Leave out what scikit-learn puts into classes."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages when the configuration is known, link to them when reference.md is read."""
    app.connect("config-inited", write)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", plain, priority=100)
    app.connect("autodoc-skip-member", skip)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
