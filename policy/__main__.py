"""The policy pack: `pulumi preview --policy-pack policy`."""

from disagg_serving.resources.policy import serve

serve()
