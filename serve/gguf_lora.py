"""PEFT's LoRA -> the GGUF file that llama.cpp loads beside a GGUF base."""

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from flywheel.base_model import user_cache
from flywheel.errors import DataError
from flywheel.files import disk_errors, sha256

from .adapters import AdapterWeights

PERMUTED = {"llama"}
"""Architectures whose query and key rows llama.cpp keeps in another order (rotary halves interleaved)."""
KNOWN = {"llama", "qwen2"}


def gguf_lora(adapter: AdapterWeights, weights: Path, base: Path) -> Path:
    """The adapter as a GGUF file for this base; written once, and kept in the user's cache.

    Args:
        weights: the adapter's safetensors, by whose content the file is known.
        base: the GGUF base.

    Raises:
        DataError: when the base's architecture, or a layer of the adapter, is not known.
        InfrastructureError: when the disk refuses.
    """
    shape = _Shape(base)
    target = user_cache() / "adapters" / f"{sha256(weights)[:24]}-{shape.architecture}.gguf"
    if not target.exists():
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        with disk_errors(target):
            temporary.parent.mkdir(parents=True, exist_ok=True)
            _write(adapter, shape, temporary)
            temporary.replace(target)
    return target


class _Shape:
    """What a GGUF base says about itself."""

    def __init__(self, base: Path) -> None:
        import gguf

        fields = gguf.GGUFReader(base).fields

        def read(key: str) -> Any:
            return fields[key].contents() if key in fields else None

        self.architecture = str(read("general.architecture"))
        if self.architecture not in KNOWN:
            raise DataError(
                f"{base.name} is of the {self.architecture} family; llamacpp serves adapters of llama, qwen2"
            )
        self.blocks = int(read(f"{self.architecture}.block_count"))
        self.heads = int(read(f"{self.architecture}.attention.head_count"))
        self.groups = int(read(f"{self.architecture}.attention.head_count_kv") or self.heads)


def _write(adapter: AdapterWeights, shape: _Shape, target: Path) -> None:
    import gguf

    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[shape.architecture], shape.blocks)
    writer = gguf.GGUFWriter(target, shape.architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(adapter.rank))  # the scale is in B already
    for path, (a, b) in adapter.layers.items():
        name = names.get_name(path)
        if name is None:
            raise DataError(f"{adapter.name} changes {path}, which llama.cpp does not know")
        if shape.architecture in PERMUTED and path.endswith(("q_proj", "k_proj")):
            b = interleaved(b, shape.heads if path.endswith("q_proj") else shape.groups)
        writer.add_tensor(f"{name}.weight.lora_a", a.contiguous().numpy())
        writer.add_tensor(f"{name}.weight.lora_b", b.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """The rows of a query or key projection in llama.cpp's order: of each head, the first half and the second by turns.

    Args:
        rows: shape (heads x size, anything), in transformers' order.
    """
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
