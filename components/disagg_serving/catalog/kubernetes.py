"""How long EKS supports versions of Kubernetes: kubernetes.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from functools import cache
from typing import Any, NamedTuple

from ..yaml_io import read_yaml
from .loader import PACKAGE_DIR

NOTICE = timedelta(days=60)
"""EKS announces the end of a version's standard support at least so long before."""


class Support(NamedTuple):
    """A minor version, and the days on which its support ends."""

    version: str
    standard_until: date
    extended_until: date

    def is_ending(self, day: date) -> bool:
        """Whether standard support has ended on a day, or ends so soon that EKS has announced it."""
        return self.standard_until - day <= NOTICE

    def is_extended(self, day: date) -> bool:
        """Whether a day is one of extended support, which is billed from its first."""
        return self.standard_until <= day


@cache
def supported() -> Mapping[str, Support]:
    """Versions whose days are known, by version, oldest first."""
    data: Mapping[str, Mapping[str, Any]] = read_yaml(PACKAGE_DIR / "kubernetes.yaml")["versions"]
    return {
        version: Support(version, date.fromisoformat(days["standardUntil"]), date.fromisoformat(days["extendedUntil"]))
        for version, days in data.items()
    }


def oldest_in_support(day: date) -> str | None:
    """The oldest version whose standard support goes on for a while; None where none is known."""
    return next((one.version for one in supported().values() if not one.is_ending(day)), None)
