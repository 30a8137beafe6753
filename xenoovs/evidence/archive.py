"""A record: the answers of an Open vSwitch's host, in one archive of text files (tar, gzip) with a manifest.

Records come from elsewhere: they are never unpacked to files, and refused in any other form.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xenoovs import __version__
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.errors import FileUnusable
from xenoovs.regex import ASCII, DOTALL, IGNORECASE, regex
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.tape import ABSENT, Answer
from xenoovs.switch.undo_journal import replace_file

SCHEMA = 1
_MANIFEST = "manifest.json"
_ANSWER = regex(r"answers/[0-9]{4,6}-[\w.=+-]{1,80}\.txt", ASCII)
_UNNAMED = regex(r"[^\w.=+-]+", ASCII)
_MOST_BYTES = 256 << 20
"""Limit of unpacked bytes. A dump of 200,000 megaflows, the default limit of Open vSwitch, has some 80 MB."""
_MOST_ANSWERS = 100_000
_FEW = 3
_TAIL_BYTES = 4 << 20
"""Most bytes of a log in a record."""

_Alter = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer with its question. `at_s`: seconds since the begin of the record."""

    question: tuple[str, ...]
    answer: Answer
    at_s: float


# No secret of the host may be in a record. The patterns find the forms of options, JSON, URLs, PEM and ip-xfrm(8).


_WORDS = ("psk", "passwd", "password", "passphrase", "secret", "token", "credential")
_SECRET = regex(
    rf"((?:{'|'.join(_WORDS)})[\w-]{{0,64}}\"?\s{{0,8}}[=:]\s{{0,8}})"
    r"(\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\s,;&\"'{}\[\]]+)",
    IGNORECASE | ASCII,
)
_USER = regex(r"(://)[^/\s:@\"]{0,256}:[^/\s@\"]{0,256}@")
_PEM = regex(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", DOTALL)
_XFRM_KEY = regex(r"((?:aead|enc|auth|auth-trunc) \S+ )0x[0-9a-fA-F]+")


def without_secrets(text: str) -> str:
    """Return a text with `(hidden)` in place of pre-shared keys, passwords and private keys."""
    lowered = text.lower()
    # A dump of 200,000 megaflows has none of the words, and an expression takes a minute for it.
    if any(word in lowered for word in _WORDS):
        text = _SECRET.sub(lambda found: found[1] + ('"(hidden)"' if found[2].startswith('"') else "(hidden)"), text)
    if "aead " in text or "auth" in text or "enc " in text:
        text = _XFRM_KEY.sub(r"\1(hidden)", text)
    return _PEM.sub("(hidden)", _USER.sub(r"\1(hidden)@", text))


@dataclass(slots=True)
class Recorder:
    """The tape that records, for at most `limit_s`. `cut`: questions whose answers are missing or cut. `is_once`:
    whether to answer a repeated question from the record."""

    limit_s: float
    max_bytes: int = _MOST_BYTES
    begun: float = field(default_factory=time.time)
    found: list[Recorded] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    is_replaying: bool = False
    is_once: bool = False
    _is_asking: bool = False

    @property
    def passed_s(self) -> float:
        return time.time() - self.begun

    def answer(self, question: tuple[str, ...], ask: Callable[[], Answer]) -> Answer:
        if self._is_asking:
            # A part of the question.
            return ask()
        if self.is_once and (known := [each.answer for each in self.found if each.question == question]):
            return known[-1]
        at_s = self.passed_s
        if at_s > self.limit_s or len(self.found) >= _MOST_ANSWERS:
            self.cut.append(f"{' '.join(question)}: not asked, as the record took {self.limit_s:.0f} s already")
            return ABSENT
        self._is_asking = True
        try:
            answer = ask()
        finally:
            self._is_asking = False
        self.found.append(Recorded(question, replace(answer, text=self._kept(question, answer.text)), at_s))
        return answer

    def _kept(self, question: tuple[str, ...], text: str) -> str:
        most = min(self.max_bytes, _TAIL_BYTES) if question[0] == "tail" else self.max_bytes
        if len(text) > most:
            self.cut.append(f"{' '.join(question)}: {len(text) - most} of {len(text)} characters left out")
            text = text[-most:].partition("\n")[2] if question[0] == "tail" else text[:most].rpartition("\n")[0]
        self.max_bytes -= len(text)
        return text


def write_record(path: Path, recorder: Recorder, endpoint: Endpoint, *, alter: _Alter = str, **about: object) -> int:
    """Write a record of mode 0600 atomically, and return its size in bytes. Raises OSError. `alter`: changes every
    text, such as to hide addresses; secrets are hidden in any case. `about`: further keys of the manifest."""
    answers, names = list[dict[str, object]](), dict[tuple[tuple[str, ...], str], str]()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6, format=tarfile.USTAR_FORMAT) as archive:
        for number, each in enumerate(recorder.found, start=1):
            words = tuple(alter(without_secrets(word)) for word in each.question)
            text, error = (alter(without_secrets(part)) for part in (each.answer.text, each.answer.stderr))
            # Most answers come again and again: those are one file.
            name, is_new = names.get((words, text), ""), bool(text) and (words, text) not in names
            if is_new:
                short = _UNNAMED.sub("_", "_".join(words).replace(str(endpoint.rundir), ""))
                name = names[words, text] = f"answers/{number:04}-{short.strip('_')[:60] or 'question'}.txt"
            row: dict[str, object] = {"question": words, "file": name if text else None, "at": round(each.at_s, 3)}
            more = {"status": each.answer.exit_code, "stderr": error, "failure": each.answer.failure}
            answers.append(row | {key: value for key, value in more.items() if value})
            if is_new:
                _add(archive, name, text, recorder.begun)
        manifest = {
            "xenoovs_record": SCHEMA,
            "xenoovs": __version__,
            "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(recorder.begun)),
            "seconds": round(recorder.passed_s, 3),
            "db": alter(endpoint.db),
            "rundir": None if endpoint.rundir is None else str(endpoint.rundir),
            **about,
            "cut": [alter(without_secrets(each)) for each in recorder.cut],
            "answers": answers,
        }
        _add(archive, _MANIFEST, json.dumps(manifest, indent=1) + "\n", recorder.begun)
    replace_file(path, buffer.getvalue())
    return len(buffer.getvalue())


def _add(archive: tarfile.TarFile, name: str, text: str, at: float) -> None:
    data, member = text.encode("utf-8", "backslashreplace"), tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(at), 0o600
    archive.addfile(member, io.BytesIO(data))


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was read."""

    manifest: Mapping[str, Any]
    found: tuple[Recorded, ...]

    @property
    def cut(self) -> list[str]:
        """Return the first few questions whose answers are missing or cut."""
        return [str(each) for each in self.manifest["cut"][:_FEW]]

    @property
    def endpoint(self) -> Endpoint:
        rundir = self.manifest["rundir"]
        return Endpoint(self.manifest["db"], None if rundir is None else Path(rundir))


class Replay:
    """The tape that answers from a record. A repeated question gets its answers in order, then the last one again."""

    is_replaying = True

    def __init__(self, record: Record) -> None:
        self._answers = defaultdict[tuple[str, ...], deque[Answer]](deque)
        for each in record.found:
            self._answers[each.question].append(each.answer)

    def answer(self, question: tuple[str, ...], ask: Callable[[], Answer]) -> Answer:
        answers = self._answers.get(question)
        if not answers:
            return ABSENT
        return answers.popleft() if len(answers) > 1 else answers[0]


def read_record(path: Path) -> Record:
    """Return a record. Raises OSError, and FileUnusable for all but a record of this schema."""

    def unusable(reason: str) -> FileUnusable:
        return FileUnusable(file=str(path), reason=reason)

    if not path.is_file() and path.exists():
        raise unusable("it is no file")
    texts = dict[str, str]()
    try:
        with gzip.open(path) as file:
            data = file.read(_MOST_BYTES + _MOST_ANSWERS * tarfile.BLOCKSIZE + 1)
        if len(data) > _MOST_BYTES + _MOST_ANSWERS * tarfile.BLOCKSIZE:
            raise unusable(f"unpacked it has more than {_MOST_BYTES >> 20} MiB, which no record has")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise unusable(f"{member.name!r} is no file but a link or a device, which no record has")
                if not (member.name == _MANIFEST or _ANSWER.fullmatch(member.name)) or member.name in texts:
                    raise unusable(f"it has {member.name!r}, which no record has")
                content = archive.extractfile(member)
                texts[member.name] = "" if content is None else content.read().decode("utf-8", "backslashreplace")
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile, tarfile.TarError):
        raise unusable("it is no record of `xenoovs record`, or damaged") from None
    try:
        manifest = json.loads(texts[_MANIFEST])
        schema = manifest["xenoovs_record"]
    except (LookupError, TypeError, ValueError, RecursionError):
        raise unusable("it has no manifest of `xenoovs record`") from None
    if schema != SCHEMA:
        raise unusable(f"it has schema {schema!r}, and this version reads {SCHEMA}: use the version that wrote it")
    try:
        return _checked(manifest, texts)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise unusable(f"its manifest is damaged: {error}") from None


def _checked(manifest: dict[str, Any], texts: Mapping[str, str]) -> Record:
    """Return the record of a manifest. Raises LookupError, TypeError, ValueError, AttributeError."""
    kinds: dict[str, Any] = {"db": str, "rundir": (str, type(None)), "begun": str, "seconds": (int, float), "cut": list}
    for key, kind in kinds.items():
        if not isinstance(manifest[key], kind):
            raise TypeError(f"{key!r} has another type")
    found = list[Recorded]()
    for number, row in enumerate(manifest["answers"], start=1):
        question, file, at = tuple(row["question"]), row["file"], row["at"]
        status, stderr, failure = row.get("status", 0), row.get("stderr", ""), row.get("failure", "")
        if not (
            question
            and all(isinstance(word, str) for word in (*question, stderr, failure))
            and isinstance(status, int)
            and isinstance(at, (int, float))
        ):
            raise TypeError(f"answer {number} has another form")
        found.append(Recorded(question, Answer("" if file is None else texts[file], status, stderr, failure), at))
    return Record(manifest, tuple(found))
