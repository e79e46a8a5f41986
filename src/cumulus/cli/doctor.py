"""`cumulus doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass

import typer
from packaging.requirements import Requirement

from cumulus.machine_facts import memory
from cumulus.version import VERSION


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `needed_for` is "everything" or the part that does without it."""

    name: str
    found: str
    good: bool
    needed_for: str = "everything"
    advice: str = ""


def doctor(as_json: bool = typer.Option(False, "--json", help="One JSON object.")) -> None:
    """Look at Python, Java, Spark, packages, memory and disk, and say what to do about what is missing.

    Exit code 1 if something is missing that `cumulus run` with its usual options needs. Example: cumulus doctor
    """
    findings = [_python(), *_packages(), _java(), *_machine()]
    healthy = all(finding.good for finding in findings)
    if as_json:
        told = {"version": VERSION, "healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(told, indent=1))
    else:
        _tell(findings, healthy)
    if not healthy:
        raise typer.Exit(1)


def _tell(findings: list[Finding], healthy: bool) -> None:
    from cumulus.cli.terminal.consoles import plain_console

    console = plain_console()
    for finding in findings:
        mark = "ok     " if finding.good else "MISSING"
        console.print(f"{mark} {finding.name}: {finding.found}", soft_wrap=True)
        if not finding.good and finding.advice:
            console.print(f"        needed for {finding.needed_for}. {finding.advice}", soft_wrap=True)
    console.print("all well" if healthy else "something is missing: see above")


def _python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    return Finding("Python", found, sys.version_info >= (3, 11), advice="Install Python 3.11 or newer.")


_SPARKS = ("pyspark", "pandas", "protobuf")


def _packages() -> list[Finding]:
    """Compare what is installed with the releases that this package takes, by its own metadata."""
    findings = []
    for line in importlib.metadata.requires("cumulus-ivm") or ():
        wanted = Requirement(line)
        if wanted.marker is not None and not (wanted.name in _SPARKS and wanted.marker.evaluate({"extra": "spark"})):
            continue
        needed_for = "--host spark" if wanted.name in _SPARKS else "everything"
        advice = f"Run: pip install '{wanted.name}{wanted.specifier}'"
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(wanted.name, "not installed", False, needed_for, advice))
            continue
        good = wanted.specifier.contains(version)
        found = version if good else f"{version}, but {wanted.specifier} is needed"
        findings.append(Finding(wanted.name, found, good, needed_for, "" if good else advice))
    return findings


def _java() -> Finding:
    from cumulus.errors import MissingError
    from cumulus.spark.java import find_java

    try:
        return Finding("Java", str(find_java()), True, "--host spark")
    except MissingError as problem:
        return Finding("Java", problem.message, False, "--host spark", problem.hint)


def _machine() -> list[Finding]:
    findings = []
    total, available = memory()
    if total:
        found = f"{available / 2**30:.1f} of {total / 2**30:.1f} GB free, {os.cpu_count()} cores"
        advice = "Spark wants at least 1 GB; close something."
        findings.append(Finding("memory", found, available > 1 << 30, advice=advice))
    free = shutil.disk_usage(os.getcwd()).free
    advice = "Keep 1 GB free for state and views."
    findings.append(Finding("disk", f"{free / 2**30:.1f} GB free here", free > 1 << 30, advice=advice))
    if os.path.isdir("/dev/shm"):
        shared = shutil.disk_usage("/dev/shm").free
        findings.append(Finding("/dev/shm", f"{shared / 2**30:.1f} GB free", True))
    return findings
