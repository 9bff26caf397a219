"""One served model: its namespace, identity, LeaderWorkerSets, Services and budgets."""

from collections.abc import Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi

from ..manifests.serving import build_model_base, build_model_workloads, service_name
from ..planning.shapes import Layout, Served
from ..planning.standalone import evaluate_models
from .base import checked, declare, plain, project_folder, take
from .spec_args import ModelSpecArgs


class ModelServingArgs(TypedDict):
    """Arguments of ModelServing."""

    model: Required[ModelSpecArgs]
    """The model."""

    zone: NotRequired[str]
    """Availability zone of its pods; required where NodePools are made."""

    token: NotRequired[pulumi.Input[str]]
    """Hugging Face token, if weights.token_key names one; becomes a Kubernetes Secret."""

    auto_mode: NotRequired[bool]
    """Whether the pods select NodePools of this project. False: the roles give node_selector. Default: true."""

    create_namespace: NotRequired[bool]
    """Whether to make the namespace. Default: true."""

    catalog_dirs: NotRequired[Sequence[str]]
    """Folders that add to the catalogue. Default: none."""


class ModelServing(pulumi.ComponentResource):
    """A model on nodes that exist or that NodePools makes; the LeaderWorkerSet controller must be there.

    Outputs: `namespace`; `service_names`, one a role.
    """

    namespace: pulumi.Output[str]
    service_names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ModelServingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Serve the model with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        given = take(args, ModelServingArgs)
        evaluation = evaluate_models(
            [plain(given["model"], "model")],
            plain(given.get("zone"), "zone"),
            project_folder(),
            catalog_dirs=plain(given.get("catalog_dirs", ()), "catalog_dirs"),
            auto_mode=given.get("auto_mode", True),
        )
        layout = checked(evaluation)
        self._declare(name, layout, layout.served[0], given.get("token"), opts, create_namespace=given.get("create_namespace", True))

    @classmethod
    def of_layout(cls, name: str, layout: Layout, served: Served, token: Any, opts: pulumi.ResourceOptions) -> "ModelServing":
        """A model of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, served, token, opts, create_namespace=True)
        return self

    def _declare(self, name: str, layout: Layout, served: Served, token: Any, opts: Any, *, create_namespace: bool) -> None:
        super().__init__("disagg-serving:index:ModelServing", name, {}, opts)
        if served.spec.weights.token_key and token is None:
            raise pulumi.RunError(f"{served.path}.weights.tokenKey: {served.spec.weights.token_key} is named, but no token is given")
        groups = layout.groups_of(served)
        base = build_model_base(served, pulumi.Output.secret(token))
        namespace = declare(name, (o for o in base if o["kind"] == "Namespace" and create_namespace), self)
        rest = declare(name, (o for o in base if o["kind"] != "Namespace"), self, namespace)
        declare(name, build_model_workloads(groups), self, [*namespace, *rest])
        if served.spec.wait_for_ready_seconds is None:
            sets, space = ", ".join(g.name for g in groups), served.spec.kubernetes_namespace
            pulumi.log.info(f"not waiting until {sets} have loaded; see `kubectl get lws -n {space}`", self)
        self.namespace = pulumi.Output.from_input(served.spec.kubernetes_namespace)
        self.service_names = pulumi.Output.from_input([service_name(g) for g in groups])
        self.register_outputs({"namespace": self.namespace, "serviceNames": self.service_names})
