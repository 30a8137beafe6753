"""The file of a bed: which machines play which role. Strict, as a config: every mistake has its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from xenoovs.dataclass import dataclass, replace
from xenoovs.measure.bed import PKTGEN, TCPREPLAY
from xenoovs.model import values
from xenoovs.model.form import Listed, Mistakes, read
from xenoovs.model.load import load_form
from xenoovs.model.values import Key, Remark, accepts, show

_HOST = re.compile(
    r"(?P<kind>ssh)://(?P<target>[A-Za-z0-9_][\w.@-]*|(?:[\w.-]+@)?\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"|(?P<netns>netns):(?P<name>[\w.-]+)|(?P<lab>lab):(?P<lab_name>[a-z0-9-]+)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class HostName:
    """Where a role is. `kind`: `ssh`, `netns` or `lab`. `port`: of ssh; None: that of ssh's settings."""

    text: str
    kind: str
    name: str
    port: int | None = None


@accepts()
def _host(value: object) -> HostName:
    found = _HOST.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found["port"] or 1) > values.MAX_PORT:
        raise ValueError(f"{show(value)} is no host; write ssh://user@host, ssh://host:port, netns:NAME or lab:NAME")
    if found["kind"]:
        port = None if found["port"] is None else int(found["port"])
        return HostName(found[0], "ssh", found["target"].replace("[", "").replace("]", ""), port)
    return HostName(found[0], "netns" if found["netns"] else "lab", found["name"] or found["lab_name"])


_DRIVERS = {
    "trafgen": "trafgen sends the frames of a whole second at once when it is given a rate; use tcpreplay",
    "trex": "TRex is driven by its own console, with the profile of `xenoovs measure trex-profile`; use tcpreplay",
}


@accepts()
def _driver(value: object) -> str:
    if value not in (TCPREPLAY, PKTGEN):
        raise ValueError(_DRIVERS.get(str(value), f"{show(value)} is not known; use tcpreplay or pktgen"))
    return str(value)


_INTERFACE = accepts()(lambda value: (values.device(value),))
_ADDRESS = Key(accepts()(lambda value: str(values.server_address(value))))
_MAC = Key(accepts()(lambda value: str(values.mac(value))))


@dataclass(frozen=True, slots=True)
class BedRole:
    """One machine of a bed file. `role`: `generator`, `client`, `dpu`, or the name of a backend.

    `address`: its own one, or empty. `mac`: that packets to it have; empty: that of its interface.
    """

    host: Annotated[HostName, Key(_host)]
    interfaces: Annotated[tuple[str, ...], Key(_INTERFACE, name="interface")]
    address: Annotated[str, _ADDRESS] = ""
    mac: Annotated[str, _MAC] = ""
    driver: str = TCPREPLAY
    role: str = ""


@dataclass(frozen=True, slots=True)
class GeneratorRole(BedRole):
    """The machine that sends the load."""

    driver: Annotated[str, Key(_driver)] = TCPREPLAY


@dataclass(frozen=True, slots=True)
class DpuRole(BedRole):
    """The machine with Open vSwitch; its interfaces are the uplinks."""

    interfaces: Annotated[tuple[str, ...], Key(Listed(values.device, least=1), name="uplinks")]


@accepts()
def _backends(value: object) -> tuple[BedRole, ...]:
    if not isinstance(value, dict) or not value:
        raise ValueError(
            f"{show(value)} names no backend; add `NAME: {{host: ..., interface: ...}}` with names of the config"
        )
    read_roles = {name: read(BedRole, tree) for name, tree in value.items()}
    wrong = [replace(each, path=(name, *each.path)) for name, (_, remarks) in read_roles.items() for each in remarks]
    if wrong:
        raise Mistakes(wrong)
    return tuple(replace(role, role=name) for name, (role, _) in read_roles.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class BedFile:
    version: Annotated[int, Key(values.version)]
    generator: Annotated[BedRole, Key(GeneratorRole)]
    client: Annotated[BedRole, Key(BedRole)]
    dpu: Annotated[BedRole, Key(DpuRole)]
    backends: Annotated[tuple[BedRole, ...], Key(_backends)]

    @property
    def roles(self) -> tuple[BedRole, ...]:
        return (self.generator, self.client, self.dpu, *self.backends)

    @property
    def document(self) -> dict[str, object]:
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
    """Read a bed file. Raises FileUnusable, or ConfigError with every mistake and its line."""
    file = load_form(path, BedFile, _check)
    single = {name: replace(getattr(file, name), role=name) for name in ("generator", "client", "dpu")}
    return replace(file, **single)


def _check(file: BedFile) -> Iterator[Remark]:
    if not file.client.address:
        yield Remark(("client",), "`address` is missing: requests come from it; add `address: 10.3.10.42`")
