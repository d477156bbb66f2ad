"""One typed tree of settings: defaults here, a workspace's flywheel.toml on top, then `-o section.key=value`."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flywheel.errors import InputError
from flywheel.files import sha256
from flywheel.records import History, Prompt


class Section(BaseModel):
    """Base of all sections: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TeamConfig(Section):
    """Who works, with which prompts and limits."""

    name: Literal["wikipedia"] = "wikipedia"
    prompt: Prompt = "full"
    """`full` carries worked examples; `compact` is for roles that were trained."""
    history: History = "summarised"
    """`summarised` shows the last action and all observations; `full` shows every step and keeps prefixes cached."""
    supervisor_steps: int = Field(8, ge=1)
    wiki_search_steps: int = Field(6, ge=1)
    page_search_steps: int = Field(3, ge=1)
    runs_per_question: int = Field(60, ge=1)
    """Agent runs that one question may take in all; code can call agents in a loop."""
    observation_characters: int = Field(8000, ge=200)
    """Longer observations are cut, and say so."""

    def max_steps(self, role: str) -> int:
        """Most model calls that a run of the role may take."""
        return int(getattr(self, f"{role}_steps"))


class EngineConfig(Section):
    """What completes messages."""

    kind: Literal["auto", "transformers", "llamacpp", "openai", "vllm"] = "transformers"
    """`auto` takes what suits the machine and the model, and says why."""
    model: str = Field("Qwen/Qwen2.5-7B-Instruct", min_length=1)
    """Local folder, GGUF file, hub id, or `embedded` (SmolLM2-135M-Instruct out of its package)."""
    original: str = ""
    """For `llamacpp`: the folder or hub id of the model that the GGUF file was made from, if adapters were trained on
    that; their base is then not compared with the file."""
    url: str = "http://127.0.0.1:8000/v1"
    """For `openai`: where the server listens."""
    names: dict[str, str] = {}
    """For `openai`: the server's name for a role or a version, where it is another: { page_search = "base:page" }."""
    api_key_env: str = "FLYWHEEL_API_KEY"
    """For `openai`: the environment variable that holds the key, if the server wants one."""
    vllm: str = "vllm"
    """For `vllm`: the command, which may lie in an environment of its own."""
    vllm_arguments: tuple[str, ...] = ()
    """For `vllm`: further arguments of `vllm serve`, such as `--gpu-memory-utilization=0.8`."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantize: Literal["none", "nf4"] = "none"
    """For `transformers` and `vllm`: serve the base in 4 bits (NF4), as it is trained on CUDA."""
    max_tokens: int = Field(512, ge=1)
    context: int = Field(8192, ge=128)
    """Most tokens of prompt and completion together."""
    batch: int = Field(16, ge=1)
    """Most sequences that are decoded at once by an in-process engine."""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 takes all that this process may use."""
    timeout: float = Field(600.0, gt=0)
    """Seconds until a call to a server counts as failed."""


class SourceConfig(Section):
    """Where pages come from."""

    kind: Literal["wikipedia", "zim", "corpus", "questions"] = "wikipedia"
    path: str = ""
    """For `corpus`: a pages.jsonl of {title, text}, or questions with their paragraphs; `embedded` is the encyclopedia
    that ships with Flywheel. For `zim`: a Kiwix file. For `questions`: their file, if not the one of --questions."""
    contact: str = ""
    """For `wikipedia`: an e-mail address or URL for the User-Agent, which Wikimedia's policy asks for."""
    language: str = "en"
    url: str = ""
    """For `wikipedia`: api.php of another MediaWiki in place of Wikipedia's."""
    requests_per_second: float = Field(5.0, gt=0)
    """For `wikipedia`: most requests of all rollouts together."""
    offline: bool = False
    """For `wikipedia`: answer from the cache alone."""
    results: int = Field(5, ge=1)
    """Pages per search."""
    summary_characters: int = Field(1000, ge=50)
    page_characters: int = Field(400_000, ge=1000)
    """Of longer pages only the beginning is searched, and the model is told so."""
    passages: int = Field(5, ge=1)
    """Passages per retrieval."""
    passage_characters: int = Field(512, ge=50)
    passage_overlap: int = Field(256, ge=0)
    embedder: str = "embedded"
    """A sentence-transformers model: local folder, hub id, or `embedded` (all-MiniLM-L6-v2 out of its package)."""


class CollectConfig(Section):
    """How rollouts are made."""

    samples: int = Field(1, ge=1)
    """Rollouts per question."""
    temperature: float = Field(0.7, ge=0)
    concurrency: int = Field(8, ge=1)
    """Rollouts at once."""
    seed: int = 0
    grader: Literal["match", "gaia", "judge"] = "match"
    """What decides whether an answer is right; `judge` has the engine's base model decide where `match` says no."""
    executor: Literal["monty", "local"] = "monty"
    """`monty` is a sandbox; `local` is smolagents' own interpreter, which is not a security boundary."""


class SelectConfig(Section):
    """Which runs become training rows."""

    accept: Literal["exact_match", "match", "f1"] = "match"
    f1_threshold: float = Field(0.8, ge=0, le=1)
    max_per_question: int = Field(4, ge=1)
    """Correct rollouts of a question that are used."""
    without: tuple[str, ...] = ()
    """Rules that are switched off, by name; `flywheel select --help` lists them."""
    salvage: bool = False
    """Keep sub-runs of wrong rollouts whose report holds what a kept run on the same task has found out."""
    weights: Literal["balanced", "equal"] = "balanced"
    """`balanced` gives each question, and each of its runs, the same weight, however many rows it has."""


class TrainConfig(Section):
    """How adapters are trained."""

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    learning_rate: float = Field(0.0, ge=0)
    """0 takes one by the size of the base: 8e-4 up to 0.5B parameters, 4e-4 up to 4B, 2e-4 up to 20B, 1e-4 beyond."""
    epochs: float = Field(3.0, gt=0)
    max_steps: int = Field(0, ge=0)
    """Optimiser steps; 0 lets `epochs` decide."""
    batch: int = Field(2, ge=1)
    """Agent runs per step and device; all their rows go in together."""
    accumulation: int = Field(1, ge=1)
    """Steps whose gradients are added up before the weights move."""
    preference_learning_rate: float = Field(0.0, ge=0)
    """For --method dpo and kto, which move a model that is good already; 0 takes a tenth of the other."""
    preference_beta: float = Field(0.1, gt=0)
    """How strongly preferences hold the model to where it started."""
    dropout: float = Field(0.0, ge=0, lt=1)
    track: Literal["none", "trackio", "wandb", "tensorboard"] = "none"
    """Where losses are sent besides the terminal and loss.png; needs the package of that name."""
    checkpoint_steps: int = Field(50, ge=1)
    """Optimiser steps between two checkpoints, from which a killed training goes on."""
    max_tokens: int = Field(4096, ge=64)
    """Longer rows are dropped and counted, never cut."""
    tree_tokens: int = Field(16_384, ge=64)
    """Most tokens that one step computes at once, shared ones counted once; a batch with more is divided."""
    warmup_steps: int = Field(5, ge=0)
    seed: int = Field(0, ge=0, lt=2**32)
    quantize: Literal["auto", "none", "nf4"] = "auto"
    """`auto` takes 4-bit NF4 (QLoRA) on CUDA and none elsewhere."""
    jobs: int = Field(1, ge=1)
    """Roles trained side by side by `--all`."""


class ServeConfig(Section):
    """How roles are served."""

    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8000, ge=0, le=65535)
    """0 takes a free port."""
    queue: int = Field(256, ge=1)
    """Requests that may run or wait at once; more are answered 429."""
    max_tokens: int = Field(0, ge=0)
    """Most tokens that a request may ask for; 0 is engine.context."""
    request_megabytes: float = Field(8.0, gt=0)
    """Largest request."""
    drain_seconds: int = Field(120, ge=0)
    """How long Ctrl-C waits for requests in flight."""


class Config(Section):
    """All settings of a workspace."""

    team: TeamConfig = TeamConfig()
    engine: EngineConfig = EngineConfig()
    source: SourceConfig = SourceConfig()
    collect: CollectConfig = CollectConfig()
    select: SelectConfig = SelectConfig()
    train: TrainConfig = TrainConfig()
    serve: ServeConfig = ServeConfig()

    def digest(self, *sections: str) -> str:
        """Fingerprint of the named sections, to tell whether two runs had the same settings."""
        return sha256(self.model_dump_json(include=set(sections) if sections else None))[:16]


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a workspace's settings and put `section.key=value` overrides on top.

    Raises:
        InputError: for unreadable TOML, unknown keys (with the nearest known one), or values of a wrong type.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or key.count(".") != 1:
            raise InputError(f"-o {override}: expected section.key=value, such as -o engine.model=embedded")
        section, name = key.strip().split(".")
        branch = tree.setdefault(section, {})
        if isinstance(branch, dict):
            branch[name] = _parse(text.strip())
    return validate(tree, str(path))


def validate(tree: Mapping[str, Any], origin: str) -> Config:
    """Build a Config from a tree of plain values.

    Raises:
        InputError: names each wrong key or value, on one line.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{origin}: " + "; ".join(_explain(detail) for detail in error.errors())) from error


def _parse(text: str) -> Any:
    """Read an override's value as TOML, or as plain text where it is not."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(detail: Mapping[str, Any]) -> str:
    location = [str(part) for part in detail["loc"]]
    if detail["type"] != "extra_forbidden":
        return f"{'.'.join(location)}: {detail['msg']}, found {detail['input']!r}"
    fields = Config.model_fields
    for part in location[:-1]:
        fields = fields[part].annotation.model_fields  # type: ignore[union-attr]
    near = difflib.get_close_matches(location[-1], fields, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(fields)}"
    return f"unknown key {'.'.join(location)!r}; {hint}"
