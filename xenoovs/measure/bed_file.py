"""The file of a bed: which machines play which role. Strict: an unknown key is an error with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

import yaml

from xenoovs.errors import ConfigError, Finding, MeasureError, did_you_mean
from xenoovs.measure.bed import PKTGEN, TCPREPLAY
from xenoovs.model.address import parse_mac
from xenoovs.records import dataclass

_LARGEST = 1 << 20
_HOST = re.compile(
    r"(?P<kind>ssh)://(?P<target>[A-Za-z0-9_][\w.@-]*|(?:[\w.-]+@)?\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"|(?P<netns>netns):(?P<name>[\w.-]+)|(?P<lab>lab):(?P<lab_name>[a-z0-9-]+)",
    re.ASCII,
)
_INTERFACE = re.compile(r"[^\s/:]{1,15}")


@dataclass(frozen=True, slots=True)
class HostName:
    """Where a role is.

    Attributes:
        text: As in the file.
        kind: `ssh`, `netns` or `lab`.
        name: `user@host`, the namespace, or the lab.
        port: Of ssh; None: that of ssh's settings.
    """

    text: str
    kind: str
    name: str
    port: int | None = None


@dataclass(frozen=True, slots=True)
class BedRole:
    """One machine of a bed file.

    Attributes:
        role: `generator`, `client`, `dpu`, or the name of a backend.
        host: Where it is.
        interfaces: Its interface; of the dpu the uplinks.
        address: Its own IP address, or empty.
        mac: The MAC that packets to it have, or empty: that of its interface.
        driver: Program that sends the load, of the generator.
    """

    role: str
    host: HostName
    interfaces: tuple[str, ...]
    address: str = ""
    mac: str = ""
    driver: str = TCPREPLAY


@dataclass(frozen=True, slots=True)
class BedFile:
    """A whole file."""

    generator: BedRole
    client: BedRole
    dpu: BedRole
    backends: tuple[BedRole, ...]

    @property
    def roles(self) -> tuple[BedRole, ...]:
        return (self.generator, self.client, self.dpu, *self.backends)

    @property
    def document(self) -> dict[str, object]:
        """The bed for `run.json`."""
        return {
            role.role if role in (self.generator, self.client, self.dpu) else f"backends.{role.role}": {
                "host": role.host.text,
                "interfaces": list(role.interfaces),
                **({"address": role.address} if role.address else {}),
                **({"mac": role.mac} if role.mac else {}),
                **({"driver": role.driver} if role.driver != TCPREPLAY else {}),
            }
            for role in self.roles
        }


def load_bed_file(path: Path) -> BedFile:
    """Read a bed file. Raises MeasureError, or ConfigError with every mistake and its line."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasureError(
            f"cannot read the bed file {path}: {reason}; `xenoovs measure check --help` shows an example"
        ) from None
    return parse_bed_file(data, file=str(path))


def parse_bed_file(data: bytes | str, *, file: str) -> BedFile:
    """Return the bed that a text describes. Raises ConfigError."""
    reader = _BedReader(file)
    try:
        node = yaml.compose(data, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigError([Finding(file, line, column, "", str(error.problem or error.context))]) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([Finding(file, 1, 1, "", f"this is not YAML: {str(error).splitlines()[0]}")]) from None
    if node is None:
        raise ConfigError(
            [Finding(file, 1, 1, "", "the file is empty; `xenoovs measure check --help` shows an example")]
        )
    bed = reader.bed(node)
    if reader.findings or bed is None:
        raise ConfigError(reader.findings)
    return bed


class _Wrong(Exception):
    """A finding was added."""


class _BedReader:
    """Reads nodes of YAML, and collects every mistake."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def bed(self, node: yaml.Node) -> BedFile | None:
        try:
            keys = self.mapping(node, "", ("version", "generator", "client", "dpu", "backends"))
        except _Wrong:
            return None
        if "version" in keys and self.text(keys["version"], "version") != "1":
            self.add(keys["version"], "version", "only version 1 is known")
        self.required(node, "", keys, ("version", "generator", "client", "dpu", "backends"))
        roles = [self.role(keys[name], name, name) for name in ("generator", "client", "dpu") if name in keys]
        backends: list[BedRole | None] = []
        if "backends" in keys:
            backends = self.backends(keys["backends"])
        if self.findings:
            return None
        generator, client, dpu, *others = [role for role in (*roles, *backends) if role is not None]
        if not client.address:
            self.add(keys["client"], "client", "`address` is missing: requests come from it; add `address: 10.3.10.42`")
            return None
        return BedFile(generator, client, dpu, tuple(others))

    def backends(self, node: yaml.Node) -> list[BedRole | None]:
        try:
            found = self.mapping(node, "backends", None)
        except _Wrong:
            return []
        if not found:
            self.add(
                node, "backends", "there is none; add `NAME: {host: ..., interface: ...}` with names of the config"
            )
        return [self.role(each, f"backends.{name}", name) for name, each in found.items()]

    def role(self, node: yaml.Node, path: str, name: str) -> BedRole | None:
        is_dpu = path == "dpu"
        interface = "uplinks" if is_dpu else "interface"
        before = len(self.findings)
        try:
            keys = self.mapping(
                node, path, ("host", interface, "address", "mac", *(["driver"] if name == path else []))
            )
        except _Wrong:
            return None
        self.required(node, path, keys, ("host", interface))
        driver = self.text(keys["driver"], f"{path}.driver") if "driver" in keys else TCPREPLAY
        if driver not in (TCPREPLAY, PKTGEN):
            message = _DRIVERS.get(driver, f"{driver!r} is not known; use tcpreplay or pktgen")
            self.add(keys["driver"], f"{path}.driver", message)
        host = self.host(keys["host"], f"{path}.host") if "host" in keys else None
        names: Sequence[yaml.Node] = ()
        if interface in keys:
            names = self.sequence(keys[interface], f"{path}.{interface}") if is_dpu else (keys[interface],)
        interfaces = tuple(self.interface(each, f"{path}.{interface}") for each in names)
        address = self.parsed(keys, path, "address", lambda text: str(ip_address(text)))
        mac = self.parsed(keys, path, "mac", lambda text: str(parse_mac(text)))
        if len(self.findings) > before or host is None:
            return None
        return BedRole(name, host, interfaces, address, mac, driver)

    def host(self, node: yaml.Node, path: str) -> HostName | None:
        text = self.text(node, path)
        found = _HOST.fullmatch(text)
        if found is None or int(found["port"] or 1) > 65535:
            self.add(node, path, f"{text!r} is no host; write ssh://user@host, ssh://host:port, netns:NAME or lab:NAME")
            return None
        if found["kind"]:
            return HostName(text, "ssh", found["target"].replace("[", "").replace("]", ""), _number(found["port"]))
        return HostName(text, "netns" if found["netns"] else "lab", found["name"] or found["lab_name"])

    def interface(self, node: yaml.Node, path: str) -> str:
        text = self.text(node, path)
        if text and not _INTERFACE.fullmatch(text):
            self.add(node, path, f"{text!r} is no name of an interface")
        return text

    def parsed(self, keys: Mapping[str, yaml.Node], path: str, key: str, parse: object) -> str:
        if key not in keys:
            return ""
        text = self.text(keys[key], f"{path}.{key}")
        try:
            return str(parse(text))  # type: ignore[operator]
        except ValueError as error:
            self.add(keys[key], f"{path}.{key}", str(error))
            return ""

    def text(self, node: yaml.Node, path: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.value:
            return str(node.value)
        self.add(node, path, "expected a text")
        return ""

    def sequence(self, node: yaml.Node, path: str) -> Sequence[yaml.Node]:
        if isinstance(node, yaml.SequenceNode) and node.value:
            return list(node.value)
        self.add(node, path, "expected a list, such as [p0, p1]")
        return ()

    def mapping(self, node: yaml.Node, path: str, known: Iterable[str] | None) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self.add(node, path, "expected keys with values, as in {host: ssh://root@fips4, interface: ens1f0}")
            raise _Wrong
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            inner = f"{path}.{key}" if path else key
            if known is not None and key not in known:
                listed = ", ".join(known)
                self.add(key_node, inner, f"the key is not known; known are {listed}.{did_you_mean(key, known)}")
            elif key in found:
                self.add(key_node, inner, "the key stands here a second time; remove one")
            else:
                found[key] = value
        return found

    def required(self, node: yaml.Node, path: str, keys: Mapping[str, yaml.Node], names: Iterable[str]) -> None:
        for name in names:
            if name not in keys:
                self.add(node, path, f"`{name}` is missing")

    def add(self, node: yaml.Node, path: str, message: str) -> None:
        self.findings.append(Finding(self.file, node.start_mark.line + 1, node.start_mark.column + 1, path, message))


_DRIVERS = {
    "trafgen": "trafgen sends the frames of a whole second at once when it is given a rate; use tcpreplay",
    "trex": "TRex is driven by its own console, with the profile of `xenoovs measure trex-profile`; use tcpreplay",
}


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
