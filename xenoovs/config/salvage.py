"""What is still right of a part with mistakes: wrong values are replaced, and remembered, so that nobody judges them.

A check between values looks at `Lost` first: a mistake that was made once must not be told a second time as what
follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from xenoovs.config.tree import Path, Value

_LOST_MAC = 0x0200_5AFE_0000
"""Locally administered (IEEE 802, 8.4); counted up, so that no two are alike."""

Asked = tuple[str | int | None, ...]
"""A path; None stands for any index."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Values that are wrong, by their paths inside a part."""

    paths: frozenset[Path] = frozenset()

    def has(self, *asked: Asked) -> bool:
        """Whether any of these, anything inside of one or anything around it, is wrong."""
        return any(_meet(lost, one) for lost in self.paths for one in asked)

    def backends(self, *keys: str) -> frozenset[int]:
        """Indices of the backends of which one of these is wrong."""
        inside = (path for path in self.paths if path[0:1] == ("backends",) and len(path) > 1)
        return frozenset(int(path[1]) for path in inside if len(path) == 2 or path[2] in keys)


NOTHING_LOST = Lost()


def _meet(lost: Path, asked: Asked) -> bool:
    return all(one in (None, there) for there, one in zip(lost, asked, strict=False))


def salvage_service(tree: Value, wrong: Iterable[Path]) -> tuple[Value, Lost]:
    """A service without its wrong values. `wrong`: their paths in it."""
    lost = Lost(frozenset(wrong))
    if not isinstance(tree, dict):
        return tree, lost
    kept: dict[str, Any] = {key: value for key, value in tree.items() if key == "backends" or (key,) not in lost.paths}
    for path in lost.paths:
        if len(path) > 1 and path[0] != "backends":
            kept[str(path[0])] = _without(kept.get(str(path[0])), path[1:])
    if lost.has(("name",)):
        kept["name"] = "unnamed"
    kept["backends"] = _backends(tree.get("backends"), lost)
    return {key: value for key, value in kept.items() if value is not None}, lost


def _without(value: Any, path: Path) -> Any:
    """A mapping less one key; a list of which an item is wrong goes as a whole."""
    if not isinstance(value, dict) or not isinstance(path[0], str):
        return None
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {key: (_without(inner, path[1:]) if key == path[0] else inner) for key, inner in value.items()}


def _backends(value: Any, lost: Lost) -> list[Value]:
    if not isinstance(value, list) or ("backends",) in lost.paths:
        return [_backend(None, 0, frozenset())]
    wrong: dict[int, set[str | int]] = {}
    for path in lost.paths:
        if path[:1] == ("backends",) and len(path) > 1:
            wrong.setdefault(int(path[1]), set()).update(path[2:3])
    return [_backend(one, index, wrong[index]) if index in wrong else one for index, one in enumerate(value)]


def _backend(value: Any, index: int, wrong: Set[str | int]) -> Value:
    kept = {key: inner for key, inner in value.items() if key not in wrong} if isinstance(value, dict) else {}
    kept.setdefault("name", f"unnamed-{index}")
    kept.setdefault("weight", 1)
    if wrong & {"mac", "address", "egress"} or not isinstance(value, dict):
        kept["mac"] = _mac(index)
    return kept


def _mac(index: int) -> str:
    return (_LOST_MAC + index).to_bytes(6, "big").hex(":")
