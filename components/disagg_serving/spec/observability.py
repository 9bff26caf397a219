"""What is watched: scraping, dashboards, alerts and GPU metrics. All of it is off unless asked for."""

from typing import Annotated, Literal

from pydantic import Field

from .base import AtLeastOne, Spec, Text, form
from .serving import LabelValue

LabelKey = Annotated[Text, form(r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "a label key such as release"), Field(max_length=253)]


class ObservabilitySpec(Spec):
    """Objects for a Prometheus operator and a Grafana that the cluster has already; neither is installed here."""

    pod_monitors: bool = Field(
        False,
        description="Whether PodMonitors are made: leaders of each role, router and Envoy, and the DCGM exporter. Default: false.",
    )
    dashboards: bool = Field(
        False,
        description="Whether Grafana dashboards are made, as ConfigMaps: traffic of the roles, KV transfer, capacity against the plan. "
        "Default: false.",
    )
    alerts: bool = Field(False, description="Whether a PrometheusRule a model is made (docs/observability.md). Default: false.")
    dcgm_exporter: Literal["none", "chart", "existing"] = Field(
        "none",
        description="Metrics of the GPUs. chart: install NVIDIA's DCGM exporter on the GPU nodes; existing: the cluster has it, and its metrics "
        "carry namespace and pod of whoever holds the GPU. Default: none.",
    )
    dcgm_chart: Text | None = Field(
        None,
        description="Source of its chart: a repository's address with the chart's name, an OCI reference, or a local folder or archive. "
        "Default: NVIDIA's own repository.",
    )
    scrape_interval_seconds: Annotated[AtLeastOne, Field(ge=5, le=60)] = Field(
        15, description="Seconds between two readings, 5 to 60: alerts look at ten minutes and more. Default: 15."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        {},
        description="Labels by which the Prometheus operator selects PodMonitors and PrometheusRules; kube-prometheus-stack wants its release: "
        "release: kube-prometheus-stack. Default: none.",
    )
    dashboard_labels: dict[LabelKey, LabelValue] = Field(
        {"grafana_dashboard": "1"}, description='Labels by which Grafana finds dashboards. Default: grafana_dashboard: "1".'
    )
    dashboard_folder: Text | None = Field(
        None, description="Folder in Grafana, as the annotation grafana_folder, which its sidecar must be told to read. Default: none."
    )

    @property
    def makes_anything(self) -> bool:
        """Whether any object is made."""
        return self.pod_monitors or self.reads_metrics or self.dcgm_exporter == "chart"

    @property
    def reads_metrics(self) -> bool:
        """Whether anything is made of queries."""
        return self.dashboards or self.alerts

    @property
    def has_gpu_metrics(self) -> bool:
        """Whether metrics of GPUs can be queried."""
        return self.dcgm_exporter != "none"
