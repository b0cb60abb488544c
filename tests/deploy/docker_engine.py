"""A Docker engine for the tests: the daemon started by hand, and a base image of Debian's packages.

Nothing of this is part of the product, and nothing is installed on this machine: the packages go into the image, and the programs
come from `make test-servers`. Everything lies in one folder, which the variable ``SBON_TEST_DOCKER`` may name: then the
engine's images are kept for the next run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.connectors.servers import program

DOCKER = "/usr/bin/docker"
NEEDED = ("dockerd", DOCKER, "docker-compose", "debootstrap", "iptables")
BASE = "sbon-test-base"
SUITE = "bookworm"
INCLUDED = "python3,python3-venv,ca-certificates,openjdk-17-jre-headless,tini"
"""Packages of the base image: Python, and those that the Dockerfile adds anyway, installed in one step."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PASSED = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Variables by which this machine reaches its package index, where it has any."""


class NoEngineError(Exception):
    """Why no Docker engine can be had here."""


class Engine:
    """``run`` talks to it; ``environment`` is for others that do."""

    def __init__(self, host: str) -> None:
        self.environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}

    def run(self, *command: str, cwd: Path | None = None, stdin: bytes | None = None, check: bool = True) -> str:
        """Return the command's output; raise ``AssertionError`` with the output if it fails."""
        done = subprocess.run(command, cwd=cwd, env=self.environment, input=stdin, capture_output=True, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0 or not check, (
            f"{' '.join(command)}\n{said[-4000:]}{done.stderr.decode(errors='replace')[-4000:]}"
        )
        return said

    def has_image(self, name: str) -> bool:
        return bool(self.run(DOCKER, "images", "-q", name).strip())


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Raises :class:`NoEngineError` where the daemon cannot be started; skips the test where a program is not installed."""
    for name in NEEDED:
        program(name)
    if os.geteuid() != 0:
        raise NoEngineError("only root can start a Docker engine")
    socket = f"unix://{folder}/docker.sock"
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--host", socket]
    command += ["--pidfile", f"{folder}/pid", "--bridge", "none", "--log-level", "warn"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        made = Engine(socket)
        _wait(made, daemon, folder / "dockerd.log")
        yield made
    finally:
        daemon.terminate()
        daemon.wait(120)
        for mounted in (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()):
            if mounted.startswith(f"{folder}/"):  # a namespace of the network that it leaves behind
                subprocess.run(["umount", "-l", mounted], capture_output=True, check=False)


def _wait(made: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while "Server Version" not in made.run(DOCKER, "info", check=False):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise NoEngineError(f"dockerd does not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.2)


def make_base(made: Engine, folder: Path) -> str:
    """The stand-in for the image that a registry would give; raises :class:`NoEngineError` where packages are out of reach."""
    if made.has_image(BASE):
        return BASE
    root = folder / "base"
    shutil.rmtree(root, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(root), *_mirror()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NoEngineError(f"debootstrap: {done.stdout.decode(errors='replace')[-500:]}")
    shutil.copyfile(CERTIFICATES, root / str(CERTIFICATES).lstrip("/"))
    packed = folder / "base.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(root, arcname=".")
    variables = {name: os.environ[name] for name in PASSED if os.environ.get(name)}
    variables |= {"SSL_CERT_FILE": str(CERTIFICATES), "PIP_CERT": str(CERTIFICATES)}
    changes = [word for name, value in variables.items() for word in ("--change", f"ENV {name}={value}")]
    made.run(DOCKER, "import", *changes, str(packed), BASE)
    packed.unlink()
    shutil.rmtree(root, ignore_errors=True)
    return BASE


def _mirror() -> Sequence[str]:
    """Where this machine has its own packages from, by apt's own word; debootstrap's default where it says nothing."""
    command = ("apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages", f"Codename: {SUITE}")
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return found[:1]
