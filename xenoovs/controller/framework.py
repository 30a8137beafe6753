"""The framework under the controller: os-ken where it is there, else ryu. Both have the same modules by other names."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from xenoovs.errors import FrameworkMissing, FrameworkUnusable

_PACKAGES = ("os_ken", "ryu")
_DISTRIBUTIONS = {"os_ken": "os-ken", "ryu": "ryu"}

OPENFLOW = {1: "OpenFlow10", 4: "OpenFlow13", 5: "OpenFlow14"}
"""Wire versions that a session may settle on. Only 1.4 has what we need; by the others a bridge can tell its name."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Modules of a framework. `name`: as a person says it, with the version."""

    name: str
    app_manager: Any
    controller: Any
    handler: Any
    ofp_event: Any
    ofp_handler: Any
    ofproto_parser: Any
    ofproto_protocol: Any
    hub: Any

    def prepare(self) -> None:
        """Make the application of the framework that says hello and answers echoes. It is only called, never started.

        Its own server is not used: it cannot be stopped, and tells nobody when it cannot listen.
        """
        if self.app_manager.lookup_service_brick(self.ofp_event.NAME) is None:
            self.app_manager.AppManager.get_instance().instantiate(self.ofp_handler.OFPHandler)

    @property
    def service(self) -> Any:
        """That application."""
        return self.app_manager.lookup_service_brick(self.ofp_event.NAME)

    @property
    def application(self) -> Any:
        """The class of applications."""
        return getattr(self.app_manager, "OSKenApp", None) or self.app_manager.RyuApp


def load_framework() -> Framework:
    """Import it. Raises FrameworkMissing, FrameworkUnusable; each says in one sentence what to do."""
    os.environ.setdefault("OSKEN_HUB_TYPE", "native")
    # Under the launcher of a framework it must be that one, whatever else is installed.
    running = [package for package in _PACKAGES if f"{package}.base.app_manager" in sys.modules]
    package = next(iter(running), None) or next((name for name in _PACKAGES if find_spec(name)), None)
    if package is None:
        raise FrameworkMissing
    distribution = f"{_DISTRIBUTIONS[package]} {version(_DISTRIBUTIONS[package])}"
    try:
        if package == "ryu":
            _help_ryu()
        return _import(package, distribution)
    except Exception as error:  # noqa: BLE001
        # Old frameworks on a new Python fail at import in every way there is.
        raise FrameworkUnusable(name=distribution, reason=f"{type(error).__name__}: {error}") from None


def silence(framework: Framework) -> None:
    """Keep its own log off stderr: what matters of it is told in our words."""
    logger = logging.getLogger(framework.app_manager.__name__.partition(".")[0])
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    brick = logging.getLogger(framework.ofp_event.NAME)
    for name in ("OFPHandler", brick.name):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False


def _import(package: str, name: str) -> Framework:
    # app_manager first: the others import it in a circle.
    app_manager = import_module(f"{package}.base.app_manager")
    found = Framework(
        name=name,
        app_manager=app_manager,
        controller=import_module(f"{package}.controller.controller"),
        handler=import_module(f"{package}.controller.handler"),
        ofp_event=import_module(f"{package}.controller.ofp_event"),
        ofp_handler=import_module(f"{package}.controller.ofp_handler"),
        ofproto_parser=import_module(f"{package}.ofproto.ofproto_parser"),
        ofproto_protocol=import_module(f"{package}.ofproto.ofproto_protocol"),
        hub=import_module(f"{package}.lib.hub"),
    )
    found.ofproto_protocol.set_app_supported_versions(list(OPENFLOW))
    return found


def _help_ryu() -> None:
    # ryu 4.34 asks eventlet for a name that eventlet dropped in 0.30.3.
    wsgi = import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
