"""Writes a tiny Llama or Qwen2 model as a GGUF file, so that llama.cpp can be held against transformers and PEFT."""

import json
from pathlib import Path

from flywheel.base_model import load_model, load_tokenizer
from serve.gguf_lora import PERMUTED, interleaved


def write_gguf(folder: Path, target: Path) -> Path:
    """The model in a folder, in float32."""
    import gguf

    model, tokenizer = load_model(folder, "float32"), load_tokenizer(folder)
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = {number: token for token, number in tokenizer.get_vocab().items()}
    special = {token["id"] for token in described["added_tokens"] if token["special"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([ids[number] for number in range(len(ids))])
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if number in special else kinds.NORMAL for number in range(len(ids))])
    writer.add_token_merges([" ".join(merge) for merge in described["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(
        {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}[architecture], config.num_hidden_layers
    )
    for path, tensor in model.state_dict().items():
        if path == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture in PERMUTED and path.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in path else config.num_key_value_heads
            tensor = interleaved(tensor, heads)
        layer, _, kind = path.rpartition(".")
        writer.add_tensor(f"{names.get_name(layer)}.{kind}", tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
