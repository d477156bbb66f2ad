"""The rules of the layout: stages stay apart, the core is quick to import, help tells the truth, the wheel installs."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from flywheel.cli import COMMANDS, flywheel
from flywheel.config import Config
from flywheel.stages import STAGES, stage
from flywheel.workspace import ROLES

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "peft", "trl", "smolagents", "datasets", "faiss", "sentence_transformers", "fastapi")


@pytest.mark.parametrize("path", [path for name in STAGES for path in sorted((ROOT / name).rglob("*.py"))], ids=str)
def test_a_stage_imports_the_core_and_itself_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] not in STAGES, f"{path} imports {name}"


def test_the_core_imports_nothing_heavy() -> None:
    modules = [f"flywheel.{path.stem}" for path in (ROOT / "flywheel").glob("*.py") if path.stem != "__main__"]
    script = f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded)
    script = "import sys\nfrom flywheel.cli import flywheel\nflywheel(['--help'], standalone_mode=False)\n"
    script += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {*HEAVY, "pydantic", "rich"} & set(loaded)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_command_says(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].rpartition(".")
    command = getattr(stage(module), attribute)
    assert command.name == name
    printed = CliRunner().invoke(flywheel, [name, "--help"]).output
    assert printed.startswith("Usage: flywheel")
    assert COMMANDS[name][1].rstrip(".").split()[0] in printed


def test_the_team_and_the_workspace_name_the_same_roles() -> None:
    team = stage("collect.team").WIKIPEDIA
    assert tuple(role.name for role in team.roles) == ROLES
    tools = stage("collect.tools").TOOLS
    for role in team.roles:
        assert Config().team.max_steps(role.name) >= 1
        for mode in ("full", "compact"):
            prompt = role.prompt(mode)
            for tool in (*role.tools, "final_answer"):
                assert tool in prompt
                assert tool == "final_answer" or tool in tools


def test_modules_that_prompts_offer_can_be_imported() -> None:
    from collect.sandbox import Sandbox

    sandbox = Sandbox(sessions=1)
    offered = {
        name.strip()
        for path in (ROOT / "collect/prompts").glob("*.full.md")
        for names in re.findall(r"modules can be imported: (.*)\.", path.read_text())
        for name in names.split(",")
    }
    assert offered
    with sandbox.executor() as executor:
        for name in offered:
            executor(f"import {name}")
    sandbox.close()


def test_a_readme_line_for_every_source_file() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in ("flywheel", *STAGES):
        for path in (ROOT / name).glob("*.py"):
            assert path.stem.startswith("__") or path.name in readme, f"{path} is not in the README"


def _commands(readme: str, heading: str) -> list[str]:
    """The shell lines of the first block below a heading."""
    block = readme.partition(heading)[2].partition("```sh\n")[2].partition("```")[0]
    return block.strip().splitlines()


def test_the_readmes_commands_without_gpu_hub_or_network(qwen2: Path, tmp_path: Path) -> None:
    lines = _commands((ROOT / "README.md").read_text(), "### Without a GPU, a hub or the network")
    script = "\n".join(["set -e", *lines])
    script = script.replace('model = "embedded"', f'model = "{qwen2}"').replace("--limit 100", "--limit 6")
    script = script.replace("--steps 30", "--steps 2").replace("--limit 20", "--limit 3")
    script = script.replace("max_tokens = 80", "max_tokens = 8")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "flywheel").write_text(f'#!/bin/sh\nexec {sys.executable} -m flywheel "$@"\n')
    (bin_folder / "flywheel").chmod(0o755)
    environment["PATH"] = f"{bin_folder}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 held-out questions" in done.stdout


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_documentation_names_real_commands_and_options(page: str) -> None:
    text = (ROOT / page).read_text()
    for line in re.findall(r"flywheel (?:-[wo] \S+ )*([a-z]+)([^\n`]*)", text):
        name, rest = line
        if name not in COMMANDS:
            continue
        printed = CliRunner().invoke(flywheel, [name, "--help"], terminal_width=200).output
        for option in re.findall(r"(--[a-z-]+)", rest.partition("#")[0]):
            assert option in printed, f"flywheel {name} has no {option}"


def test_the_wheel_installs_and_runs_elsewhere(tmp_path: Path) -> None:
    """Built, installed into a clean environment, and run from another folder, claiming one name only.

    The environment borrows the dependencies of this one by a path file, so that nothing is downloaded.
    """
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(tmp_path.glob("flywheel_lora-*.whl"))
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    assert {path.name for path in site.iterdir()} & {"collect", "train", "serve", "data", "tests"} == set()
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    command = tmp_path / "env" / "bin" / "flywheel"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["MONTY_BIN"] = str(Path(sysconfig.get_path("scripts")) / "monty")  # borrowed as well

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "Specialise a small local model" in run("--help")
    run("init", "w")
    settings = "[team]\nhistory = 'full'\n[source]\nkind = 'corpus'\npath = 'embedded'\n"
    (tmp_path / "w" / "flywheel.toml").write_text(settings)
    assert "3 right" in run("-w", "w", "collect", "--questions", "embedded", "--limit", "3", "--teacher")
    assert "kept" in run("-w", "w", "select")
