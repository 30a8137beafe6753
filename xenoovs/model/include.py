"""Joins the files of a config into one tree: what `include` names, and the `defaults` of each file.

Symbolic links are followed. A path counts from the directory of the file that names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import ConfigUnreadable, Finding
from xenoovs.model.values import KeyPath, Positions, Value, render_path

MAX_SIZE_BYTES = 32 * 1024 * 1024
MAX_FILES = 256
MAX_NESTING = 8
_SUFFIXES = (".yaml", ".yml")

Stamp = tuple[int, int, int]
"""Inode, time of the last change and size: another one means other content."""


class ConfigSources:
    """Reads the files of one config, and records them, so that their changes are noticed. `main`: the config; None: a
    text without a file, which cannot include any. `stamps`: the stat(2) result before each file and directory was read;
    None if it did not exist. `size`: how many bytes were read."""

    def __init__(self, main: Path | None) -> None:
        self.main = main
        self.stamps: dict[Path, Stamp | None] = {}
        self._hash = sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of all that was read, in hexadecimal digits."""
        return self._hash.hexdigest()

    @property
    def is_touched(self) -> bool:
        """Whether a file or a directory has changed since it was read. Costs a stat(2) for each."""
        return any(stamp_of(path) != stamp for path, stamp in self.stamps.items())

    def read(self, path: Path) -> bytes:
        """Return the bytes of a regular file. Never waits for the writer of a pipe. Raises ConfigUnreadable: it cannot
        be read, or the files together are too large."""
        self.stamps[path] = stamp_of(path)
        try:
            with open(path, "rb", opener=_open_nonblocking) as stream:
                if not S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise self._unreadable(path, "it is a pipe or a device, not a file to read again")
                data = stream.read(MAX_SIZE_BYTES + 1)
        except (OSError, ValueError) as error:
            raise self._unreadable(path, reason_of(error)) from None
        self._hash.update(data)
        self.size += len(data)
        if self.size > MAX_SIZE_BYTES and len(self.stamps) > 1:
            reason = f"the files together are larger than {MAX_SIZE_BYTES // 2**20} MiB"
            raise ConfigUnreadable(file=str(path), reason=reason)
        return data

    def files_in(self, directory: Path) -> list[Path]:
        """Return the YAML files of a directory by name; hidden ones and those of other suffixes are left out. Raises
        ConfigUnreadable: it cannot be read."""
        self.stamps[directory] = stamp_of(directory)
        try:
            names = sorted(entry.name for entry in os.scandir(directory))
        except OSError as error:
            raise self._unreadable(directory, reason_of(error)) from None
        found = [name for name in names if name.endswith(_SUFFIXES) and not name.startswith(".")]
        # With their names, so that a file that comes to be empty, or is renamed, is another content.
        self._hash.update("\0".join(found).encode(errors="surrogateescape"))
        return [directory / name for name in found]

    def _unreadable(self, path: Path, reason: str) -> ConfigUnreadable:
        # A config of which a part is missing is another one than that without the part.
        self._hash.update(f"{path}\0{reason}".encode(errors="surrogateescape"))
        return ConfigUnreadable(file=str(path), reason=reason)


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes with the content of a file or directory; None if it is not there."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, in the words of the operating system."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


# One tree of all files, in which each service is known by the file that it comes from.


@dataclass(frozen=True, slots=True)
class ConfigPart:
    """One file of a config: its tree, and what finds where each value of it stands. `findings`: mistakes in spite of
    which it can be read (duplicate keys). `count`: how many values it has, with those of files before it."""

    file: str
    root: Value
    find_places: Callable[[], Positions]
    findings: tuple[Finding, ...] = ()
    count: int = 0

    @property
    def places(self) -> Positions:
        return self.find_places()

    def finding(self, path: KeyPath, message: str, *, at_key: bool = False) -> Finding:
        """Return a mistake at a path of this file."""
        near = self.places.nearest(path)
        place = self.places.of_key(near) if at_key else self.places.of_value(near)
        return Finding(self.file, *place, render_path(near), message)


@dataclass(slots=True)
class JoinedConfig:
    """All files of a config. `root`: one tree, with the services of all files and the defaults in them. `main`: the
    file that includes the others. `origins`: of each service, its file and its index there."""

    root: Value
    main: ConfigPart
    included: list[ConfigPart] = field(default_factory=list)
    origins: list[tuple[ConfigPart, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def locate(self, path: KeyPath) -> tuple[ConfigPart, KeyPath]:
        """Return the file of a path of the tree, and the path in this file."""
        if len(path) > 1 and path[0] == "services" and isinstance(path[1], int) and path[1] < len(self.origins):
            part, index = self.origins[path[1]]
            return part, ("services", index, *path[2:])
        return self.main, path

    def is_default(self, path: KeyPath) -> bool:
        """Return whether the value at a path of the tree stands in `defaults`, and so is checked there."""
        part, own = self.locate(path)
        if own[:1] != ("services",) or len(own) < 3 or part.places.nearest(own) in part.places.values:
            return False
        value = self.root
        for step in path:
            if isinstance(value, dict):
                if step not in value:
                    return False
                value = value[str(step)]
            elif isinstance(value, list) and isinstance(step, int):
                value = value[step]
        return True

    def render(self, path: KeyPath, *, beside: ConfigPart) -> str:
        """Return a path for a message about `beside`; one of another file with its place."""
        part, own = self.locate(path)
        return render_path(own) + ("" if part is beside else f" of {part.file}:{part.places.of_value(own)[0]}")


def included_paths(root: Value) -> Iterator[tuple[KeyPath, str]]:
    """Yield what `include` names, with its path in the tree; values of other forms are left out."""
    given = root.get("include") if isinstance(root, dict) else None
    for index, text in enumerate(given if isinstance(given, list) else [given]):
        if isinstance(text, str) and text and "\0" not in text:
            yield (("include", index) if isinstance(given, list) else ("include",)), text


def with_defaults(own: Value, default: Value) -> Value:
    """Return a value with the keys of `default` that it lacks; lists and single values stay as they are."""
    if not isinstance(own, dict) or not isinstance(default, dict):
        return own
    merged = {key: with_defaults(value, default.get(key)) for key, value in own.items()}
    return {**default, **merged}


def services_of(root: dict[str, Value], defaults: Value) -> Iterable[Value]:
    """Return the services of one file, with the defaults for them and for their backends."""
    listed = root.get("services")
    kinds = defaults if isinstance(defaults, dict) else {}
    for service in listed if isinstance(listed, list) else ():
        made, default = with_defaults(service, kinds.get("services")), kinds.get("backends")
        if default is not None and isinstance(made, dict) and isinstance(backends := made.get("backends"), list):
            made = {**made, "backends": [with_defaults(backend, default) for backend in backends]}
        yield made
