"""The program behind `pulumi up`: the stack's environment, checked, declared and exported."""

import pulumi
from pulumi.runtime import is_config_secret

from ..rules import StackContext
from ..rules.evaluation import Question
from ..spec.stack_file import NAMESPACE
from .base import answer, project_folder, require_layout
from .environment import Environment
from .sdk import configured_keys


def deploy() -> Environment:
    """Declare the environment of the current stack and export its outputs.

    Reads `disagg-serving:environment` and the secrets that it names. Raises pulumi.RunError when a check fails.
    """
    config = pulumi.Config(NAMESPACE)
    data = config.get_object("environment")
    if data is None:
        raise pulumi.RunError(f"stack {pulumi.get_stack()} has no {NAMESPACE}:environment; `disagg schema` prints its keys")
    name = pulumi.get_stack()
    stack = _stack_context()
    layout = require_layout(answer(Question({"name": name, **data}, project_folder(), stack)))
    secrets = {key: config.require_secret(key) for key in sorted({key for _, key in layout.spec.secret_keys()})}
    environment = Environment.of_layout(layout.spec.name, layout, secrets, stack=stack)
    for key, value in environment.outputs.items():
        pulumi.export(key, value)
    return environment


def _stack_context() -> StackContext:
    """What the engine says about the stack outside the environment: the region, and which keys of ours, or of an account, are encrypted; no value."""
    keys = configured_keys()
    secrets = frozenset(key for key in keys if is_config_secret(key))
    return StackContext.of_keys(pulumi.Config("aws").get("region"), secrets, keys - secrets)
