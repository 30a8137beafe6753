"""The whole of it: listens, lets bridges in, and ends without leaving a thread or a socket behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from xenoovs.controller.board import Board
from xenoovs.controller.framework import silence
from xenoovs.controller.keeper import Keeper
from xenoovs.controller.listen import Address, Certificates, Listener
from xenoovs.controller.pipe import Pipe
from xenoovs.controller.responder import Responder
from xenoovs.controller.session import FRAMEWORK, Patience, Session
from xenoovs.controller.voice import Voice

_END_S = 2.0
_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Settings:
    """datapath_ids: the only bridges that may connect; empty: all that are asked for.

    certificates: None speaks plain TCP. is_redundant: other controllers share the bridges.
    """

    address: Address
    datapath_ids: frozenset[int] = frozenset()
    certificates: Certificates | None = None
    patience: Patience = field(default_factory=Patience)
    is_redundant: bool = False


class Server:
    """Listens from its making until `close`. Raises CannotListen."""

    def __init__(self, settings: Settings, *, voice: Voice) -> None:
        silence(FRAMEWORK)
        FRAMEWORK.prepare()
        self._patience = settings.patience
        self._sessions: set[Session] = set()
        self._is_closing = False
        self.board = Board(voice=voice, datapath_ids=settings.datapath_ids, is_redundant=settings.is_redundant)
        self._listener = Listener(settings.address, serve=self._serve, voice=voice, certificates=settings.certificates)
        self.board.where = self._listener.target
        self.responder = Responder(lambda: self.board.lines, voice=voice)
        self.board.on_packet(self.responder.hear)
        self._keeper = Keeper(self.board, voice=voice) if settings.is_redundant else None
        voice.tell("waiting for bridges", at=self._listener.target, framework=FRAMEWORK.name)

    @property
    def target(self) -> str:
        """What `ovs-vsctl set-controller` has to be told."""
        return self._listener.target

    @property
    def local_target(self) -> str:
        """The same for a bridge of this host."""
        return self._listener.local_target

    def close(self) -> None:
        """Let go of all bridges. Their flows stay."""
        self.responder.close()
        if self._keeper is not None:
            self._keeper.close()
        self._is_closing = True
        self._listener.close()
        for session in tuple(self._sessions):
            session.abandon("the controller stops")
        deadline = monotonic() + _END_S
        while self._sessions and monotonic() < deadline:
            sleep(_TICK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, pipe: Pipe, peer: tuple[str, int]) -> None:
        session = Session(pipe, peer, self.board.ears, self._patience)
        self._sessions.add(session)
        try:
            if not self._is_closing:
                session.serve()
        finally:
            self._sessions.discard(session)
