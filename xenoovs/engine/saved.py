"""Decisions in files, with the config that they were made for: saved plans, and the entries of the history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from shlex import join
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json

from xenoovs import __version__
from xenoovs.decision.document import decision_document, parse_decision
from xenoovs.display import unique_keys
from xenoovs.engine.change import Change, PlanOptions, summary_of
from xenoovs.errors import (
    BridgeChanged,
    ConfigError,
    DecisionMalformed,
    FileUnusable,
    ParseError,
    SavedMalformed,
    StalePlan,
)
from xenoovs.evidence.dump_file import MAX_TEXT_BYTES, read_text
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.model.remote import every_service
from xenoovs.openflow.flow import Flow, service_of
from xenoovs.openflow.text import parse_dump, render_flow, render_flow_mod
from xenoovs.switch.undo_journal import replace_file

_MAX_TEXT = 4096
Text = Annotated[str, Field(max_length=_MAX_TEXT)]
S = TypeVar("S", bound="_Stored")


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SavedConfig(_Stored):
    """A config in normal form. `file`: where it was read; `sha256`: of the lines."""

    file: Text
    sha256: str
    lines: list[str]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @model_validator(mode="after")
    def _is_whole(self) -> SavedConfig:
        if _digest(self.text) != self.sha256:
            raise ValueError("the config does not match `sha256`")
        return self


class SavedDecision(_Stored):
    """The desired state of a bridge: a decision, and the config with the next hops of its backends. `xenoovs` is the
    version that wrote the file."""

    xenoovs: Text
    at: Annotated[datetime, Field(strict=False)]
    user: Text
    bridge: Text
    partial: bool
    config: SavedConfig
    decision: dict[str, Any]

    def balancer(self) -> Balancer:
        """Return the config. Raises ConfigError."""
        # It may have addresses that a lab gave to backends, which only the checks for a lab accept.
        return parse_config(self.config.text, file=f"<config saved from {self.config.file}>", for_lab=True)

    def options(self, *, drain: bool = True, partial: bool = False) -> PlanOptions:
        """Return the options with which an engine plans exactly this. Raises DecisionMalformed."""
        decision = parse_decision(self.decision)
        return PlanOptions(drain=drain, partial=self.partial or partial, decision=decision)

    @property
    def local_time(self) -> str:
        return self.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")

    @property
    def names(self) -> dict[int, str]:
        """The names of the services by their ids."""
        return {int(each["id"], 16): each["name"] for each in self.decision["services"] if each.get("name")}

    @model_validator(mode="after")
    def _has_a_decision(self) -> SavedDecision:
        try:
            parse_decision(self.decision)
        except DecisionMalformed as error:
            raise ValueError(f"the decision is invalid: {error.path}: {error.reason}") from None
        return self


class SavedPlan(SavedDecision):
    """A plan, and the state of the bridge for which it was made. `sha256`: of all other values, as they were
    written."""

    xenoovs_plan: Literal[1] = 1
    drain: bool
    before: list[str]
    flow_mods: list[str]
    sha256: str | None = None

    def signed(self) -> SavedPlan:
        return self.model_copy(update={"sha256": self._digest()})

    def _digest(self) -> str:
        return _digest(self.model_dump_json(exclude={"sha256"}))

    def _require_unedited(self, file: Path) -> None:
        if self.sha256 not in (None, self._digest()):
            again = f"nothing was applied: plan again with `{self.again(file)}`"
            reason = f"it was edited after `xenoovs plan` wrote it; {again}"
            raise SavedMalformed(file=str(file), line=1, column=1, reason=reason)

    @model_validator(mode="after")
    def _is_of_one_bridge(self) -> SavedPlan:
        try:
            bridge = parse_config(self.config.text, file="config", for_lab=True).uplinks.bridge
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if bridge != self.bridge:
            raise ValueError(f"the config is for bridge {bridge}, and the plan for {self.bridge}")
        return self

    def again(self, path: Path) -> str:
        """Return the command that writes this plan, at `path`, again."""
        return join(["xenoovs", "plan", self.config.file, "--out", str(path)])

    def check(self, change: Change, *, file: Path) -> None:
        """Raise BridgeChanged, StalePlan or SavedMalformed unless the change, planned now, is that of the file."""
        since = f"the plan in {file} was made at {self.local_time}"
        try:
            require_unchanged(change, "\n".join(self.before), since=since, again=self.again(file))
        except ParseError as error:
            line, column = _position(read_text(file), ("before", (error.line or 1) - 1))
            raise SavedMalformed(file=str(file), line=line, column=column, reason=f"before: {error}") from None
        except BridgeChanged:
            self._require_unedited(file)
            raise
        if _flow_mods(change) != self.flow_mods:
            self._require_unedited(file)
            raise StalePlan(file=str(file), made_by=self.xenoovs, version=__version__, again=self.again(file))


class HistoryEntry(SavedDecision):
    """A change that a command applied. `changed`: in words. `summary`: as in `xenoovs plan -o json`."""

    xenoovs_history: Literal[1] = 1
    number: Annotated[int, Field(ge=1)]
    command: Text
    changed: str
    summary: dict[str, Any]


def facts_of(change: Change, *, file: str, partial: bool, user: str) -> dict[str, Any]:
    """Return the values of a SavedDecision for a change. Raises FileUnusable."""
    balancer = change.asked.balancer
    try:
        text = render_config(balancer)
    except ValueError as error:
        raise FileUnusable(file=file, reason=str(error)) from None
    services = every_service(balancer)
    ids = service_ids(service.claim for service in services)
    names = {ids[service.claim]: service.name for service in services}
    return {
        "xenoovs": __version__,
        "at": datetime.now(timezone.utc).replace(microsecond=0),
        "user": _storable(user),
        "bridge": change.bridge,
        "partial": partial,
        "config": SavedConfig.model_construct(file=_storable(file), sha256=_digest(text), lines=text.splitlines()),
        "decision": decision_document(change.target.decision, names),
    }


def entry_of(change: Change, *, file: str, partial: bool, user: str, number: int, command: str) -> HistoryEntry:
    summary = summary_of(change)
    moved = "; clients moved: " + summary.moved_text if summary.moved else ""
    changed = f"{summary.headline()}{moved}" if change.difference.flow_mods else "nothing differed"
    facts = facts_of(change, file=file, partial=partial, user=user)
    # Not validated, as its values come from a plan: to parse decision and config would take as long as to compile.
    return HistoryEntry.model_construct(
        **facts, number=number, command=_storable(command), changed=changed, summary=summary.document
    )


def plan_of(change: Change, *, file: str, options: PlanOptions, user: str) -> SavedPlan:
    """Return a change, planned with these options for the config in `file`, in the form that is saved."""
    before, flow_mods = sorted(_lines(change.dump)), _flow_mods(change)
    facts = facts_of(change, file=file, partial=options.partial, user=user)
    plan = SavedPlan.model_construct(**facts, drain=options.drain, before=before, flow_mods=flow_mods)
    return plan.signed()


def save(path: Path, document: SavedPlan | HistoryEntry) -> None:
    """Write a file of mode 0600, completely or not at all. Raises OSError, FileUnusable."""
    values = document.model_dump(mode="json")
    # First, so that the kind of the file can be seen at its start.
    first = {key: values[key] for key in values if key.startswith("xenoovs_")}
    data = to_json({**first, **values}, indent=1) + b"\n"
    if len(data) > MAX_TEXT_BYTES:
        raise FileUnusable(file=str(path), reason=f"it would have more than {MAX_TEXT_BYTES >> 20} MiB")
    replace_file(path, data)


def load(path: Path, kind: type[S]) -> S:
    """Return what `save` wrote. Raises SavedMalformed, with line and column, if it has another form; OSError or
    FileUnusable if it cannot be read or is too long."""
    text = read_text(path)
    try:
        return kind.model_validate(json.loads(text, object_pairs_hook=unique_keys))
    except json.JSONDecodeError as error:
        raise SavedMalformed(file=str(path), line=error.lineno, column=error.colno, reason=error.msg) from None
    except ValidationError as error:
        first = error.errors()[0]
        line, column = _position(text, first["loc"])
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg'].removeprefix('Value error, ')}" if where else first["msg"]
        raise SavedMalformed(file=str(path), line=line, column=column, reason=reason) from None
    except (ValueError, RecursionError) as error:
        raise SavedMalformed(file=str(path), line=1, column=1, reason=str(error)) from None


def require_unchanged(change: Change, before: str, *, since: str, again: str) -> None:
    """Raise BridgeChanged if the flows for which the change was planned differ from those in the dump `before`.
    `since`: what happened when it had those, for the message. `again`: the command that plans again."""
    # Most often the texts are equal, which is faster to find out.
    if before == change.dump or _lines(before) == _lines(change.dump):
        return
    old, new = ({seen.flow.key: seen.flow for seen in parse_dump(text)} for text in (before, change.dump))
    differing = [old.get(key) or new[key] for key in {**old, **new} if old.get(key) != new.get(key)]
    if not differing:
        return
    names = {made.service_id: made.service.name for made in change.program.services}
    services = [_service_name(flow, {**change.names, **names}) for flow in differing]
    raise BridgeChanged(
        bridge=change.bridge,
        since=since,
        services={name: services.count(name) for name in sorted(set(services))},
        example=render_flow(replace(differing[0], cookie=0)),
        again=again,
    )


def _service_name(flow: Flow, names: dict[int, str]) -> str:
    service_id = service_of(flow.cookie)
    return names.get(service_id, f"id {service_id:#x}") if service_id else "no service"


def _lines(dump: str) -> set[str]:
    return {line.strip() for line in dump.splitlines() if "actions=" in line}


def _flow_mods(change: Change) -> list[str]:
    return [render_flow_mod(mod) for mod in change.bundle.mods]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _storable(name: str) -> str:
    """Return a name as JSON can have it: without bytes that are no UTF-8, and not too long."""
    return name.encode(errors="backslashreplace").decode()[:_MAX_TEXT]


def _position(text: str, path: Sequence[int | str]) -> tuple[int, int]:
    """Return line and column of the value at a path in JSON text, or of the innermost value that contains it."""
    try:
        # JSON is YAML, but for some characters, and libyaml keeps positions.
        node: Any = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):
        return 1, 1
    for step in path:
        inner: dict[object, Any] = dict(enumerate(node.value if isinstance(node, yaml.SequenceNode) else ()))
        if isinstance(node, yaml.MappingNode):
            inner = {key.value: value for key, value in node.value}
        if step not in inner:
            break
        node = inner[step]
    return node.start_mark.line + 1, node.start_mark.column + 1
