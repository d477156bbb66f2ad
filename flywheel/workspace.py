"""A workspace: one folder with settings, traces, datasets, adapters, reports and cache."""

import contextlib
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from flywheel.config import Config, load_config
from flywheel.errors import DataError, InfrastructureError, InputError, explain
from flywheel.files import disk_errors, sha256, write_text
from flywheel.records import AdapterCard

FORMAT_VERSION = 1
Model = TypeVar("Model", bound=BaseModel)
ROLES = ("supervisor", "wiki_search", "page_search")

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_FOLDERS = ("datasets", "adapters", "reports", "cache")

DEFAULT_SETTINGS = """\
# Settings of this workspace. Everything left out has the default that `flywheel config` prints.

[engine]
# transformers (in process), llamacpp (GGUF, on the CPU) or openai (any OpenAI-compatible URL)
kind = "transformers"
# hub id, local folder, GGUF file, or "embedded" (SmolLM2-135M, for trying things out)
model = "Qwen/Qwen2.5-7B-Instruct"

[source]
# wikipedia (live), zim (a Kiwix file), corpus (a pages.jsonl; path = "embedded" is the encyclopedia that ships with
# Flywheel) or questions (the paragraphs that come with the questions)
kind = "wikipedia"
# Wikimedia asks for a way to reach whoever runs a bot: an e-mail address or a URL.
contact = {contact}

[collect]
samples = 4
temperature = 0.7
"""


class Workspace:
    """A workspace that exists.

    Raises:
        InputError: when the folder is no workspace, or its settings are wrong.
        DataError: when it was made by a Flywheel with another format.
    """

    def __init__(self, folder: Path, overrides: Iterable[str] = ()) -> None:
        self.folder = folder.resolve()
        manifest = self.folder / "workspace.json"
        if not manifest.exists():
            raise InputError(f"{folder} is not a workspace; make one with: flywheel init {folder}")
        try:
            version = json.loads(manifest.read_text(encoding="utf-8"))["format_version"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DataError(f"{manifest} is damaged ({error})") from error
        if version != FORMAT_VERSION:
            raise DataError(
                f"{folder} is a workspace of format {version}, this Flywheel uses {FORMAT_VERSION}: "
                "use the Flywheel that made it, or start a new workspace with: flywheel init"
            )
        for name in _FOLDERS:
            if (self.folder / name).exists() and not (self.folder / name).is_dir():
                raise DataError(f"{self.folder / name} is a file, and a folder is needed there: move it away")
        self.overrides = tuple(overrides)
        self.config: Config = load_config(self.folder / "flywheel.toml", self.overrides)

    @classmethod
    def create(cls, folder: Path, settings: str = "", contact: str = "") -> "Workspace":
        """Make a workspace in a folder, which may hold other files.

        Raises:
            InputError: when the folder already holds a workspace, or the settings are wrong.
        """
        if (folder / "workspace.json").exists():
            raise InputError(f"{folder} is a workspace already")
        if (folder / "flywheel.toml").exists() and not settings:
            settings = (folder / "flywheel.toml").read_text(
                encoding="utf-8"
            )  # made beforehand, or kept of an older one
        text = settings or DEFAULT_SETTINGS.format(contact=json.dumps(contact))
        write_text(folder / "flywheel.toml", text)
        load_config(folder / "flywheel.toml")
        with disk_errors(folder):
            for name in _FOLDERS:
                (folder / name).mkdir(exist_ok=True)
        write_text(folder / "workspace.json", json.dumps({"format_version": FORMAT_VERSION}) + "\n")
        return cls(folder)

    @property
    def traces(self) -> Path:
        """The trace store."""
        return self.folder / "traces.sqlite"

    @property
    def datasets(self) -> Path:
        """One JSON Lines file per role."""
        return self.folder / "datasets"

    @property
    def held_out(self) -> Path:
        """The questions that evaluations are made on, and trainings never."""
        return self.folder / "held-out.jsonl"

    @property
    def reports(self) -> Path:
        """Tables and evaluation results."""
        return self.folder / "reports"

    @cached_property
    def cache(self) -> Path:
        """What can be made again."""
        folder = self.folder / "cache"
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        return folder

    @contextlib.contextmanager
    def lock(self, work: str) -> Iterator[None]:
        """Hold a piece of work in this workspace alone; a process that dies lets go of it.

        Raises:
            InputError: when another process is at it.
        """
        from filelock import FileLock, Timeout

        note = self.cache / f"{work}.holder"
        lock = FileLock(self.cache / f"{work}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            holder = note.read_text(encoding="utf-8") if note.exists() else "another process"
            raise InputError(f"{holder} is at work here ({work}, {self.folder}); wait for it or end it") from error
        except OSError as error:
            raise InfrastructureError(f"cannot write {self.cache}: {error.strerror or error}") from error
        try:
            since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
            write_text(note, f"process {os.getpid()} on {platform.node()}, since {since}")
            yield
        finally:
            lock.release()

    def dataset(self, role: str) -> Path:
        """The training rows of a role; of two files the newer one."""
        parquet, jsonl = (self.datasets / f"{role}.{ending}" for ending in ("parquet", "jsonl"))
        if not parquet.exists():
            return jsonl
        return jsonl if jsonl.exists() and jsonl.stat().st_mtime > parquet.stat().st_mtime else parquet

    def adapter(self, name: str) -> Path:
        """The folder of `role@version`, whether or not it exists."""
        role, _, version = name.partition("@")
        return self.folder / "adapters" / role / version

    def versions(self, role: str) -> list[int]:
        """Versions of the role's adapters that are whole, oldest first."""
        folder = self.folder / "adapters" / role
        found = folder.glob("*/card.json") if folder.is_dir() else ()
        return sorted(int(card.parent.name) for card in found if _NUMBER.fullmatch(card.parent.name))

    def next_version(self, role: str) -> int:
        """The version that the role's next adapter gets; names are never used twice, even if adapters are deleted."""
        folder = self.folder / "adapters" / role
        names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
        return max((int(name.lstrip(".")) for name in names if _NUMBER.fullmatch(name.lstrip("."))), default=0) + 1

    def unfinished(self, role: str) -> int | None:
        """The version that a training of the role was making when it was stopped."""
        folder = self.folder / "adapters" / role
        found = [path.name.split(".")[1] for path in folder.glob(".*.training")] if folder.is_dir() else []
        return min((int(name) for name in found if _NUMBER.fullmatch(name)), default=None)

    def adapters(self, names: Iterable[str] | None = None) -> dict[str, Path]:
        """Adapter folders by `role@version`: the named ones, or each role's newest, whether or not they are active.

        Args:
            names: `role@version`, or a role for its newest version; None for the newest of every role.

        Raises:
            InputError: for an unknown role or version.
        """
        if names is None:
            chosen = [f"{role}@{versions[-1]}" for role in ROLES if (versions := self.versions(role))]
        else:
            chosen = [self._versioned(name) for name in names]
        return {name: self.adapter(name) for name in chosen}

    def _versioned(self, name: str) -> str:
        match = re.fullmatch(r"(\w+?)(?:@(\d+))?", name)
        if not match or match[1] not in ROLES:
            raise InputError(f"unknown role in {name!r}; roles are {', '.join(ROLES)}")
        versions = self.versions(match[1])
        if not versions:
            raise InputError(f"{match[1]} has no adapter yet; make one with: flywheel train --role {match[1]}")
        version = int(match[2]) if match[2] else versions[-1]
        if version not in versions:
            raise InputError(f"there is no {name}; {match[1]} has versions {', '.join(map(str, versions))}")
        return f"{match[1]}@{version}"


def read_card(folder: Path) -> AdapterCard:
    """Read an adapter's card, and check that the weights are the ones it was written for.

    Raises:
        DataError: when the card or the weights are missing, damaged or do not belong together.
    """
    card = read_record(folder / "card.json", AdapterCard)
    try:
        weights = sha256(folder / "adapter_model.safetensors")
    except OSError as error:
        raise DataError(f"{folder} is not an adapter of Flywheel: {error.strerror} ({error.filename})") from error
    if (folder.parent.name, folder.name) != (card.role, str(card.version)):
        raise DataError(f"{folder} holds the card of {card.name}: adapters cannot be moved or renamed")
    if weights != card.weights_hash:
        raise DataError(f"{folder}: the weights of {card.name} are not those its card was written for; train it again")
    return card


def read_record(path: Path, kind: type[Model]) -> Model:
    """Read one record from a JSON file.

    Raises:
        DataError: when the file is missing or damaged.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise DataError(f"{path} is damaged, or of another version of Flywheel: {explain(error)}") from error


def data_folder() -> Path:
    """Where the embedded encyclopedia lies: in the package when installed, beside it in a checkout."""
    packaged = Path(__file__).parent / "data"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "data"


def processors() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
