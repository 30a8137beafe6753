"""Checks a tree against the schema and says every mistake in our own words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.health_schema import HealthConfig
from xenoovs.config.remark import Remark
from xenoovs.config.schema import FileConfig, ServiceConfig, SwitchConfig
from xenoovs.config.tree import Path, Value, show

MAX_REMARKS = 1_000

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Checked:
    """The parts of a config that have the right form, services with their index in the file, and what is wrong.

    `omitted`: mistakes beyond those that anybody reads.
    """

    switch: SwitchConfig | None
    services: tuple[tuple[int, ServiceConfig], ...]
    remarks: tuple[Remark, ...] = ()
    omitted: int = 0
    health: HealthConfig = field(default_factory=HealthConfig)
    drain: DrainConfig = field(default_factory=DrainConfig)


def check_structure(root: Value) -> Checked:
    """Every key, type and range. Parts without a mistake are kept, so that they can be checked against each other."""
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
    broken = {error["loc"][:2] for error in errors if error["loc"] not in unknown}
    whole = _without(root, unknown, ())
    tree = whole if isinstance(whole, dict) else {}
    switch = _valid(SwitchConfig, tree.get("switch"))
    health = _valid(HealthConfig, tree.get("health", {})) or HealthConfig()
    drain = _valid(DrainConfig, tree.get("drain", {})) or DrainConfig()
    services = tree.get("services")
    if not isinstance(services, list) or ("services",) in broken:
        return Checked(switch, (), remarks, omitted, health, drain)
    sound = ((i, _valid(ServiceConfig, s)) for i, s in enumerate(services) if ("services", i) not in broken)
    whole_services = tuple((i, service) for i, service in sound if service is not None)
    return Checked(switch, whole_services, remarks, omitted, health, drain)


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
