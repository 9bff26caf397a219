"""The program behind `pulumi up`: the stack's environment, checked, declared and exported."""

import pulumi

from ..planning.evaluation import evaluate
from ..planning.rules import StackContext
from ..spec.stack_file import NAMESPACE
from .base import checked, project_folder
from .environment import Environment


def deploy() -> Environment:
    """Declare the environment of the current stack and export its outputs.

    Reads `disagg-serving:environment` and the secrets that it names. Raises pulumi.RunError when a check fails.
    """
    config = pulumi.Config(NAMESPACE)
    data = config.get_object("environment")
    if data is None:
        raise pulumi.RunError(f"stack {pulumi.get_stack()} has no {NAMESPACE}:environment; `disagg schema` prints its keys")
    name = pulumi.get_stack()
    layout = checked(evaluate({"name": name, **data}, project_folder(), StackContext(pulumi.Config("aws").get("region"))))
    secrets = {key: config.require_secret(key) for key in sorted({key for _, key in layout.spec.secret_keys()})}
    environment = Environment.of_layout(layout.spec.name, layout, secrets)
    for key, value in environment.outputs.items():
        pulumi.export(key, value)
    return environment
