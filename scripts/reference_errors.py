"""Generate docs/reference/errors.md from the exceptions of xenoovs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from xenoovs import errors
from xenoovs.errors import XenoovsError

_INTRODUCTION = """\
# Errors

With `-o json`, an error is one line of JSON on stderr:

```json
{"error": {"code": "ports_missing", "message": "...", "hint": null, "exit_status": 1, "retryable": false}}
```

| key | meaning |
|---|---|
| `code` | the kind of error, from the table below |
| `message` | what happened, with which value, and what to do; the words may change |
| `hint` | what else can be done, or null |
| `exit_status` | that of the command |
| `retryable` | whether the same command may succeed later |
| `findings` | with `config_error`: each mistake with `file`, `line`, `column`, `path` and `message` |

Warnings and notes are lines too: `{"note": "..."}`. The error is the last line. A result with an exit status of 2 or 3
is no error: it is on stdout.

Codes of a request that the agent refused are those of its API: `bad_request`, `impossible`, `not_saved`,
`nothing_waits`, `standby`, `too_slow`, `unauthorized`, `unknown_backend`, `unknown_service`.

| code | meaning |
|---|---|
| `usage` | The command line is wrong; `xenoovs COMMAND --help` shows the usage. |
| `interrupted` | Ctrl-C. |
| `failed` | Another failure, such as a file that cannot be read. |
"""


def errors_page(generated: str) -> str:
    """Return the page with every code; `generated` is its first line."""
    return "\n".join((generated, _INTRODUCTION + "\n".join(_rows()), ""))


def _rows() -> Iterator[str]:
    classes = inspect.getmembers(errors, lambda value: inspect.isclass(value) and issubclass(value, XenoovsError))
    for code, each in sorted((each.code, each) for _, each in classes if each is not XenoovsError):
        meaning = re.split(r"[.;:](?: |$)", (each.__doc__ or "").partition("\n")[0])[0]
        yield f"| `{code}` | {meaning}. |"
