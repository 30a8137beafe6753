"""The example configs that ship with xenoovs."""

from __future__ import annotations

from pathlib import Path

_SUFFIX = ".yaml"
_NO_CONFIGS = frozenset({"prometheus-alerts"})


def template_names() -> tuple[str, ...]:
    """Return the names for `read_template`, sorted."""
    entries = (entry.name for entry in _folder().iterdir())
    names = {name.removesuffix(_SUFFIX) for name in entries if name.endswith(_SUFFIX)}
    return tuple(sorted(names - _NO_CONFIGS))


def describe_templates() -> dict[str, str]:
    """Return the first line of each template, its purpose, by its name."""
    return {name: read_template(name).partition("\n")[0].removeprefix("# ") for name in template_names()}


def read_template(name: str) -> str:
    """Return the text of a template. Raises KeyError for a name that is not in `template_names`."""
    if name not in template_names():
        raise KeyError(name)
    return (_folder() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def _folder() -> Path:
    """Return the folder of templates: in a wheel inside the package, in a checkout beside it."""
    package = Path(__file__).parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"
