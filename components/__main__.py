"""The component plugin's entry point: Pulumi starts it and asks for components."""

from disagg_serving.resources.plugin import serve

serve()
