"""`dataclass` for records, which are frozen and have slots: defined in a quarter of the time that dataclasses takes.

Python 3.11 compiles seven functions of such a class one by one, a third of the time in which commands start
(docs/adr/README.md, 31). Here those that read all fields are compiled at once, and the others shared.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["MISSING", "Field", "asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Callable[[type], type]:
        """As dataclasses.dataclass; a frozen one without an order has its methods from this module."""
        if not frozen or options.get("order"):
            return dataclasses.dataclass(frozen=frozen, **options)
        return lambda kind: _record(kind, **options)


def _record(kind: type, **options: Any) -> Any:
    own = dict(vars(kind))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **options)(kind)
    functions = _compiled(made)
    for name, function in functions.items():
        # Python sets `__hash__` to None where a class has an `__eq__` of its own.
        if own.get(name) is None:
            setattr(made, name, function)
    return made


def _compiled(made: Any) -> dict[str, Any]:
    """Return the methods of a record. `__init__` sets attributes by their slots, as the class refuses to set them."""
    known: dict[str, Any] = {"FACTORY": object()}
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
    compared = _values(each.name for each in fields(made) if each.compare)
    hashed = _values(each.name for each in fields(made) if (each.compare if each.hash is None else each.hash))
    text = f"""
def __init__({parameters}): {"; ".join(body) or "pass"}
def __eq__(self, other):
    return {compared} == {compared.replace("self.", "other.")} if other.__class__ is self.__class__ else NotImplemented
def __hash__(self): return hash({hashed})
"""
    exec(text, known)  # noqa: S102
    shared = {"__repr__": _show, "__setattr__": _refuse, "__delattr__": _refuse}
    shared |= {"__getstate__": _state, "__setstate__": _restore}
    return {name: known[name] for name in ("__init__", "__eq__", "__hash__")} | shared


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
