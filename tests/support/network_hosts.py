"""Several hosts on one machine: network namespaces on a bridge, each with a folder that the others do not see.

Only root can make them. They are removed at the end, with all that runs in them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

TESTS = Path(__file__).parents[1]


def missing() -> str:
    """Return why there can be no hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    lacking = [each for each in ("ip", "unshare", "nsenter", "openssl") if shutil.which(each) is None]
    return f"{', '.join(lacking)} is not installed" if lacking else ""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Host:
    """One of them.

    Parameters
    ----------
    cable
        What sets the end of its cable at the bridge up or down.
    own
        The folder that is its own: at the same place on all hosts, and with other files.
    """

    def __init__(self, namespace: str, cable: Sequence[str], address: str, own: Path) -> None:
        self.namespace, self.address, self.own, self._cable = namespace, address, own, cable
        self._processes: list[subprocess.Popen[str]] = []
        mount = f"mount -t tmpfs none {own} && echo ready && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", mount],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"

    def inside(self, *command: str) -> list[str]:
        """Return what runs a command on this host, in its own folder."""
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount", "--net"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(self.own), *command]

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command; it ends with the host."""
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            self.inside(*command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=environment,
        )
        self._processes.append(process)
        return process

    def run(self, *command: str, seconds: float = 120.0) -> str:
        """Run a command to its end; return what it has said."""
        process = self.start(*command)
        told, _ = process.communicate(timeout=seconds)
        assert process.returncode == 0, told
        return told

    def python(self, code: str, seconds: float = 120.0) -> str:
        """Run Python; return what it has printed."""
        return self.run(sys.executable, "-c", code, seconds=seconds)

    def cumulus(self, *words: Any, seconds: float = 120.0) -> str:
        """Run the command line; return what it has said."""
        return self.run(sys.executable, "-m", "cumulus", *map(str, words), seconds=seconds)

    def write(self, name: str, text: str, *, is_secret: bool = False) -> Path:
        """Write a file into the folder of this host."""
        mask = "umask 077; " if is_secret else ""
        subprocess.run(self.inside("sh", "-c", f"{mask}cat > {name}"), input=text, text=True, check=True)
        return self.own / name

    def name(self, addresses: Mapping[str, str]) -> None:
        """Let this host know others by names: name → address."""
        self.write("hosts", "127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for name, at in addresses.items()))
        self.run("mount", "--bind", "hosts", "/etc/hosts")

    def cut(self) -> None:
        """Pull the cable."""
        ip(*self._cable, "down")

    def mend(self) -> None:
        """Plug it in."""
        ip(*self._cable, "up")

    def vanish(self) -> None:
        """Take its cable away, as when its power fails; then end what runs here."""
        ip("-n", self.namespace, "link", "del", "eth0")
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)

    def lose_way_to(self, other: Host) -> None:
        """Let nothing of what is sent to another host arrive there; all others hear this one."""
        ip("-n", self.namespace, "neigh", "replace", other.address, "lladdr", "02:00:00:00:00:99", "dev", "eth0")

    def find_way_to(self, other: Host) -> None:
        """Let it arrive again."""
        ip("-n", self.namespace, "neigh", "del", other.address, "dev", "eth0")

    def pids(self) -> list[int]:
        """Return the numbers of all processes of this host."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        return [int(each) for each in found.stdout.split() if int(each) != self._holder.pid]

    def command_lines(self) -> dict[int, str]:
        """Return process → its command line."""
        found = {}
        for pid in self.pids():
            try:
                found[pid] = " ".join(psutil.Process(pid).cmdline())
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """End everything."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait(timeout=30)
            if process.stdout is not None:
                process.stdout.close()
        self._holder.kill()
        self._holder.wait(timeout=30)
        assert self._holder.stdout is not None
        self._holder.stdout.close()


class Hosts:
    """Hosts at 10.77.0.1, 10.77.0.2, …, as a context; the bridge between them is in a namespace of its own.

    Parameters
    ----------
    own
        An empty folder.
    """

    def __init__(self, own: Path, count: int) -> None:
        self._tag = uuid.uuid4().hex[:5]
        self._own, self._count = own, count
        self._namespaces: list[str] = []
        self.hosts: list[Host] = []

    def __enter__(self) -> Sequence[Host]:
        try:
            self._namespace("bridge")
            inside = ("-n", self._namespaces[0])
            ip(*inside, "link", "add", "bridge", "type", "bridge")
            ip(*inside, "link", "set", "bridge", "up")
            for number in range(1, self._count + 1):
                self.hosts.append(self._host(number))
        except BaseException:
            self.close()
            raise
        return self.hosts

    def _namespace(self, name: str) -> str:
        namespace = f"cumulus-{self._tag}-{name}"
        ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        return namespace

    def _host(self, number: int) -> Host:
        namespace, cable = self._namespace(f"h{number}"), f"cu{self._tag}{number}"
        address = f"10.77.0.{number}"
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", cable, "netns", self._namespaces[0])
        ip("-n", self._namespaces[0], "link", "set", cable, "master", "bridge", "up")
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", namespace, "link", "set", device, "up")
        return Host(namespace, ("-n", self._namespaces[0], "link", "set", cable), address, self._own)

    def close(self) -> None:
        """Remove all."""
        for host in self.hosts:
            host.close()
        for namespace in self._namespaces:
            ip("netns", "del", namespace)

    def __exit__(self, *_: object) -> None:
        self.close()


def write_certificates(folder: Path, addresses: Sequence[str], days: int = 2) -> None:
    """Write an authority, `ca.pem`, and for each address, or name of hosts, a certificate for days and its key.

    They are `ADDRESS.pem` and `ADDRESS.key`.
    """

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for address in addresses:
        kind = "IP" if address.replace(".", "").isdecimal() else "DNS"
        (folder / "names").write_text(f"subjectAltName={kind}:{address}")
        openssl("req", *new_key, "-keyout", f"{address}.key", "-out", "asked", "-subj", f"/CN={address}")
        signed = ("-in", "asked", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", str(days), "-extfile", "names")
        openssl("x509", "-req", *signed, "-out", f"{address}.pem")
