"""`pulumi-language-python` of the bench: runs a program in this Python, since the released host is in no module.

The engine passes its address as the last argument; the printed port is where it finds the host.
"""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from pulumi.automation._server import LanguageServer
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class Host(LanguageServer):
    """The Automation API's server, told which program to run by the engine."""

    def __init__(self, engine: str) -> None:
        """Answer the engine at `engine`."""
        super().__init__(lambda: None)
        self.engine = engine

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 (the engine's names)
        """Nothing to agree on."""
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Any version will do."""
        return plugin_pb2.PluginInfo(version="3.276.0")

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Run the `__main__.py` of the program's folder."""
        folder = request.info.program_directory or request.pwd
        os.chdir(folder)
        sys.path.insert(0, folder)

        def program() -> None:
            runpy.run_path(f"{folder}/__main__.py", run_name="__main__")

        self.program = program
        del request.args[:]
        request.args.append(self.engine)
        return super().Run(request, context)  # type: ignore[no-untyped-call]

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """This Python has what a plugin of ours needs."""
        yield from ()

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Run a plugin that is a folder with a `__main__.py`, in this Python, until the engine ends the call."""
        command = [sys.executable, request.info.program_directory, *request.args]
        environment = dict(entry.split("=", 1) for entry in request.env) or None
        with subprocess.Popen(command, cwd=request.pwd, env=environment, stdout=subprocess.PIPE) as plugin:
            context.add_callback(plugin.kill)
            while line := plugin.stdout.readline() if plugin.stdout else b"":
                yield language_pb2.RunPluginResponse(stdout=line)
            yield language_pb2.RunPluginResponse(exitcode=plugin.wait())


if __name__ == "__main__":
    # the engine interrupts its plugins at the end; it also ends them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(sys.argv[-1]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()
