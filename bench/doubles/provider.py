"""A provider that creates anything: outputs are unknown in a preview and made up in an update."""

import uuid

from pulumi.provider.experimental import provider as p
from pulumi.provider.experimental.property_value import PropertyValue as Value

ACCOUNT = "123456789012"


class Double(p.Provider):
    """Check, diff, create, read, update and delete for every resource type of one package."""

    def __init__(self, name: str, version: str) -> None:
        """Answer as package `name`."""
        self.name, self.version = name, version

    async def get_schema(self, request: p.GetSchemaRequest) -> p.GetSchemaResponse:
        """An empty schema: the engine does not need one for what the program does."""
        return p.GetSchemaResponse(schema=f'{{"name":"{self.name}","version":"{self.version}"}}')

    async def check_config(self, request: p.CheckRequest) -> p.CheckResponse:
        """Accept any configuration."""
        return p.CheckResponse(inputs=request.new_inputs, failures=[])

    async def diff_config(self, request: p.DiffRequest) -> p.DiffResponse:
        """Configuration never changes."""
        return p.DiffResponse(changes=False)

    async def configure(self, request: p.ConfigureRequest) -> p.ConfigureResponse:
        """Secrets are needed for components; the SDK's server cannot take unknown outputs as output values."""
        return p.ConfigureResponse(accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=False)

    async def check(self, request: p.CheckRequest) -> p.CheckResponse:
        """Accept any inputs."""
        return p.CheckResponse(inputs=request.new_inputs, failures=[])

    async def create(self, request: p.CreateRequest) -> p.CreateResponse:
        """In a preview the inputs are all that is known."""
        properties = dict(request.properties)
        if request.preview:
            return p.CreateResponse(resource_id="", properties=properties)
        made = uuid.uuid4().hex[:12]
        name = str(properties["name"].value) if "name" in properties else f"double-{made}"
        for key, value in {"arn": f"arn:aws:double::{ACCOUNT}:{name}", "name": name, "allocationId": f"eipalloc-{made}"}.items():
            properties.setdefault(key, Value(value))
        return p.CreateResponse(resource_id=name if "name" in request.properties else made, properties=properties)

    async def diff(self, request: p.DiffRequest) -> p.DiffResponse:
        """Inputs that differ from the state's are updated in place."""
        changed = [key for key in request.new_inputs if request.old_state.get(key) != request.new_inputs.get(key)]
        detail = {key: p.PropertyDiff(p.PropertyDiffKind.UPDATE, True) for key in changed}
        return p.DiffResponse(changes=bool(changed), diffs=changed, detailed_diff=detail)

    async def read(self, request: p.ReadRequest) -> p.ReadResponse:
        """What was created is there as it was."""
        return p.ReadResponse(resource_id=request.resource_id, properties=request.properties, inputs=request.inputs)

    async def update(self, request: p.UpdateRequest) -> p.UpdateResponse:
        """Take the new inputs over, and keep what was made up."""
        return p.UpdateResponse(properties={**request.olds, **request.news})

    async def delete(self, request: p.DeleteRequest) -> None:
        """Gone."""

    async def invoke(self, request: p.InvokeRequest) -> p.InvokeResponse:
        """Look-ups find nothing."""
        return p.InvokeResponse(return_value={}, failures=[])
