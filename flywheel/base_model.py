"""Finds and loads base models: a local folder, a hub id, a GGUF file, or the packaged one. Imports torch where used."""

import logging
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flywheel.errors import InputError
from flywheel.files import disk_errors, sha256
from flywheel.packaged_models import packaged_language_model

if TYPE_CHECKING:
    import torch

_SAMPLE = 1 << 16
"""Bytes at either end of a weight file that enter the fingerprint; a whole 15 GB would take a minute each time."""


def user_cache() -> Path:
    """Where models are kept that were converted once: FLYWHEEL_CACHE, else below the user's cache folder."""
    if chosen := os.environ.get("FLYWHEEL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flywheel"


def resolve_gguf(model: str) -> Path:
    """The GGUF file that a model name stands for.

    Raises:
        InputError: when it stands for something else, or the file is missing.
    """
    path = packaged_language_model() if model == "embedded" else Path(model)
    if path.suffix != ".gguf" or not path.is_file():
        raise InputError(f"the engine llamacpp needs a GGUF file (or `embedded`), and {model} is none")
    return path


def resolve_folder(model: str, weights: bool = True) -> Path:
    """A local folder with config, tokenizer and safetensors for a model name.

    A GGUF file is dequantised once and kept in the user's cache; a hub id is downloaded by huggingface_hub.

    Args:
        weights: False if the tokenizer is all that is wanted, so that a hub's weights need not be downloaded.

    Raises:
        InputError: when there is no such model, or it cannot be read.
    """
    path = packaged_language_model() if model == "embedded" else Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise InputError(f"no such GGUF file: {model}")
        return _dequantised(path)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise InputError(f"{model} has no config.json, so it is not a model folder")
        return path
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise InputError(
            f"no such model: {model} (expected a folder, a GGUF file, a hub id like owner/name, or embedded)"
        )
    return _downloaded(model, weights)


def resolve_tokenizer(model: str) -> Path:
    """A local folder with a model's tokenizer: as `resolve_folder`, but of a GGUF file the tokenizer alone is read.

    Raises:
        InputError: when there is no such model, or it cannot be read.
    """
    path = packaged_language_model() if model == "embedded" else Path(model).expanduser()
    if path.suffix != ".gguf" or not path.is_file():
        return resolve_folder(model, weights=False)
    target = user_cache() / "tokenizers" / f"{path.stem}-{_fingerprint([path])[:12]}"
    if not (target / "tokenizer.json").exists():
        from transformers import AutoTokenizer

        quiet()
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise InputError(f"transformers cannot read the tokenizer of {path.name}: {error}") from error
        with disk_errors(target):
            temporary.mkdir(parents=True, exist_ok=True)
            tokenizer.save_pretrained(temporary)
            if not target.exists():
                temporary.replace(target)
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _downloaded(model: str, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.jinja", "*.model", "*.txt", *(["*.safetensors"] if weights else [])]
    try:
        return Path(snapshot_download(model, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise InputError(f"cannot get {model} from the hub: {str(error).splitlines()[0]}") from error


def _dequantised(gguf: Path) -> Path:
    target = user_cache() / "models" / f"{gguf.stem}-{_fingerprint([gguf])[:12]}"
    if (target / "config.json").exists():
        return target
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    quiet()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with disk_errors(target):
        temporary.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        )
        with disk_errors(target):
            loaded.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            if not target.exists():
                temporary.replace(target)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise InputError(f"transformers cannot read {gguf.name}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def base_hash(folder: Path) -> str:
    """Fingerprint of a base: its configuration, tokenizer, and the sizes, heads and tails of its weight files."""
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    texts = [path for name in ("config.json", "tokenizer.json") if (path := folder / name).exists()]
    return sha256(*texts, _fingerprint(weights))


def model_hash(model: str) -> str:
    """Fingerprint of a base by its name in the settings: of a GGUF file as it is, else the `base_hash` of its folder.

    Raises:
        InputError: when there is no such model.
    """
    path = packaged_language_model() if model == "embedded" else Path(model).expanduser()
    return _fingerprint([path]) if path.suffix == ".gguf" and path.is_file() else base_hash(resolve_folder(model))


def _fingerprint(files: list[Path]) -> str:
    parts: list[bytes] = []
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as file:
            parts += [str(size).encode(), file.read(_SAMPLE)]
            file.seek(max(0, size - _SAMPLE))
            parts.append(file.read())
    return sha256(*parts)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a resolved model.

    Raises:
        InputError: when it cannot be loaded or has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot load the tokenizer of {folder}: {str(error).splitlines()[0]}") from error
    if not tokenizer.chat_template:
        raise InputError(f"the tokenizer of {folder} has no chat template; Flywheel needs a chat model")
    return tokenizer


def load_model(
    folder: Path, dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto", quantize: bool = False
) -> Any:
    """The weights of a resolved model, on CUDA where there is some, else on the CPU.

    Args:
        dtype: `auto` is bfloat16 where the device computes it fast, float32 elsewhere.
        quantize: load in 4 bits (NF4, bitsandbytes).

    Raises:
        InputError: when transformers cannot load it.
    """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    quiet()
    # of several processes that `accelerate launch` has started, each has a device, or with FSDP a part of the model
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    divided = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    chosen = fast_dtype() if dtype == "auto" else getattr(torch, dtype)
    options: dict[str, Any] = {"dtype": chosen, "device_map": None if divided else device}
    if quantize:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=chosen,
            bnb_4bit_use_double_quant=True,
            bnb_4bit_quant_storage=chosen if divided else torch.uint8,  # FSDP wants one type for all weights
        )
    try:
        return AutoModelForCausalLM.from_pretrained(folder, **options)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot load the model in {folder}: {str(error).splitlines()[0]}") from error


def fast_dtype() -> "torch.dtype":
    """bfloat16 where the device has instructions for it, else float32."""
    import torch

    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    native = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # type: ignore[no-untyped-call]
    return torch.bfloat16 if native else torch.float32


def quiet() -> None:
    """Keep the progress bars and remarks of libraries out of our output. Call it before they are imported."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
