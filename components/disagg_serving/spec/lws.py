"""The LeaderWorkerSet controller."""

from typing import Annotated, Literal

from pydantic import Field

from ..pins import LWS_CHART
from .base import Count, Name, Spec, Text, form


class LwsSpec(Spec):
    """Where the LeaderWorkerSet controller comes from."""

    install: Literal["chart", "existing"] = Field(
        "chart", description="chart: install it; existing: the cluster already runs it, nothing is installed. Default: chart."
    )
    chart: Text = Field(
        LWS_CHART.location, description=f"Chart source: an OCI reference or a local folder or archive. Default: {LWS_CHART.location}."
    )
    version: Annotated[Text, form(r"^\d+\.\d+\.\d+([-+].+)?$", "an exact version such as 0.11.1")] = Field(
        LWS_CHART.version, description=f"Chart version, exact; not used for a local folder. Default: {LWS_CHART.version}."
    )
    namespace: Name = Field("lws-system", description="Namespace of the controller. Default: lws-system.")
    replicas: Count = Field(
        2,
        description="Controller replicas; the chart's own default of 1 blocks new pods while it restarts, as its webhooks fail closed. Default: 2.",
    )
