"""Sockets that many probes share: opened for the first, closed after the last, so none is ever left over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Anything that holds a socket."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


@dataclass(slots=True)
class _Entry(Generic[C]):
    channel: C
    users: int = 0


class Shared(Generic[C]):
    """Channels by key. A channel that fails with OSError gets no new users: its device may be gone for good."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry[C]] = {}

    @contextmanager
    def use(self, key: Hashable, start: Callable[[], C]) -> Iterator[C]:
        """The channel of this key; `start` makes it when nobody uses one. Raises what `start` raises."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(start())
        entry.users += 1
        try:
            yield entry.channel
        except OSError:
            self._forget(key, entry)
            raise
        finally:
            entry.users -= 1
            if entry.users == 0:
                self._forget(key, entry)
                entry.channel.close()

    def _forget(self, key: Hashable, entry: _Entry[C]) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]
