"""The lab cannot be made or used."""

from __future__ import annotations

from xenoovs.errors.base import XenoovsError


class LabError(XenoovsError):
    """The lab could not be built, used or taken down."""
