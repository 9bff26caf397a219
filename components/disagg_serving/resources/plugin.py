"""The component plugin: the same components for programs in TypeScript, Go and every other language of Pulumi."""

import json
import re
import sys
import warnings
from typing import Any, Literal, get_args, get_origin

import pulumi
from pulumi import InputPropertiesError
from pulumi.provider import ConstructResult, main

from .. import __version__
from ..errors import Finding
from ..spec.stack_file import NAMESPACE
from .arguments import EXTENDED
from .autoscaling import Autoscaling
from .cluster import Cluster
from .environment import Environment
from .gateway import Gateway
from .lws import Lws
from .network import Network
from .node_pools import NodePools
from .observability import Observability
from .sdk import Analyzer, ComponentInitError, ComponentProvider, analysed_by, camel_case
from .serving import ModelServing
from .weights import Weights
from .wording import Language, language

COMPONENTS: list[type[pulumi.ComponentResource]] = [
    Autoscaling, Cluster, Environment, Gateway, Lws, ModelServing, Network, NodePools, Observability, Weights,
]  # fmt: skip


class _Analyzer(Analyzer):
    """The SDK's analysis, to which an enumeration is what its values are."""

    def analyze_property(self, arg: Any, *args: Any, **options: Any) -> Any:
        """A property of a type. The schema has no Literal."""
        return super().analyze_property(type(get_args(arg)[0]) if get_origin(arg) is Literal else arg, *args, **options)


class Plugin(ComponentProvider):
    """Constructs the components on behalf of the engine."""

    def __init__(self) -> None:
        """Read the components' annotations. Takes seconds, since it imports the large AWS module."""
        # a plugin's version is three numbers; what else a Python version may carry is left out
        release = re.match(r"\d+\.\d+\.\d+", __version__)
        with warnings.catch_warnings(), analysed_by(_Analyzer):
            # the SDK leaves a file open in its analysis
            warnings.simplefilter("ignore", ResourceWarning)
            super().__init__(COMPONENTS, NAMESPACE, version=release.group() if release else "0.0.0")
        self.schema: str = json.dumps(_completed(json.loads(self.schema or "{}")))

    def construct(self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None) -> ConstructResult:
        """Make a component. Raises InputPropertiesError, which Pulumi shows without a traceback, when a check fails."""

        def refused(owner: str, findings: list[Finding]) -> Exception:
            reasons = [{"property_path": f.path.removeprefix(f"{owner}: "), "reason": f.reason()} for f in findings]
            return InputPropertiesError(f"{owner} cannot be deployed", reasons)  # type: ignore[arg-type]

        before = language.set(Language(snake_case=False, refusal=refused))
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as problem:
            if not isinstance(problem.inner, InputPropertiesError):
                raise
            raise problem.inner from None
        finally:
            language.reset(before)  # Outputs that wait have taken it along

    def map_inputs(self, inputs: Any, component_def: Any) -> Any:
        """Arguments with the names of Python. The SDK would leave unknown keys out, and stop at the first that is missing."""
        return {component_def.inputs_mapping.get(key, key): value for key, value in inputs.items()}


def _completed(schema: dict[str, Any]) -> dict[str, Any]:
    # an SDK that is a package of its language by itself, with a go.mod
    schema["meta"] = {"supportPack": True}
    # the SDK's analysis finds no description on a field that is inherited
    for extending, model in EXTENDED.items():
        properties = schema["resources"][f"{NAMESPACE}:index:{extending}"]["inputProperties"]
        for name, field in model.model_fields.items():
            properties[camel_case(name)].setdefault("description", field.description)
    # generators add Args to the types of inputs by themselves
    renamed: dict[str, Any] = json.loads(re.sub(r"(:index:\w+Spec)Args\b", r"\1", json.dumps(schema)))
    return renamed


def serve() -> None:
    """Answer the engine, whose address is the first argument, until it ends this process."""
    main(Plugin(), sys.argv[1:])
