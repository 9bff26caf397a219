"""The program of every stack: `pulumi up` and `disagg plan` both run this file."""

from disagg_serving.resources import deploy

deploy()
