"""A PostgreSQL server for tests: one of our own, where the machine has the programs.

With ``ADAPTIVE_DP_POSTGRES=postgresql://...`` tests use that database instead, in schemas of their
own; its user must be allowed to make schemas and roles.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "ADAPTIVE_DP_POSTGRES"
PROGRAMS = [Path(path) for path in (shutil.which("initdb"),) if path]
PROGRAMS += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def other_user() -> str | None:
    """Return who runs the server: not root, which it refuses; None for whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody", "daemon") if name in users)


class Server:
    """A server on a port of this machine alone, that commits asynchronously by default."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._user = folder, other_user()
        if self._user is not None:
            shutil.chown(folder, self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        self._call("initdb", "-A", "trust", "-U", "tester", "--no-sync")

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} "
            "-c synchronous_commit=off"
        )
        self._call("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop as a power cut would, as far as processes go: what is not on the disk is lost."""
        self._call("pg_ctl", "-m", "immediate", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [PROGRAMS[0].resolve().with_name(program), "-D", self._folder / "data", *arguments],
            check=True,
            user=self._user,
            cwd=self._folder,
            timeout=120,
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def private() -> Iterator[Server]:
    """Run a server, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        server = Server(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
