"""Trains several adapters, each in a process of its own, some of them at the same time."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from flywheel.base_model import resolve_folder
from flywheel.children import start
from flywheel.errors import InfrastructureError
from flywheel.workspace import Workspace, processors


@dataclass(frozen=True)
class Training:
    """One adapter to train."""

    role: str
    dataset: Path
    steps: int = 0
    """Optimiser steps; 0 lets the settings decide."""
    version: int = 0
    """Which the adapter gets; 0 takes the role's next. Two trainings of one role need theirs said."""

    @property
    def arguments(self) -> list[str]:
        """Of `flywheel`."""
        found = ["train", "--role", self.role, "--dataset", str(self.dataset)]
        if self.steps:
            found += ["--steps", str(self.steps)]
        if self.version:
            found += ["--version", str(self.version)]
        return found


def train_side_by_side(workspace: Workspace, trainings: Sequence[Training], jobs: int) -> None:
    """Train in the order given, `jobs` at a time, each with its share of the CPUs.

    On a CPU two single-threaded trainings together are faster than one with two threads.

    Raises:
        InfrastructureError: when a training fails; its own words have been printed before.
    """
    resolve_folder(workspace.config.engine.model)  # a GGUF file is converted here once, and not by each of them
    jobs = min(jobs, len(trainings))
    threads = max(1, processors() // jobs)
    printing = threading.Lock()
    children: list[subprocess.Popen[str]] = []

    def run(training: Training) -> int:
        command = [sys.executable, "-m", "flywheel", "-w", str(workspace.folder)]
        for override in (*workspace.overrides, f"engine.threads={threads}"):
            command += ["-o", override]
        child = start(
            command + training.arguments, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        children.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            with printing:
                click.echo(line.rstrip(), err=True)
        return child.wait()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            codes = list(pool.map(run, trainings))
        except BaseException:
            for child in children:
                child.terminate()
            pool.shutdown(cancel_futures=True)
            raise
    if failed := [training.role for training, code in zip(trainings, codes, strict=True) if code]:
        raise InfrastructureError(f"training failed for {', '.join(failed)}; the reason stands above")
