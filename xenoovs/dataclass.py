"""`dataclass` for records, which are frozen and have slots: defined in a quarter of the time that dataclasses takes.

Python 3.11 compiles seven functions of such a class one by one, a third of the time in which commands start
(docs/adr/README.md, 31). Here those that read all fields are compiled when they are called first, as a command uses few
of the records that it imports, and the others are shared.
"""

from __future__ import annotations

import dataclasses
import gc
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["MISSING", "Field", "asdict", "dataclass", "dataclass_transform", "field", "fields", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from dataclasses import dataclass

    from typing_extensions import dataclass_transform

    _Text = Callable[[Any, dict[str, Any]], str]
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Callable[[type], type]:
        """As dataclasses.dataclass; a frozen one has its methods from this module."""
        if not frozen:
            return dataclasses.dataclass(frozen=frozen, **options)
        return lambda kind: _record(kind, **options)

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """As typing.dataclass_transform of Python 3.11, which only type checkers need."""
        return lambda function: function


def _record(kind: type, *, order: bool = False, **options: Any) -> Any:
    own = dict(vars(kind))
    # Without one dataclasses parses a signature for it, which takes as long as 50 records.
    kind.__doc__ = kind.__doc__ or kind.__name__
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(kind)
    texts = _TEXTS | _ORDER if order else _TEXTS
    methods = _SHARED | {name: _late(made, name, text) for name, text in texts.items()}
    for name, method in methods.items():
        # Python sets `__hash__` to None where a class has an `__eq__` of its own.
        if own.get(name) is None:
            setattr(made, name, method)
    return made


def _late(made: Any, name: str, text: _Text) -> Callable[..., Any]:
    """Return a method that compiles itself when it is called first. `text`: its source; adds the names that it uses."""

    def first(self: Any, *args: Any, **named: Any) -> Any:
        known: dict[str, Any] = {}
        exec(text(made, known), known)  # noqa: S102
        setattr(made, name, known[name])
        return known[name](self, *args, **named)

    return first


def _init(made: Any, known: dict[str, Any]) -> str:
    """Sets attributes by their slots, as the class refuses to set them."""
    known["FACTORY"] = object()
    heads: dict[bool, list[str]] = {False: ["self"], True: ["*"]}
    body = []
    for number, each in enumerate(fields(made)):
        known[f"set{number}"], value, default = getattr(made, each.name).__set__, each.name, ""
        if each.default_factory is not MISSING:
            known[f"default{number}"], default = each.default_factory, "=FACTORY"
            value = f"default{number}() if {value} is FACTORY else {value}" if each.init else f"default{number}()"
        elif each.default is not MISSING:
            known[f"default{number}"], default = each.default, f"=default{number}"
            value = value if each.init else f"default{number}"
        if each.init:
            heads[bool(each.kw_only)].append(each.name + default)
        if each.init or default:
            body.append(f"set{number}(self, {value})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(heads[False] + (heads[True] if len(heads[True]) > 1 else []))
    return f"def __init__({parameters}): {'; '.join(body) or 'pass'}"


def _comparison(name: str, sign: str) -> _Text:
    def text(made: Any, _known: dict[str, Any]) -> str:
        own = _values(each.name for each in fields(made) if each.compare)
        result = f"{own} {sign} {own.replace('self.', 'other.')}"
        return f"def {name}(self, other): return {result} if other.__class__ is self.__class__ else NotImplemented"

    return text


def _hash(made: Any, _known: dict[str, Any]) -> str:
    own = _values(each.name for each in fields(made) if (each.compare if each.hash is None else each.hash))
    return f"def __hash__(self): return hash({own})"


def _values(names: Iterable[str]) -> str:
    return f"({''.join(f'self.{name}, ' for name in names)})"


def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _refuse(_self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"a record does not change: {name}")


_SHARED = {
    "__repr__": _show,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _restore,
}
_TEXTS: dict[str, _Text] = {"__init__": _init, "__eq__": _comparison("__eq__", "=="), "__hash__": _hash}
_SIGNS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_ORDER = {name: _comparison(name, sign) for name, sign in _SIGNS.items()}


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector of garbage: records that are read have no cycles, and it would walk all of them again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
