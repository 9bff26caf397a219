"""Names of Pulumi's SDK that it does not publish: which ones the package uses, where, and what they looked like when that was written."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pulumi
import pulumi.provider
import pytest
from factories import ROOT
from packaging.requirements import Requirement

PACKAGE = ROOT / "components/disagg_serving"
SDK = PACKAGE / "resources/sdk.py"
PUBLISHED = {
    "pulumi": {*pulumi.__all__, "log", "provider", "runtime"},
    "pulumi.runtime": {*pulumi.runtime.__all__},
    "pulumi.provider": {*pulumi.provider.__all__},
}
WIRE = "pulumi.runtime.proto"
"""Messages between SDK and engine: older engines have to understand them."""
SEEN = {
    "pulumi.provider.experimental.analyzer:Analyzer": "(name)",
    "pulumi.provider.experimental.analyzer:Analyzer.analyze_property": "(self, arg, typ, name, *, can_be_plain, is_component_output, optional)",
    "pulumi.provider.experimental.component:Analyzer": "(name)",
    "pulumi.provider.experimental.component:ComponentProvider": "(components, name, namespace, version)",
    "pulumi.provider.experimental.component:ComponentProvider.construct": "(self, name, resource_type, inputs, options)",
    "pulumi.provider.experimental.component:ComponentProvider.map_inputs": "(self, inputs, component_def)",
    "pulumi.provider.experimental.util:camel_case": "(name)",
    "pulumi.provider.server:ComponentInitError": "(inner)",
    "pulumi.runtime.config:CONFIG": "ContextVar",
    "pulumi.runtime.invoke:invoke": "(tok, props, opts, typ, package_ref)",
    "pulumi.runtime.mocks:MockMonitor": "(mocks)",
    "pulumi.runtime.mocks:MockMonitor.GetDeploymentInfo": "(self, request)",
    "pulumi.runtime.mocks:MockMonitor.Invoke": "(self, request)",
    "pulumi.runtime.mocks:MockMonitor.RegisterResourceOutputs": "(self, request)",
    "pulumi.runtime.mocks:MockMonitor.ResourceRegistration": "(urn, id, state)",
    "pulumi.runtime.mocks:MockMonitor.make_urn": "(self, parent, type_, name)",
    "pulumi.runtime.mocks:MockSettings": "(*_, **kwargs)",
    "pulumi.runtime.resource:_get_stack_trace": "()",
    "pulumi.runtime.rpc:UNKNOWN": "str",
    "pulumi.runtime.rpc:_special_resource_sig": "str",
    "pulumi.runtime.rpc:_special_secret_sig": "str",
    "pulumi.runtime.rpc:_special_sig_key": "str",
    "pulumi.runtime.settings:SETTINGS": "Settings",
    "pulumi.runtime.settings:SETTINGS.outputs": "set",
    "pulumi.runtime.settings:SETTINGS.rpc_manager.clear": "()",
    "pulumi.runtime.settings:get_monitor": "()",
    "pulumi.runtime.settings:set_root_resource": "(root)",
}
"""Each name by its module, with its parameters, or with its type where it is not called."""


@pytest.mark.parametrize(("name", "seen"), SEEN.items(), ids=SEEN)
def test_a_name_is_as_it_was(name: str, seen: str) -> None:
    """An SDK that takes a name away, or gives it other parameters, is noticed by this name and not by a plan that is wrong."""
    sdk = f"pulumi {version('pulumi')}"
    try:
        found = looks(name)
    except (AttributeError, ImportError) as problem:
        pytest.fail(f"{sdk} has no {name} ({problem}): find what takes its place in {SDK.name}, or keep the upper bound of pulumi below {sdk}")
    assert found == seen, f"{name} was {seen} and is {found} in {sdk}: read what changed, mend {SDK.name}, and enter it here"


def looks(name: str) -> str:
    """The parameters of a name, or its type where it is not called."""
    module, _, path = name.partition(":")
    found: object = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        return type(found).__name__
    parameters = inspect.signature(found).parameters.values()
    plain = [p.replace(annotation=p.empty, default=p.empty) for p in parameters]
    return str(inspect.Signature(plain, __validate_parameters__=False))


def used(file: Path) -> Iterator[tuple[str, str]]:
    """What a module takes of the SDK: modules and names, imported or reached by dots from what is imported."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules = {"pulumi": "pulumi"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "pulumi":
            for alias in node.names:
                yield node.module, alias.name
                modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}"} if f"{node.module}.{alias.name}" in PUBLISHED else {}
        elif isinstance(node, ast.Import):
            yield from (tuple(a.name.rsplit(".", 1)) for a in node.names if a.name.startswith("pulumi."))  # type: ignore[misc]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (owner := modules.get(ast.unparse(node.value), ast.unparse(node.value))) in PUBLISHED:
            yield owner, node.attr


def unpublished(file: Path) -> set[str]:
    """What of it the SDK does not publish, as SEEN spells it."""
    return {f"{module}:{name}" for module, name in used(file) if name not in PUBLISHED.get(module, ())}


@pytest.mark.parametrize("file", [f for f in sorted(PACKAGE.rglob("*.py")) if f != SDK], ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_others_use_what_is_published(file: Path) -> None:
    """All that may change without notice is in one module, which is what has to be read when the SDK moves on."""
    assert unpublished(file) == set()


def test_every_name_is_listed() -> None:
    """A name that the module imports is one of those above; what it replaces is there, too."""
    modules = {"pulumi.provider.experimental:component", "pulumi.runtime:resource"}
    """Modules of which a name is replaced."""
    imported = {name for name in unpublished(SDK) if not name.startswith(WIRE)}
    assert len(imported) > 10
    assert imported - modules <= SEEN.keys()
    replaced = re.findall(r'_replaced\(\w+, "(\w+)"', SDK.read_text(encoding="utf-8"))
    assert sorted(replaced) == ["Analyzer", "_get_stack_trace", "invoke", "invoke"]
    assert set(replaced) <= {name.partition(":")[2] for name in SEEN}


def test_the_sdk_is_bounded_by_what_was_tested() -> None:
    """The newest release that may be installed is of the minor version that is pinned here, and so tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (allowed,) = [r.specifier for r in map(Requirement, project["dependencies"]) if r.name == "pulumi"]
    pinned = re.search(r"^pulumi==(\d+)\.(\d+)\.", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    major, minor = map(int, pinned.groups())
    assert str(allowed) == f"<{major}.{minor + 1},>={major}.{minor}", f"pin and bound of pulumi differ: what is pinned is {major}.{minor}"
    assert version("pulumi") in allowed
