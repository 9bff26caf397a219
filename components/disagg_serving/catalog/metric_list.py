"""The form of a list of metrics in the catalogue; a module of its own, because most commands never read one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..spec.base import Spec, Text
from .entries import Entry

SUFFIXES = ("_bucket", "_count", "_sum")
"""What Prometheus stores of a histogram."""


class Metric(Spec):
    """A metric as Prometheus names it."""

    name: Annotated[Text, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")] = Field(..., description="Name as exposed; of a histogram without suffix.")
    type: Literal["counter", "gauge", "histogram"] = Field(..., description="Type.")
    labels: list[Text] = Field([], description="Labels that the component itself writes.")
    meaning: Text = Field(..., description="What it counts or measures, with its unit.")

    @property
    def series(self) -> list[str]:
        """Names that a query can select."""
        return [self.name + suffix for suffix in SUFFIXES] if self.type == "histogram" else [self.name]


class MetricList(Entry):
    """What one release of a component exposes."""

    component: Text = Field(..., description="Component.")
    version: Text = Field(..., description="Release.")
    metrics: list[Metric] = Field(..., min_length=1, description="Its metrics.")
