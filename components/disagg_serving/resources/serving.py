"""One served model: its namespace, identity, network policies, LeaderWorkerSets, Services and budgets."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Required, TypedDict

import pulumi

from ..manifests.mirror import build_mirror_jobs
from ..manifests.names import service_name
from ..manifests.serving import Secrets, build_model_base, build_model_workloads, build_namespace, build_service
from ..planning.scaling import scaled
from ..planning.shapes import Layout, Served
from ..planning.startup import ready_wait_seconds
from .base import declare, read_args, require_model_layout
from .secrets import of_model as secrets_of_model
from .spec_args import ModelSpecArgs, NetworkPolicySpecArgs, RouterSpecArgs


class ModelServingArgs(TypedDict):
    """Arguments of ModelServing."""

    model: Required[ModelSpecArgs]
    """The model."""

    zone: NotRequired[str]
    """Availability zone of its pods; required where NodePools are made."""

    token: NotRequired[pulumi.Input[str]]
    """Hugging Face token, if weights.token_key names one; becomes a Kubernetes Secret."""

    api_key: NotRequired[pulumi.Input[str]]
    """Key of the clients, if gateway.api_key_secret names one; becomes a Kubernetes Secret."""

    router: NotRequired[RouterSpecArgs]
    """Release of the router, for the sidecar of decode pods. Default: as documented there."""

    network_policy: NotRequired[NetworkPolicySpecArgs]
    """Who may talk to whom. Default: as documented there."""

    service_cidr: NotRequired[str]
    """Addresses of the cluster's Services, of which policies admit DNS (.10) and API server (.1). Default: both ranges that EKS chooses from."""

    image_sources: NotRequired[Mapping[str, str]]
    """Registries to read instead, prefix to prefix. Default: none."""

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
    """Namespace of the model."""

    service_names: pulumi.Output[list[str]]
    """Names of the Services, one a role."""

    def __init__(self, name: str, args: ModelServingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Serve the model with the Kubernetes provider of `opts`. Raises pulumi.RunError when a check fails."""
        given = read_args(ModelServing, name, args, ModelServingArgs, opts)
        given.faults.extend(secrets_of_model(given))
        layout, inputs = require_model_layout(given), given.inputs
        secrets = Secrets(inputs.get("token"), inputs.get("api_key"))
        self._declare(name, layout, layout.served[0], secrets, opts, create_namespace=given.get("create_namespace", True))

    @classmethod
    def of_layout(cls, name: str, layout: Layout, served: Served, secrets: Secrets, opts: pulumi.ResourceOptions) -> "ModelServing":
        """A model of a layout that has been checked as part of a whole environment."""
        self = cls.__new__(cls)
        self._declare(name, layout, served, secrets, opts, create_namespace=True)
        return self

    def _declare(self, name: str, layout: Layout, served: Served, secrets: Secrets, opts: Any, *, create_namespace: bool) -> None:
        super().__init__("disagg-serving:index:ModelServing", name, {}, opts)
        model, groups = served.spec, layout.groups_of(served)
        pairs = [served, *layout.candidates_of(served)]
        waiting = [g for candidate in pairs[1:] for g in layout.groups_of(candidate)]
        hidden = Secrets(pulumi.Output.secret(secrets.token), pulumi.Output.secret(secrets.api_key))
        namespace = declare(name, [build_namespace(served, [*groups, *waiting])], self) if create_namespace else []
        before = [*namespace, *declare(name, build_model_base(served, layout.spec, hidden), self, namespace)]
        # the copy takes an hour or more, in which GPU nodes would stand idle
        before += declare(name, build_mirror_jobs(pairs), self, before)
        workloads, handed_over = build_model_workloads(groups), {g.name for g in scaled(groups)}
        sets = declare(name, [w for w in workloads if not _is_set_of(w, handed_over)], self, before)
        # a number that stood in the last program's manifest would otherwise be withdrawn, and the API server's default of 1 take its place
        sets += declare(name, [w for w in workloads if _is_set_of(w, handed_over)], self, before, ignore_changes=["spec.replicas"])
        # a generation is available before anything selects it
        declare(name, map(build_service, groups), self, [*before, *sets])
        declare(name, [*map(build_service, waiting), *build_model_workloads(waiting)], self, before)
        unseen = [g.name for pair in pairs if ready_wait_seconds(pair) is None for g in layout.groups_of(pair)]
        if unseen:
            pulumi.log.info(f"not waiting until {', '.join(unseen)} have loaded; see `kubectl get lws -n {model.kubernetes_namespace}`", self)
        self.namespace = pulumi.Output.from_input(model.kubernetes_namespace)
        self.service_names = pulumi.Output.from_input([service_name(g) for g in groups])
        self.register_outputs({"namespace": self.namespace, "serviceNames": self.service_names})


def _is_set_of(manifest: Mapping[str, Any], names: set[str]) -> bool:
    return manifest["kind"] == "LeaderWorkerSet" and manifest["metadata"]["name"] in names
