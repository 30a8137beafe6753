"""Decisions in files, with the config that they were made for: saved plans, and the entries of the history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from shlex import join
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from xenoovs import __version__
from xenoovs.decision.document import Strict, parse_decision
from xenoovs.display import unique_keys
from xenoovs.engine.change import Change, PlanOptions, lines_of, require_unchanged
from xenoovs.engine.document import MAX_TEXT, digest, facts_of
from xenoovs.errors import (
    BridgeChanged,
    ConfigError,
    DecisionMalformed,
    ParseError,
    SavedMalformed,
    StalePlan,
)
from xenoovs.evidence.dump_file import read_text
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.openflow.text import render_flow_mod

Text = Annotated[str, Field(max_length=MAX_TEXT)]
S = TypeVar("S", bound=Strict)


class SavedConfig(Strict):
    """A config in normal form. `file`: where it was read; `sha256`: of the lines."""

    file: Text
    sha256: str
    lines: list[str]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @model_validator(mode="after")
    def _is_whole(self) -> SavedConfig:
        if digest(self.text) != self.sha256:
            raise ValueError("the config does not match `sha256`")
        return self


class SavedDecision(Strict):
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
        return digest(self.model_dump_json(exclude={"sha256"}))

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


def plan_of(change: Change, *, file: str, options: PlanOptions, user: str) -> SavedPlan:
    """Return a change, planned with these options for the config in `file`, in the form that is saved."""
    before, flow_mods = sorted(lines_of(change.dump)), _flow_mods(change)
    facts = facts_of(change, file=file, partial=options.partial, user=user)
    facts["config"] = SavedConfig.model_construct(**facts["config"])
    plan = SavedPlan.model_construct(**facts, drain=options.drain, before=before, flow_mods=flow_mods)
    return plan.signed()


def load(path: Path, kind: type[S]) -> S:
    """Return what `document.save` wrote. Raises SavedMalformed, with line and column, if it has another form; OSError
    or FileUnusable if it cannot be read or is too long."""
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


def _flow_mods(change: Change) -> list[str]:
    return [render_flow_mod(mod) for mod in change.bundle.mods]


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
