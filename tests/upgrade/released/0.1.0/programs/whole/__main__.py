"""The program of every stack of this folder: the environment of its stack file."""

from disagg_serving.resources import deploy

deploy()
