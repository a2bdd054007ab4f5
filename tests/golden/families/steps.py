#!/usr/bin/env python3
"""Compares `plimsoll estimate` of families that are data with training steps of the same classes (steps_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of steps.txt is a model with its type, attention, checkpoints as 0 or 1, batch and tokens, and the peak of requested bytes.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
        "intermediate_size": 704, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = {k: v for k, v in WIDE.items() if k != "num_key_value_heads"}
HEADS = {**WIDE, "head_dim": 64}
CLASSES = {  # model type, class, sizes
    "apertus": ("apertus", "ApertusForCausalLM", WIDE),
    "arcee": ("arcee", "ArceeForCausalLM", HEADS),
    "bitnet": ("bitnet", "BitNetForCausalLM", WIDE),
    "camembert": ("camembert", "CamembertForMaskedLM", BERT),
    "cohere": ("cohere", "CohereForCausalLM", WIDE),
    "cohere2": ("cohere2", "Cohere2ForCausalLM", {**HEADS, "num_hidden_layers": 4}),
    "cwm": ("cwm", "CwmForCausalLM", HEADS),
    "data2vec-text": ("data2vec-text", "Data2VecTextForMaskedLM", BERT),
    "deepseek_v32": ("deepseek_v32", "DeepseekV32ForCausalLM",
                     {**WIDE, "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32,
                      "v_head_dim": 48, "index_head_dim": 64, "index_n_heads": 4, "index_topk": 64, "n_routed_experts": 8, "n_group": 2,
                      "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 192, "first_k_dense_replace": 1}),
    "deit": ("deit", "DeiTForImageClassification",
             {"hidden_size": 512, "intermediate_size": 704, "num_attention_heads": 8, "num_hidden_layers": 3, "num_labels": 1000}),
    "dots1": ("dots1", "Dots1ForCausalLM", {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
                                            "moe_intermediate_size": 192, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}),
    "ernie": ("ernie", "ErnieForMaskedLM", BERT),
    "ernie4_5": ("ernie4_5", "Ernie4_5ForCausalLM", HEADS),
    "ernie4_5_moe": ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", {**HEADS, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 192}),
    "esm": ("esm", "EsmForMaskedLM", {**BERT, "mask_token_id": 3, "pad_token_id": 1}),
    "eurobert": ("eurobert", "EuroBertForMaskedLM", WIDE),
    "exaone4": ("exaone4", "Exaone4ForCausalLM", {**HEADS, "num_hidden_layers": 4}),
    "flex_olmo": ("flex_olmo", "FlexOlmoForCausalLM", {**WIDE, "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 192}),
    "gemma3": ("gemma3", "Gemma3ForConditionalGeneration",
               {"image_token_index": 7, "text_config": {**HEADS, "num_hidden_layers": 4, "sliding_window": 64, "query_pre_attn_scalar": 64,
                                                        "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
                "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 128, "intermediate_size": 320,
                                  "num_attention_heads": 4, "num_hidden_layers": 3, "image_size": 224, "patch_size": 14,
                                  "vision_use_head": False}}),
    "glm": ("glm", "GlmForCausalLM", HEADS),
    "glm4": ("glm4", "Glm4ForCausalLM", HEADS),
    "glm4_moe": ("glm4_moe", "Glm4MoeForCausalLM",
                 {**HEADS, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 192,
                  "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}),
    "granite": ("granite", "GraniteForCausalLM", WIDE),
    "granitemoe": ("granitemoe", "GraniteMoeForCausalLM",
                   {**WIDE, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 192}),
    "gte": ("gte", "GteForMaskedLM", BERT),
    "helium": ("helium", "HeliumForCausalLM", HEADS),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", HEADS),
    "hyperclovax": ("hyperclovax", "HyperCLOVAXForCausalLM", HEADS),
    "internlm3": ("internlm3", "LlamaForCausalLM", HEADS),
    "internvl": ("internvl", "InternVLForConditionalGeneration",
                 {"image_token_id": 7, "image_seq_length": 64, "text_config": {"model_type": "qwen2", **WIDE},
                  "vision_config": {"model_type": "internvl_vision", "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4,
                                    "num_hidden_layers": 3, "image_size": [224, 224], "patch_size": [14, 14]}}),
    "iquestcoder": ("iquestcoder", "LlamaForCausalLM", HEADS),
    "jais2": ("jais2", "Jais2ForCausalLM", HEADS),
    "jina_embeddings_v3": ("jina_embeddings_v3", "JinaEmbeddingsV3ForMaskedLM", BERT),
    "llava": ("llava", "LlavaForConditionalGeneration",
              {"image_token_index": 7, "text_config": {"model_type": "llama", **HEADS},
               "vision_config": {"model_type": "clip_vision_model", "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4,
                                 "num_hidden_layers": 3, "image_size": 224, "patch_size": 14}}),
    "megatron-bert": ("megatron-bert", "MegatronBertForMaskedLM", BERT),
    "minicpm3": ("minicpm3", "MiniCPM3ForCausalLM",
                 {**WIDE, "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32,
                  "v_head_dim": 48}),
    "minimax_m2": ("minimax_m2", "MiniMaxM2ForCausalLM", {**HEADS, "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 192}),
    "ministral3": ("ministral3", "Ministral3ForCausalLM", HEADS),
    "modernbert": ("modernbert", "ModernBertForMaskedLM", BERT),
    "mpnet": ("mpnet", "MPNetForMaskedLM", BERT),
    "nanochat": ("nanochat", "NanoChatForCausalLM", WIDE),
    "nemotron": ("nemotron", "NemotronForCausalLM", HEADS),
    "nemotron_h": ("nemotron_h", "NemotronHForCausalLM",
                   {**{k: v for k, v in HEADS.items() if k != "num_hidden_layers"}, "mamba_num_heads": 16, "mamba_head_dim": 64,
                    "ssm_state_size": 48, "n_groups": 4, "chunk_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 192, "moe_shared_expert_intermediate_size": 320,
                    "layers_block_type": ["linear_attention", "moe", "linear_attention", "full_attention", "moe"]}),
    "nomic_bert": ("nomic_bert", "NomicBertForMaskedLM", BERT),
    "openai-gpt": ("openai-gpt", "OpenAIGPTLMHeadModel", {"vocab_size": 2003, "n_embd": 512, "n_layer": 3, "n_head": 8, "n_positions": 512}),
    "olmo": ("olmo", "OlmoForCausalLM", WIDE),
    "olmo2": ("olmo2", "Olmo2ForCausalLM", WIDE),
    "olmo3": ("olmo3", "Olmo3ForCausalLM", {**WIDE, "num_hidden_layers": 4}),
    "olmoe": ("olmoe", "OlmoeForCausalLM", {**WIDE, "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 192}),
    "persimmon": ("persimmon", "PersimmonForCausalLM", BERT),
    "qwen2_vl": ("qwen2_vl", "Qwen2VLForConditionalGeneration",
                 {"image_token_id": 7, "text_config": {**WIDE, "num_attention_heads": 4, "num_key_value_heads": 2},
                  "vision_config": {"depth": 3, "embed_dim": 128, "hidden_size": 512, "num_heads": 4}}),
    "qwen3_5": ("qwen3_5", "Qwen3_5ForConditionalGeneration",
                {"image_token_id": 7,
                 "text_config": {**HEADS, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
                                 "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 48, "linear_value_head_dim": 64},
                 "vision_config": {"depth": 3, "hidden_size": 128, "intermediate_size": 320, "num_heads": 4, "out_hidden_size": 512,
                                   "num_position_embeddings": 256}}),
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM",
                   {**HEADS, "num_hidden_layers": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 48,
                    "linear_value_head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192,
                    "shared_expert_intermediate_size": 320}),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLForConditionalGeneration",
                 {"image_token_id": 7, "text_config": {**HEADS, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
                                                       "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [12, 10, 10]}},
                  "vision_config": {"depth": 5, "hidden_size": 128, "intermediate_size": 320, "num_heads": 4, "out_hidden_size": 512,
                                    "num_position_embeddings": 256, "deepstack_visual_indexes": [0, 1, 2]}}),
    "rembert": ("rembert", "RemBertForMaskedLM", {**BERT, "input_embedding_size": 128, "output_embedding_size": 320}),
    "roformer": ("roformer", "RoFormerForMaskedLM", BERT),
    "roberta-prelayernorm": ("roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM", BERT),
    "seed_oss": ("seed_oss", "SeedOssForCausalLM", HEADS),
    "siglip": ("siglip", "SiglipModel",
               {"text_config": {**BERT, "vocab_size": 2003, "max_position_embeddings": 64, "projection_size": 512},
                "vision_config": {"hidden_size": 512, "intermediate_size": 704, "num_attention_heads": 8, "num_hidden_layers": 3,
                                  "image_size": 224, "patch_size": 16}}),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM", {**WIDE, "num_hidden_layers": 4}),
    "squeezebert": ("squeezebert", "SqueezeBertForMaskedLM", {**BERT, "embedding_size": 512}),
    "stablelm": ("stablelm", "StableLmForCausalLM", WIDE),
    "starcoder2": ("starcoder2", "Starcoder2ForCausalLM", WIDE),
    "vaultgemma": ("vaultgemma", "VaultGemmaForCausalLM", {**HEADS, "num_hidden_layers": 4, "sliding_window": 64, "query_pre_attn_scalar": 64}),
    "xlm-roberta-xl": ("xlm-roberta-xl", "XLMRobertaXLForMaskedLM", BERT),
    "xlm-roberta": ("xlm-roberta", "XLMRobertaForMaskedLM", BERT),
}
MODELS = {f"{name}_{dtype}": (kind, cls, {**sizes, "dtype": full}) for name, (kind, cls, sizes) in CLASSES.items()
          for dtype, full in (("bf16", "bfloat16"), ("fp32", "float32"))}
PLAIN = {"mpnet", "openai-gpt", "squeezebert"}  # have no checkpoints
SIZES = {"deit": (8, 0), "gemma3": (2, 256), "internvl": (16, 64), "llava": (2, 256), "qwen2_vl": (2, 256), "qwen3_5": (2, 256), "qwen3_vl": (2, 256), "siglip": (8, 64)}  # batch and tokens, if an image takes many: all, since a mask without values is true everywhere
# Bytes by which a step differs: where each image begins, which the checkpoints of a tower keep until its backward pass.
NEAR = {("qwen3_5_bf16", "default", 1): -12}
SETTINGS = [("bf16", "default", 0), ("fp32", "default", 0), ("bf16", "default", 1), ("bf16", "eager", 0)]


def cases():
    return [(f"{name}_{dtype}", *rest, *SIZES.get(name, (8, 200))) for name in CLASSES for dtype, *rest in SETTINGS
            if not (rest[1] and name in PLAIN)]


def predicted(program, folder, name, attention, checkpoint, batch, tokens):
    words = ["--attention", attention] * (attention != "default") + ["--seq", tokens] * (tokens > 0)
    return runs.estimate(program, folder / name, "--batch", batch, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none", *words)


def measured(program, folder, name, *rest):
    return runs.run(program, HERE / "steps_loop.py", folder / name, *rest)


def agrees(case, ours, run):
    return ours[0] - run[0] == NEAR.get(case[:3], 0)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "steps.txt", MODELS, cases(), predicted, measured,
                       "model, attention, checkpoints, batch, tokens, peak of requested bytes", agrees=agrees).main(__doc__))
