"""The whole of it: listens, lets bridges in, and ends without leaving a thread or a socket behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Thread
from time import monotonic, sleep
from types import TracebackType

from xenoovs.controller.bridge import Place
from xenoovs.controller.framework import silence
from xenoovs.controller.listen import Address, Certificates, Listener, Pipe, Visit
from xenoovs.controller.log import Voice
from xenoovs.controller.mastership import Keeper
from xenoovs.controller.neighbour_discovery import Responder
from xenoovs.controller.registry import Board
from xenoovs.controller.session import FRAMEWORK, Patience, Session

_END_S = 2.0
_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Settings:
    """certificates: None speaks plain TCP. is_redundant: other controllers share the bridges."""

    address: Address
    certificates: Certificates | None = None
    patience: Patience = field(default_factory=Patience)
    is_redundant: bool = False


@dataclass(frozen=True, slots=True)
class Post:
    """A bridge that is wanted, and who serves it: no two bridges share a thread, a rate limit or a lease."""

    place: Place
    responder: Responder
    keeper: Keeper | None

    def close(self) -> None:
        self.responder.close()
        if self.keeper is not None:
            self.keeper.close()


def make_post(place: Place, *, voice: Voice, is_redundant: bool = False) -> Post:
    """From now on it is served."""
    responder = Responder(lambda: place.lines, voice=voice)
    place.on_packet(responder.hear)
    return Post(place, responder, Keeper(place, voice=voice) if is_redundant else None)


class Server:
    """Listens from its making until `close`. Raises CannotListen."""

    def __init__(self, settings: Settings, *, voice: Voice) -> None:
        silence(FRAMEWORK)
        FRAMEWORK.prepare()
        self._patience, self._voice, self._is_redundant = settings.patience, voice, settings.is_redundant
        self._sessions: set[Session] = set()
        self._posts: dict[Place, Post] = {}
        self._is_closing = False
        self.board = Board(voice=voice, is_redundant=settings.is_redundant)
        complaining = Voice(voice.tell, self.board.complaints.warn)
        self._listener = Listener(
            settings.address, serve=self._serve, voice=complaining, certificates=settings.certificates
        )
        self.board.target = self._listener.target
        voice.tell("waiting for bridges", at=self._listener.target, framework=FRAMEWORK.name)

    @property
    def target(self) -> str:
        """What `ovs-vsctl set-controller` has to be told."""
        return self._listener.target

    @property
    def local_target(self) -> str:
        """The same for a bridge of this host."""
        return self._listener.local_target

    def want(self, bridge: str, datapath_id: int | None = None) -> Post:
        """Let a bridge in when it comes, and serve it. The same post for the same bridge."""
        place = self.board.want(bridge, datapath_id)
        if place not in self._posts:
            self._posts[place] = make_post(place, voice=self._voice, is_redundant=self._is_redundant)
        return self._posts[place]

    def close(self) -> None:
        """Let go of all bridges. Their flows stay."""
        # Together, for one that hangs is waited for, and its neighbour's lease is to be given up at once.
        closing = [Thread(target=post.close, name="xenoovs-close") for post in self._posts.values()]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        self._is_closing = True
        self._listener.close()
        for session in tuple(self._sessions):
            session.abandon("the controller stops")
        deadline = monotonic() + _END_S
        while self._sessions and monotonic() < deadline:
            sleep(_TICK_S)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, pipe: Pipe, visit: Visit) -> None:
        session = Session(pipe, visit.peer, self.board.ears, self._patience, visit=visit)
        self._sessions.add(session)
        try:
            if not self._is_closing:
                session.serve()
        finally:
            self._sessions.discard(session)
