"""A lab as a value, and the file in its directory that describes it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from xenoovs.dataclass import asdict, dataclass
from xenoovs.errors import LabError, did_you_mean, first_names
from xenoovs.lab.fabric_topology import Fabric
from xenoovs.lab.private_ovs import PrivateOvs, start_vswitchd_again, stop_process
from xenoovs.lab.topology import Topology, check_name
from xenoovs.switch.endpoint import Endpoint

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer

MARK = "XENOOVS_LAB_PROCESS"
"""Environment variable of every process of a lab; its value is the lab's directory."""

DIRECTORY_VARIABLE = "XENOOVS_LAB_DIRECTORY"
DEFAULT_DIRECTORY = Path("/run/xenoovs/lab")

CONFIG = "config.yaml"
"""The file in a lab's directory with its config: the one of `up`, or of the last agent that ran in the lab."""

CONFIG_SOURCE = "config.link"
"""A link to the file of that config, if there is one."""

_STATE = "lab.json"
_MACHINE = "vm"
_LOCK_PATIENCE_S = 1.0
_LOCK_STEP_S = 0.01


class UnreadableLab(LabError):
    """A lab whose state file cannot be read."""


@dataclass(frozen=True, slots=True)
class LabState:
    """The content of the state file. `nic`: whether the lab's ports are those of an emulated NIC. Such a lab is in a
    virtual machine, in which another state file has `nic` False."""

    complete: bool
    topology: Topology | Fabric
    nic: bool = False


@dataclass(frozen=True, slots=True)
class FabricLab:
    """A fabric lab. `directory` holds the config and the Open vSwitch of each DPU."""

    directory: Path
    fabric: Fabric

    @property
    def name(self) -> str:
        return self.fabric.name

    @property
    def marks(self) -> dict[str, str]:
        return marks_of(self.directory)

    def ovs(self, dpu: str) -> PrivateOvs:
        return PrivateOvs(self.directory / dpu, self.marks)

    def config(self, dpu: str) -> Path:
        return self.directory / f"{dpu}.yaml"


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab; it implements `xenoovs.terminal.defaults.LabTarget`.

    `directory` (mode 0700) has the state, the logs, and the private Open vSwitch in `ovs`.
    """

    directory: Path
    topology: Topology

    @property
    def name(self) -> str:
        return self.topology.name

    @property
    def marks(self) -> dict[str, str]:
        return marks_of(self.directory)

    @property
    def ovs(self) -> PrivateOvs:
        return PrivateOvs(self.directory / "ovs", self.marks)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.ovs.db, self.ovs.directory)

    def adapted(self, balancer: Balancer) -> Balancer:
        from xenoovs.lab.probing import in_lab

        return in_lab(balancer, self.topology)

    def namespace_of(self, mac: str, egress: str) -> str | None:
        return next((m.namespace for m in self.topology.machines if (m.mac, m.egress) == (mac, egress)), None)

    def restart_vswitchd(self) -> None:
        from xenoovs.switch.vswitchd import find_process

        if (process := find_process(self.endpoint)) is not None:
            stop_process(process.pid)
        start_vswitchd_again(self.ovs)


def marks_of(directory: Path) -> dict[str, str]:
    """Return the environment that marks every process of the lab in `directory`."""
    return {MARK: str(directory)}


def directory_of(name: str, directory: Path | None) -> Path:
    """Return the directory of lab `name`: below `directory`, else $XENOOVS_LAB_DIRECTORY, else /run/xenoovs/lab. Raises
    LabError if the name is not usable."""
    check_name(name)
    base = directory if directory is not None else Path(os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)
    return base.absolute() / name


def lab_names(directory: Path | None = None) -> tuple[str, ...]:
    """Return the names of the labs on this host, sorted. Raises LabError without permission to list them."""
    base = directory_of("any", directory).parent
    try:
        return tuple(sorted(entry.name for entry in base.iterdir() if (entry / _STATE).exists()))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except PermissionError:
        raise LabError(f"{base} belongs to root: run the same command with `sudo`") from None


def machine_directory(place: Path) -> Path:
    return place / _MACHINE


def check_built(name: str, state: LabState) -> None:
    """Raise LabError if `lab up` did not finish."""
    if not state.complete:
        raise LabError(f"lab {name} was never completed; remove it with `xenoovs lab down --lab {name}`")


def open_lab(name: str, *, directory: Path | None = None) -> Lab:
    """Return a lab that is up. Raises LabError if it is missing, incomplete, a fabric or in a virtual machine."""
    place = directory_of(name, directory)
    state = read_state(place)
    if state is None:
        names = lab_names(directory)
        others = f"; labs here: {first_names(names)}{did_you_mean(name, names, ' (did you mean {}?)')}" if names else ""
        raise LabError(f"there is no lab {name} ({place}){others}; make it with `xenoovs lab up --lab {name}`")
    check_built(name, state)
    if state.nic:
        raise LabError(f"lab {name} is in a virtual machine: `xenoovs lab exec --lab {name} -- COMMAND` runs in it")
    if isinstance(state.topology, Fabric):
        dpu = state.topology.sites[0].dpu
        raise LabError(
            f"lab {name} is a fabric with {len(state.topology.sites)} switches: "
            f"`xenoovs lab exec --lab {name} --on {dpu} -- xenoovs COMMAND` runs a command on one of its DPUs"
        )
    return Lab(place, state.topology)


def fabric_of(name: str) -> FabricLab | None:
    """Return a fabric lab; None if no lab has that name, or it is no fabric. Raises LabError if it is incomplete."""
    place = directory_of(name, None)
    state = read_state(place)
    if state is None or not isinstance(state.topology, Fabric):
        return None
    check_built(name, state)
    return FabricLab(place, state.topology)


def open_fabric(name: str) -> FabricLab:
    """Return a fabric lab that is up. Raises LabError if there is none of that name."""
    if lab := fabric_of(name):
        return lab
    made = f"make one with `xenoovs lab up --topology fabric --lab {name}`"
    if read_state(directory_of(name, None)) is None:
        raise LabError(f"there is no lab {name}; {made}")
    raise LabError(f"lab {name} is no fabric; {made} after `xenoovs lab down --lab {name}`")


def _read(kind: Any, value: Any) -> Any:
    """Convert a value of the state file to the type of a field. Raises ValueError, TypeError."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(value, list):
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return tuple(_read(one, each) for one, each in zip(kinds, value, strict=True))
    if parts:
        is_record = isinstance(value, dict) and parts == (Topology, Fabric)
        return None if value is None else _read(parts["sites" in value if is_record else 0], value)
    if hasattr(kind, "__dataclass_fields__") and isinstance(value, dict):
        hints = get_type_hints(kind)
        return kind(**{name: _read(hints.get(name), each) for name, each in value.items()})
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind}")
    return value


def read_state(place: Path) -> LabState | None:
    """Read the state of the lab in `place`; None if there is no lab. Raises UnreadableLab, LabError (without root)."""
    try:
        state: LabState = _read(LabState, json.loads((place / _STATE).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise LabError(f"{place} belongs to root: run the same command with `sudo`") from None
    except (ValueError, TypeError, RecursionError):
        raise UnreadableLab(
            f"{place / _STATE} is not the state of a lab of this version; "
            f"`xenoovs lab down --lab {place.name}` removes the lab"
        ) from None
    return state


def write_state(place: Path, state: LabState) -> None:
    write_whole(place / _STATE, json.dumps(asdict(state), indent=1))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically. Raises OSError, and then leaves no temporary file."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_config(directory: Path, balancer: Balancer) -> None:
    """Write the config of a lab into its directory, atomically."""
    from xenoovs.model.emit import render_config

    write_whole(directory / CONFIG, render_config(balancer))


def link_config(directory: Path, config: Path) -> None:
    """Link the lab's config file into the lab's directory, atomically. Commands without FILE use the link."""
    draft = directory / f"{CONFIG_SOURCE}.new"
    draft.unlink(missing_ok=True)
    draft.symlink_to(config.resolve())
    draft.replace(directory / CONFIG_SOURCE)


def config_of(lab: Lab) -> Balancer:
    """Return the config of a lab. Raises ConfigError, ConfigUnreadable."""
    from xenoovs.model.load import load_config

    return lab.adapted(load_config(lab.directory / CONFIG, for_lab=True))


@contextmanager
def sole_owner(place: Path) -> Iterator[None]:
    """Hold the lock of a lab's directory; the kernel releases it when the process exits (flock(2)). Raises LabError if
    another process builds, changes or removes this lab."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    # A killed `up` may leave a child between fork and exec, which holds the lock a little longer. So once the lock is
    # held, every child has executed its program, and has the mark of the lab in its environment.
    deadline, is_held = time.monotonic() + _LOCK_PATIENCE_S, False
    try:
        while not is_held:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(
                        f"lab {place.name} is being built, changed or removed at this moment; try again"
                    ) from None
                time.sleep(_LOCK_STEP_S)
        yield
    finally:
        os.close(descriptor)
