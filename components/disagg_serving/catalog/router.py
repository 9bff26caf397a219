"""The form of a router release in the catalogue; a module of its own, because most commands never read one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..spec.base import Spec, Text
from .entries import Entry

PluginKind = Literal[
    "filter", "scorer", "picker", "profile-handler", "decider", "producer", "data-source", "extractor", "parser", "admission", "fairness",
    "ordering", "other",
]  # fmt: skip
ParameterKind = Literal["string", "integer", "number", "boolean", "list", "mapping"]


class Plugin(Spec):
    """A plugin of the endpoint picker."""

    kind: PluginKind = Field(..., description="What it does.")
    stability: Literal["alpha", "beta", "stable"] = Field(..., description="As the release registers it; alpha ones need a flag.")
    parameters: dict[str, ParameterKind] | Literal["unknown"] = Field({}, description="Parameters with their types; unknown where not read.")
    required: list[str] = Field([], description="Parameters without a default.")
    deprecated: Text | None = Field(None, description="The name that replaces it.")


class ImageSource(Spec):
    """An image without its digest."""

    repository: Text = Field(..., description="Registry and repository.")
    tag: Text = Field(..., description="Tag; never a floating one.")

    @property
    def reference(self) -> str:
        """`repository:tag`."""
        return f"{self.repository}:{self.tag}"


class ChartSource(Spec):
    """A Helm chart."""

    location: Text = Field(..., description="OCI reference.")
    version: Text = Field(..., description="Exact version.")


class RouterImages(Spec):
    """The images of a router release."""

    endpoint_picker: ImageSource = Field(..., description="Endpoint picker.")
    sidecar: ImageSource = Field(..., description="Routing sidecar of decode pods.")
    proxy: ImageSource = Field(..., description="Envoy.")


class Router(Entry):
    """A release of the llm-d router: what its chart, endpoint picker and sidecar take."""

    version: Text = Field(..., description="Release.")
    config_api_version: Text = Field(..., description="apiVersion of its EndpointPickerConfig.")
    chart: ChartSource = Field(..., description="The standalone chart.")
    images: RouterImages = Field(..., description="Images.")
    chart_values: list[Text] = Field(..., min_length=1, description="Value paths of the chart; `.*` ends a free mapping.")
    sidecar_flags: list[Text] = Field(..., min_length=1, description="Flags of the sidecar.")
    picker_flags: list[Text] = Field(..., min_length=1, description="Flags of the endpoint picker.")
    plugins: dict[str, Plugin] = Field(..., min_length=1, description="Plugins by type.")
