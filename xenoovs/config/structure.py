"""Checks a tree against the schema and says every mistake in our own words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.health_schema import HealthConfig
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import NOTHING_LOST, Lost, salvage_service
from xenoovs.config.schema import FileConfig, ServiceConfig, SwitchConfig
from xenoovs.config.tree import Path, Value, show

MAX_REMARKS = 1_000

_REMOVED = {
    "strategy": "`strategy` is gone: remove this line; blocks are always prefix-free (one hardware entry each)",
}
"""Keys of services that earlier versions knew, and what to write instead."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Checked:
    """The parts of a config that have the right form, services with their index in the file, and what is wrong.

    omitted: mistakes beyond those that anybody reads.
    lost:    of services with mistakes, by their index, and of the rest of the file, what they say is not to be judged.
    """

    switch: SwitchConfig | None
    services: tuple[tuple[int, ServiceConfig], ...]
    remarks: tuple[Remark, ...] = ()
    omitted: int = 0
    health: HealthConfig = field(default_factory=HealthConfig)
    drain: DrainConfig = field(default_factory=DrainConfig)
    lost: Mapping[int, Lost] = field(default_factory=dict)
    lost_around: Lost = NOTHING_LOST

    def lost_of(self, index: int) -> Lost:
        """What is not to be judged of a service: its own wrong values, and those of the file that stand for all."""
        own = self.lost.get(index, NOTHING_LOST).paths
        return Lost(own | {path for path in self.lost_around.paths if path[:1] in (("health",), ("drain",))})


def check_structure(root: Value) -> Checked:
    """Every key, type and range. What is right is kept, so that it can be checked against each other."""
    try:
        config = FileConfig.model_validate(root)
    except ValidationError as error:
        return _salvage(root, error.errors(include_url=False))
    return Checked(config.switch, tuple(enumerate(config.services)), health=config.health, drain=config.drain)


def _salvage(root: Value, errors: Sequence[Any]) -> Checked:
    remarks = tuple(map(_remark, errors[:MAX_REMARKS]))
    omitted = len(errors) - len(remarks)
    # A key that nobody knows changes nothing else: the rest of its part is checked as if it were not there.
    unknown = {error["loc"] for error in errors if error["type"] == "extra_forbidden"}
    wrong = [error["loc"] for error in errors if error["loc"] not in unknown]
    whole = _without(root, unknown, ())
    tree = whole if isinstance(whole, dict) else {}
    around = Lost(frozenset(path for path in wrong if path[:1] != ("services",)))
    health = _valid(HealthConfig, _right(tree.get("health", {}), "health", around)) or HealthConfig()
    drain = _valid(DrainConfig, _right(tree.get("drain", {}), "drain", around)) or DrainConfig()
    switch = _valid(SwitchConfig, _right(tree.get("switch"), "switch", around, egress="unnamed"))
    services, lost = _services(tree.get("services"), [path for path in wrong if path[:1] == ("services",)])
    return Checked(switch, services, remarks, omitted, health, drain, lost, around)


def _right(value: Value, name: str, lost: Lost, **instead: str) -> Value:
    """What is right of a part around the services; `instead` of keys that have to be there."""
    if not isinstance(value, dict):
        return {}
    return instead | {key: inner for key, inner in value.items() if not lost.has((name, key))}


def _services(listed: Value, wrong: list[Path]) -> tuple[tuple[tuple[int, ServiceConfig], ...], dict[int, Lost]]:
    """The services of which something is right, and of each what is not."""
    if not isinstance(listed, list) or ("services",) in wrong:
        return (), {}
    inside: dict[int, list[Path]] = {}
    for path in wrong:
        inside.setdefault(int(path[1]), []).append(path[2:])
    services, lost = list[tuple[int, ServiceConfig]](), dict[int, Lost]()
    for i, tree in enumerate(listed):
        right, lost_here = salvage_service(tree, inside[i]) if i in inside else (tree, NOTHING_LOST)
        lost[i] = lost_here
        service = _valid(ServiceConfig, right)
        if service is not None:
            services.append((i, service))
    return tuple(services), lost


def _without(value: Value, keys: Set[Path], path: Path) -> Value:
    """The tree without the values at these paths."""
    if isinstance(value, dict):
        return {k: _without(v, keys, (*path, k)) for k, v in value.items() if (*path, k) not in keys}
    if isinstance(value, list):
        return [_without(item, keys, (*path, i)) for i, item in enumerate(value)]
    return value


def _valid(form: type[M], value: Value) -> M | None:
    try:
        return form.model_validate(value)
    except ValidationError:
        return None


def _remark(error: Any) -> Remark:
    """One error of pydantic (docs.pydantic.dev, "Validation Errors"), as a remark."""
    path: Path = error["loc"]
    value = error["input"]
    match error["type"]:
        case "value_error":
            return Remark(path, str(error["ctx"]["error"]))
        case "missing":
            return Remark(path, f"this key is required; add `{path[-1]}:` here")
        case "extra_forbidden":
            return Remark(path, _unknown_key(str(path[-1]), path), at_key=True)
        case "model_type":
            return Remark(path, f"{show(value)} is not a mapping; write keys and values here: {_known(path)}")
        case "list_type":
            return Remark(path, f"{show(value)} is not a list; write items that start with a dash")
        case "too_short":
            return Remark(path, f"the list is empty; write at least {error['ctx']['min_length']}")
        case "too_long":
            limit = error["ctx"]["max_length"]
            return Remark(path, f"{len(value)} items are more than the {limit} that are supported; split them")
        case other:
            return Remark(path, f"{show(value)} cannot be used ({other}: {error['msg']})")


def _unknown_key(key: str, path: Path) -> str:
    if path[:1] == ("services",) and len(path) == 3 and key in _REMOVED:
        return _REMOVED[key]
    near = difflib.get_close_matches(key, list(_fields_at(path[:-1])), n=1)
    advice = f"did you mean {near[0]}?" if near else f"known here: {_known(path[:-1])}"
    return f"unknown key; {advice}"


def _known(path: Path) -> str:
    return ", ".join(_fields_at(path))


def _fields_at(path: Path) -> Iterator[str]:
    """The keys of the mapping at `path`."""
    form: Any = FileConfig
    for step in path:
        if isinstance(step, str):
            annotation = form.model_fields[step].annotation
            form = next(iter(getattr(annotation, "__args__", (annotation,))))
    return iter(form.model_fields)
