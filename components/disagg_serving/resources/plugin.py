"""The component plugin: the same components for programs in TypeScript, Go and every other language of Pulumi."""

import json
import re
import sys
import warnings
from functools import partial
from typing import Any

import pulumi
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.experimental.util import camel_case
from pulumi.provider.server import ComponentInitError

from .. import __version__
from ..errors import Finding
from ..spec import ClusterSpec, EnvironmentSpec, LwsSpec, NetworkSpec
from ..spec.base import Spec
from ..spec.stack_file import NAMESPACE
from .arguments import ChecksFailed, refusal
from .autoscaling import Autoscaling
from .cluster import Cluster
from .environment import Environment
from .gateway import Gateway
from .lws import Lws
from .network import Network
from .node_pools import NodePools
from .observability import Observability
from .serving import ModelServing
from .weights import Weights

COMPONENTS: list[type[pulumi.ComponentResource]] = [
    Autoscaling, Cluster, Environment, Gateway, Lws, ModelServing, Network, NodePools, Observability, Weights,
]  # fmt: skip
INHERITED: dict[str, type[Spec]] = {"Cluster": ClusterSpec, "Environment": EnvironmentSpec, "Lws": LwsSpec, "Network": NetworkSpec}
"""Components whose args extend those of a spec: the SDK's analysis finds no description on a field that is inherited."""


class Plugin(ComponentProvider):
    """Constructs the components on behalf of the engine."""

    def __init__(self) -> None:
        """Read the components' annotations. Takes seconds, since it imports the large AWS module."""
        # a plugin's version is three numbers; what else a Python version may carry is left out
        release = re.match(r"\d+\.\d+\.\d+", __version__)
        with warnings.catch_warnings():
            # the SDK leaves a file open in its analysis
            warnings.simplefilter("ignore", ResourceWarning)
            super().__init__(COMPONENTS, NAMESPACE, version=release.group() if release else "0.0.0")
        self.schema: str = json.dumps(_completed(json.loads(self.schema or "{}")))

    def construct(self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None) -> ConstructResult:
        """Make a component. Raises InputPropertiesError, which Pulumi shows without a traceback, when a check fails."""

        def refused(findings: list[Finding]) -> Exception:
            reasons = [{"property_path": f.path, "reason": f.sentence().removeprefix(f"{f.path}: ")} for f in findings]
            return InputPropertiesError(f"{name} cannot be deployed", reasons)  # type: ignore[arg-type]

        before = refusal.set(refused)
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as problem:
            if not isinstance(problem.inner, ChecksFailed):
                raise
            raise refused(problem.inner.findings) from None
        finally:
            refusal.reset(before)  # Outputs that wait have taken it along

    def map_input_properties(self, inputs: Any, properties: Any, mapping: Any, component_name: str, property_path: str) -> Any:
        """Inputs with the names of Python. The SDK would take an Output in place of an object for an empty one."""
        if isinstance(inputs, pulumi.Output):
            return inputs
        known = inputs if isinstance(inputs, dict) else {}
        later = {key: prop for key, prop in properties.items() if prop.ref and isinstance(known.get(key), pulumi.Output)}
        now = {key: prop for key, prop in properties.items() if key not in later}
        mapped = dict(super().map_input_properties(inputs, now, mapping, component_name, property_path))
        for key, prop in later.items():
            mapped[mapping[key]] = inputs[key].apply(partial(self._known, prop, component_name, key))
        return mapped

    def _known(self, prop: Any, component_name: str, path: str, value: Any) -> Any:
        definition = self.get_type_definition(prop)
        if definition is None or not isinstance(value, dict):
            return value
        return self.map_input_properties(value, definition.properties, definition.properties_mapping, component_name, path)


def _completed(schema: dict[str, Any]) -> dict[str, Any]:
    # an SDK that is a package of its language by itself, with a go.mod
    schema["meta"] = {"supportPack": True}
    for component, model in INHERITED.items():
        properties = schema["resources"][f"{NAMESPACE}:index:{component}"]["inputProperties"]
        for name, field in model.model_fields.items():
            properties[camel_case(name)].setdefault("description", field.description)
    # generators add Args to the types of inputs by themselves
    renamed: dict[str, Any] = json.loads(re.sub(r"(:index:\w+Spec)Args\b", r"\1", json.dumps(schema)))
    return renamed


def serve() -> None:
    """Answer the engine, whose address is the first argument, until it ends this process."""
    main(Plugin(), sys.argv[1:])
