"""The program behind `pulumi up`: the stack's environment, checked, declared and exported."""

from contextvars import ContextVar

import pulumi

from ..planning.evaluation import evaluate
from ..spec.stack_file import NAMESPACE
from .base import checked, project_folder
from .environment import Environment

report_only: ContextVar[bool] = ContextVar("report_only", default=False)
"""Set by the offline plan, which shows failed checks beside the resources instead of stopping at them."""


def deploy() -> Environment:
    """Declare the environment of the current stack and export its outputs.

    Reads `disagg-serving:environment` and the secrets that it names. Raises pulumi.RunError when a check fails.
    """
    config = pulumi.Config(NAMESPACE)
    data = config.get_object("environment")
    if data is None:
        raise pulumi.RunError(f"stack {pulumi.get_stack()} has no {NAMESPACE}:environment; `disagg schema` prints its keys")
    name = pulumi.get_stack()
    evaluation = evaluate({"name": name, **data}, project_folder(), region=pulumi.Config("aws").get("region"))
    layout = evaluation.layout if report_only.get() and evaluation.layout else checked(evaluation)
    secrets = {key: config.require_secret(key) for key in sorted({m.weights.token_key for m in layout.spec.models if m.weights.token_key})}
    environment = Environment.of_layout(layout.spec.name, layout, secrets)
    for key, value in environment.outputs.items():
        pulumi.export(key, value)
    return environment
