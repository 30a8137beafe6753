"""Bytes to text that may be YAML: size, UTF-8, and the characters YAML allows."""

from __future__ import annotations

import re
from typing import NoReturn

from xenoovs.errors import ConfigError, Finding

MAX_SIZE_BYTES = 32 * 1024 * 1024

# YAML 1.2.2, section 5.1 (c-printable), less the Unicode line breaks that libyaml takes for line ends and YAML 1.2 does
# not (section 5.4), and less the byte order mark.
_NOT_ALLOWED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def decode(text: str | bytes, *, file: str) -> str:
    """The text. Raises ConfigError with the place of the first thing that YAML text cannot hold."""
    if len(text) > MAX_SIZE_BYTES:
        _refuse("", file, f"the config is larger than {MAX_SIZE_BYTES // 2**20} MiB; is this the right file?")
    if isinstance(text, bytes):
        text = _decode_utf8(text, file)
    bad = _NOT_ALLOWED.search(text)
    if bad is None:
        return text
    before, code = text[: bad.start()], ord(bad.group())
    if code == 0xFEFF and not before:
        _refuse(before, file, "the file starts with a byte order mark (U+FEFF); save it as UTF-8 without BOM")
    return _refuse(before, file, f"the character U+{code:04X} is not allowed; is this a text file?")


def _decode_utf8(data: bytes, file: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        _refuse("", file, "the file is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        return _refuse(before, file, f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")


def _refuse(before: str, file: str, message: str) -> NoReturn:
    """`before`: the text up to the mistake."""
    *full_lines, last = re.split(r"\r\n|\r|\n", before)
    raise ConfigError([Finding(file, len(full_lines) + 1, len(last) + 1, "", message)])
