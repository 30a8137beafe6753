"""Splits a config with `bridges` into one config for each bridge.

The tree is split before its form is checked. Each bridge gets the tree of a file with `switch` and the services on this
bridge, so everything after it knows configs of one bridge only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations

from xenoovs.config.include import JoinedConfig
from xenoovs.errors import BridgeNotChosen, ConfigError, Finding, did_you_mean, first_names
from xenoovs.model import values
from xenoovs.model.balancer import label_of
from xenoovs.model.values import KeyPath, Value, show

MAX_BRIDGES = 100
_DEFAULT_NAME = "ovsbr1"
"""As of SwitchConfig, which this module must not import: it imports pydantic."""


@dataclass(frozen=True, slots=True)
class BridgeTree:
    """The part of a config about one bridge.

    Attributes:
        name: Of the bridge; empty where the file has none that is text. `datapath_id`: as far as it is one.
        joined: The files, with the tree of this bridge alone.
        is_listed: Whether it stands in `bridges`, and not as `switch`.
    """

    name: str
    datapath_id: int | None
    joined: JoinedConfig
    is_listed: bool

    @property
    def label(self) -> str:
        """As `Uplinks.label`."""
        return label_of(self.name, self.datapath_id)

    def is_called(self, name: str) -> bool:
        """Return whether a name means this bridge, and perhaps others of the same name on other hosts."""
        return name in (self.name, self.label)

    def may_be(self, other: BridgeTree) -> bool:
        """Return whether both may be one bridge."""
        ids = {self.datapath_id, other.datapath_id}
        if not self.name or not other.name:
            return False
        return len(ids - {None}) < 2 and (self.name == other.name or None not in ids)


def split_bridges(joined: JoinedConfig) -> tuple[BridgeTree, ...]:
    """Return the trees of all bridges, each with the findings about what the bridges share.

    Raises:
        ConfigError: `bridges` is no list of bridges.
    """
    root = joined.root
    if not isinstance(root, dict):
        return (BridgeTree(_DEFAULT_NAME, None, joined, is_listed=False),)
    if mistake := _mistake(root):
        raise ConfigError([*joined.findings, joined.main.finding(("bridges",), mistake, at_key="switch" in root)])
    listed, made = root.get("bridges"), [_tree(joined, root, ("switch",), root.get("switch"))]
    if isinstance(listed, list):
        made = [_tree(joined, root, ("bridges", index), switch) for index, switch in enumerate(listed)]
    findings = [*joined.findings, *_same_bridges(made), *_unknown_names(joined, made)]
    return tuple(_with_own_services(tree, made, findings) for tree in made)


def choose_bridge(trees: Iterable[BridgeTree], name: str | None, *, file: str) -> BridgeTree:
    """Return the bridge of a name or label; None: the only one.

    Raises:
        BridgeNotChosen: No bridge, or more than one, is meant.
        ConfigError: The config has one bridge twice.
    """
    every = tuple(trees)
    found = [tree for tree in every if name is None or tree.is_called(name)]
    if any(one.may_be(other) for one, other in combinations(found, 2)):
        raise ConfigError(found[0].joined.findings)
    if len(found) != 1:
        raise BridgeNotChosen(file=file, name=name, labels=[tree.label for tree in found or every if tree.name])
    return found[0]


def _mistake(root: dict[str, Value]) -> str:
    """Return what is wrong with `bridges` itself; empty: nothing."""
    if "bridges" not in root:
        return ""
    listed = root["bridges"]
    if "switch" in root:
        return "the file has `switch` too; write that bridge as an item of `bridges`, and remove `switch`"
    if not isinstance(listed, list):
        return f"{show(listed)} is not a list; write items that start with a dash, each with the keys of `switch`"
    if not listed:
        return "the list is empty; write at least 1"
    if len(listed) > MAX_BRIDGES:
        return f"{len(listed)} items are more than the {MAX_BRIDGES} that are supported; split them"
    return ""


def _tree(joined: JoinedConfig, root: dict[str, Value], path: KeyPath, switch: Value) -> BridgeTree:
    given: dict[str, Value] = switch if isinstance(switch, dict) else {"bridge": None}
    name, datapath_id = given.get("bridge", _DEFAULT_NAME), None
    with suppress(ValueError):
        datapath_id = values.datapath_id(given.get("datapath_id"))
    is_listed = path[0] == "bridges"
    if is_listed:
        # In the order of the keys of a file with `switch`.
        root = {("switch" if key == "bridges" else key): value for key, value in root.items()} | {"switch": switch}
    return BridgeTree(
        name if isinstance(name, str) else "", datapath_id, replace(joined, root=root, switch=path), is_listed
    )


def _same_bridges(trees: list[BridgeTree]) -> Iterator[Finding]:
    for one, other in combinations(trees, 2):
        if one.may_be(other):
            message = (
                f"{other.label} is already {values.render_path(one.joined.switch)}; list each bridge once. Bridges of "
                "one name on several hosts need `datapath_id:`"
            )
            yield other.joined.main.finding((*other.joined.switch, "bridge"), message)


def _unknown_names(joined: JoinedConfig, trees: list[BridgeTree]) -> Iterator[Finding]:
    """Find the names of bridges that the file does not have, in services, tunnels and `defaults`, where they stand."""
    default: KeyPath = ("defaults", "services", "bridge")
    places = [(part, default) for part in (joined.main, *joined.included)]
    places += [(part, ("services", index, "bridge")) for part, index in joined.origins]
    tunnels = _value_at(joined.main.root, ("tunnels",))
    places += [(joined.main, ("tunnels", index, "bridge")) for index in range(len(_as_list(tunnels)))]
    labels = [tree.label for tree in trees if tree.name]
    for part, path in places:
        value = _value_at(part.root, path)
        for index, name in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(name, str) and not any(tree.is_called(name) for tree in trees):
                guess = did_you_mean(name, labels, "; did you mean {}?") or f"; it has {first_names(labels) or 'none'}"
                where = (*path, index) if isinstance(value, list) else path
                yield part.finding(where, f"the config has no bridge {show(name)}{guess}")


def _value_at(value: Value, path: KeyPath) -> Value:
    for step in path:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            return None
    return value


def _with_own_services(tree: BridgeTree, trees: list[BridgeTree], findings: list[Finding]) -> BridgeTree:
    """Return the tree without services and tunnels that are on other bridges, and what has been found in these."""
    joined, root, origins = tree.joined, tree.joined.root, tree.joined.origins
    if isinstance(root, dict) and isinstance(listed := root.get("services"), list):
        own = [index for index, service in enumerate(listed) if _is_on(tree, service)]
        others = {i for other in trees for i, service in enumerate(listed) if _is_on(other, service)}.difference(own)
        if stray := sorted(set(range(len(listed))).difference(own, others)):
            unswitched = {key: value for key, value in root.items() if key != "switch"}
            stray_root = {**unswitched, "services": [listed[index] for index in stray]}
            joined = replace(joined, stray=replace(joined, root=stray_root, origins=[origins[i] for i in stray]))
        elsewhere = {(origins[i][0].file, f"services[{origins[i][1]}]") for i in others}
        findings = [one for one in findings if (one.file, one.path.partition(".")[0]) not in elsewhere]
        root = {**root, "services": [listed[index] for index in own]}
        origins = [origins[index] for index in own]
    numbers = None
    if isinstance(root, dict) and isinstance(listed := root.get("tunnels"), list):
        numbers = [index for index, tunnel in enumerate(listed) if _is_on(tree, tunnel)]
        root = {**root, "tunnels": [listed[index] for index in numbers]}
    return replace(tree, joined=replace(joined, root=root, origins=origins, findings=findings, tunnels=numbers))


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def _is_on(tree: BridgeTree, service: Value) -> bool:
    """Return whether a service or a tunnel is on a bridge: on all without `bridge`, or with one of a wrong form."""
    if not isinstance(service, dict) or "bridge" not in service:
        return True
    names = service["bridge"] if isinstance(service["bridge"], list) else [service["bridge"]]
    texts = [name for name in names if isinstance(name, str)]
    return len(texts) < len(names) or not names or any(map(tree.is_called, texts))
