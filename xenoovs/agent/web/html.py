"""Elements of HTML and SVG as values: what is not markup is escaped, whoever named it."""

from __future__ import annotations

from html import escape

Attribute = str | int | None


class Markup(str):
    """Text that is HTML already. Only `element` and `join` make it."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: Attribute) -> Markup:
    """One element. Children that are no Markup are text. `class_` is `class`, `_` elsewhere `-`; None: left out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{told}>{join(*children)}</{tag}>")


def join(*children: str | None) -> Markup:
    """Several things one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))
