"""Trains several roles, each in a process of its own, some of them at the same time."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from flywheel.base_model import resolve_folder
from flywheel.errors import InfrastructureError
from flywheel.workspace import Workspace, processors


def train_side_by_side(workspace: Workspace, datasets: Mapping[str, Path], steps: Mapping[str, int], jobs: int) -> None:
    """Train the roles in the order given, `jobs` at a time, each with its share of the CPUs.

    On a CPU two single-threaded trainings together are faster than one with two threads.

    Args:
        steps: optimiser steps by role, where they are not to follow from the settings.

    Raises:
        InfrastructureError: when a training fails; its own words have been printed before.
    """
    resolve_folder(workspace.config.engine.model)  # a GGUF file is converted here once, and not by each of them
    jobs = min(jobs, len(datasets))
    threads = max(1, processors() // jobs)
    printing = threading.Lock()
    children: list[subprocess.Popen[str]] = []

    def run(role: str) -> int:
        command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder)]
        for override in (*workspace.overrides, f"engine.threads={threads}"):
            command += ["-o", override]
        command += ["train", "--role", role, "--dataset", str(datasets[role])]
        if role in steps:
            command += ["--steps", str(steps[role])]
        child = subprocess.Popen(
            command, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        children.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            with printing:
                click.echo(line.rstrip(), err=True)
        return child.wait()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            codes = dict(zip(datasets, pool.map(run, datasets), strict=True))
        except BaseException:
            for child in children:
                child.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    if failed := [role for role, code in codes.items() if code]:
        raise InfrastructureError(f"training failed for {', '.join(failed)}; the reason stands above")
