"""Elements of HTML and SVG as values. All text is escaped, wherever it comes from."""

from __future__ import annotations

from html import escape

Attribute = str | int | None


class Markup(str):
    """Text that is HTML already. Only `element` and `join` make it."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: Attribute) -> Markup:
    """Return one element.

    Args:
        children: What is in it; a child that is no Markup is text, None is left out.
        attributes: `class_` is `class`, and `_` within a name is `-`; None is left out.
    """
    text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{text}>{join(*children)}</{tag}>")


def join(*children: str | None) -> Markup:
    """Return several elements and texts one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))
