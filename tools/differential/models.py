"""models.py -- the models that differential.py compares, one line each.

make(name) gives (module, positional inputs, keyword inputs) on the CPU, in training
mode.  A model either returns logits or the like (the loop takes a loss of them) or
a loss of its own (transformers with labels).  The models are small on purpose: only
bytes and their order are compared, not speed.
"""

import functools
import importlib
import pathlib
import sys
import types
import zipfile

import torch
import torch.utils.checkpoint
from torch import nn

SEQ = 128

# torchvision's C++ ops are built for the PyTorch of PyPI, with CUDA, and do not load into a
# CPU build; the models (and transformers, which imports it) need none.
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("none"))


# ---- torchvision ---------------------------------------------------------------

SIDE = {"alexnet": 96, "googlenet": 96, "inception_v3": 299, "maxvit_t": 224, "vit_h_14": 56}
VISION = {name: SIDE.get(name, 64) for name in """
    alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169
    densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4
    efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s
    googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2
    mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf
    regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf
    regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50
    resnext101_32x8d resnext101_64x4d resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0
    shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_b swin_s swin_t swin_v2_b
    swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32
    vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2""".split()}  # name: side of the picture
SEGMENTATION = {name: 64 for name in """
    fcn_resnet50 fcn_resnet101 deeplabv3_resnet50 deeplabv3_resnet101 deeplabv3_mobilenet_v3_large
    lraspp_mobilenet_v3_large""".split()}
VIDEO = {"r3d_18": (4, 32), "mc3_18": (4, 32), "r2plus1d_18": (4, 32), "s3d": (16, 224),
         "mvit_v1_b": (16, 224), "mvit_v2_s": (16, 224), "swin3d_t": (4, 64), "swin3d_s": (4, 64),
         "swin3d_b": (4, 64)}  # frames, side


def torchvision_models():
    from torchvision import models
    return models


def vision(name, batch):
    models = torchvision_models()
    kwargs = {}
    if name.startswith("vit_"):
        kwargs["image_size"] = VISION[name]
    if name in ("googlenet", "inception_v3"):
        kwargs.update(init_weights=False)
    side = VISION[name]
    return models.get_model(name, **kwargs), (torch.zeros(batch, 3, side, side),), {}


def segmentation(name, batch):
    models = torchvision_models()
    side = SEGMENTATION[name]
    model = models.get_model(name, weights=None, weights_backbone=None)
    return model, (torch.zeros(batch, 3, side, side),), {}


def video(name, batch):
    models = torchvision_models()
    frames, side = VIDEO[name]
    return (models.get_model(name), (torch.zeros(batch, 3, frames, side, side),), {})


# ---- transformers ----------------------------------------------------------------

DECODER = dict(vocab_size=8192, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
               num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=512)
ENCODER = dict(vocab_size=8192, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
               num_attention_heads=8, max_position_embeddings=512)

MLA = dict(DECODER, num_key_value_heads=8, q_lora_rank=64, kv_lora_rank=32, qk_nope_head_dim=32,
           qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=4, n_shared_experts=1,
           num_experts_per_tok=2, moe_intermediate_size=128)

HF = {  # name: (class, config class, config)
    "gpt2": ("GPT2LMHeadModel", "GPT2Config",
             dict(vocab_size=8192, n_embd=256, n_layer=4, n_head=8, n_positions=512)),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", DECODER),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig",
                dict(DECODER, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", DECODER),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(DECODER, head_dim=32)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                  dict(DECODER, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128,
                       shared_expert_intermediate_size=256, mlp_only_layers=[1])),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                  dict(DECODER, head_dim=32, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=128)),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", dict(DECODER, head_dim=32)),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", dict(DECODER, head_dim=32)),
    "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextConfig",
                    dict(DECODER, head_dim=32, sliding_window=64, num_hidden_layers=7)),
    "phi": ("PhiForCausalLM", "PhiConfig", dict(DECODER, num_key_value_heads=8)),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", dict(DECODER, pad_token_id=0)),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", ENCODER),
    "gptj": ("GPTJForCausalLM", "GPTJConfig",
             dict(vocab_size=8192, n_embd=256, n_layer=4, n_head=8, n_positions=512,
                  rotary_dim=16)),
    "bloom": ("BloomForCausalLM", "BloomConfig",
              dict(vocab_size=8192, hidden_size=256, n_layer=4, n_head=8)),
    "falcon": ("FalconForCausalLM", "FalconConfig",
               dict(vocab_size=8192, hidden_size=256, num_hidden_layers=4,
                    num_attention_heads=8)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", dict(MLA, first_k_dense_replace=1)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config",
                    dict(MLA, first_k_dense_replace=1, n_group=2, topk_group=1)),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig",
                dict(DECODER, head_dim=32, num_local_experts=4, num_experts_per_tok=2,
                     sliding_window=64)),
    "opt": ("OPTForCausalLM", "OPTConfig",
            dict(vocab_size=8192, hidden_size=256, ffn_dim=512, num_hidden_layers=4,
                 num_attention_heads=8, max_position_embeddings=512, word_embed_proj_dim=256)),
    "bert": ("BertForMaskedLM", "BertConfig", ENCODER),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", ENCODER),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig",
                   dict(vocab_size=8192, dim=256, hidden_dim=512, n_layers=4, n_heads=8,
                        max_position_embeddings=512)),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", dict(ENCODER, embedding_size=128)),
    "t5": ("T5ForConditionalGeneration", "T5Config",
           dict(vocab_size=8192, d_model=256, d_kv=32, d_ff=512, num_layers=4, num_heads=8,
                decoder_start_token_id=0)),
    "bart": ("BartForConditionalGeneration", "BartConfig",
             dict(vocab_size=8192, d_model=256, encoder_layers=4, decoder_layers=4,
                  encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=512,
                  decoder_ffn_dim=512, max_position_embeddings=512)),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig",
                dict(vocab_size=8192, d_model=256, encoder_layers=4, decoder_layers=4,
                     encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=512,
                     decoder_ffn_dim=512, num_mel_bins=80, max_source_positions=512,
                     max_target_positions=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                     decoder_start_token_id=1)),
    "clip": ("CLIPModel", "CLIPConfig",
             dict(text_config=dict(ENCODER, projection_dim=128),
                  vision_config=dict(hidden_size=256, intermediate_size=512,
                                     num_hidden_layers=4, num_attention_heads=8, image_size=64,
                                     patch_size=8, projection_dim=128), projection_dim=128)),
    "vit_hf": ("ViTForImageClassification", "ViTConfig",
               dict(hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                    num_attention_heads=8, image_size=64, patch_size=8, num_labels=1000)),
    "swin": ("SwinForImageClassification", "SwinConfig",
             dict(image_size=64, embed_dim=48, depths=(2, 2, 2), num_heads=(3, 6, 12), window_size=4,
                  num_labels=1000)),
    "mamba": ("MambaForCausalLM", "MambaConfig",
              dict(vocab_size=8192, hidden_size=256, state_size=16, num_hidden_layers=2)),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config",
               dict(vocab_size=8192, hidden_size=256, state_size=16, num_hidden_layers=2,
                    num_heads=16, head_dim=32, n_groups=2, chunk_size=32)),
    "bert_classifier": ("BertForSequenceClassification", "BertConfig",
                        dict(ENCODER, num_labels=3)),
    "roberta_tokens": ("RobertaForTokenClassification", "RobertaConfig",
                       dict(ENCODER, num_labels=3)),
    "distilbert_answers": ("DistilBertForQuestionAnswering", "DistilBertConfig",
                           dict(vocab_size=8192, dim=256, hidden_dim=512, n_layers=4, n_heads=8,
                                max_position_embeddings=512)),
    "electra_pretraining": ("ElectraForPreTraining", "ElectraConfig",
                            dict(ENCODER, embedding_size=128)),
    "mistral_window": ("MistralForCausalLM", "MistralConfig", dict(DECODER, sliding_window=64)),
    "falcon_new": ("FalconForCausalLM", "FalconConfig",
                   dict(vocab_size=8192, hidden_size=256, num_hidden_layers=4,
                        num_attention_heads=8, num_kv_heads=2, new_decoder_architecture=True)),
}
EAGER = "_eager"  # NAME_eager: the same with attention written out
HF.update({name + EAGER: HF[name] for name in HF if name not in ("mamba", "mamba2", "gpt_oss")})
PICTURES = ("vit_hf", "swin")


def hf(name, batch):
    import transformers
    model, config, kwargs = HF[name]
    if name.endswith(EAGER):
        name = name[:-len(EAGER)]
        kwargs = dict(kwargs, attn_implementation="eager")
    if name not in ("clip", *PICTURES):
        kwargs = dict(kwargs, use_cache=False)
    module = getattr(transformers, model)(getattr(transformers, config)(**kwargs))
    ids = torch.ones(batch, SEQ, dtype=torch.long)
    if name == "whisper":
        return module, (), dict(input_features=torch.zeros(batch, 80, 1024), labels=ids)
    if name == "clip":
        return module, (), dict(input_ids=ids, pixel_values=torch.zeros(batch, 3, 64, 64),
                                return_loss=True)
    if name in PICTURES:
        return module, (), dict(pixel_values=torch.zeros(batch, 3, 64, 64),
                                labels=torch.zeros(batch, dtype=torch.long))
    return module, (), dict(input_ids=ids, **answers(model, ids))


def answers(model, ids):
    """What a class of transformers is trained against."""
    first, last = torch.zeros(len(ids), dtype=torch.long), torch.ones(len(ids), dtype=torch.long)
    if model.endswith("SequenceClassification"):
        return dict(labels=first)
    if model.endswith("QuestionAnswering"):
        return dict(start_positions=first, end_positions=last)
    return dict(labels=ids)


# ---- written out here ----------------------------------------------------------------

class Recurrent(nn.Module):
    def __init__(self, kind, **kwargs):
        super().__init__()
        self.embed = nn.Embedding(8192, 256)
        self.rnn = getattr(nn, kind)(256, 256, num_layers=2, batch_first=True, **kwargs)
        self.head = nn.Linear(256 * (2 if kwargs.get("bidirectional") else 1), 8192)

    def forward(self, x):
        x, _ = self.rnn(self.embed(x))
        return self.head(x)


class UNet(nn.Module):
    """Two levels, as in segmentation."""

    def __init__(self, width=16):
        super().__init__()
        def block(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        self.down1, self.down2, self.mid = block(3, width), block(width, 2 * width), \
            block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.dec2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.dec1 = block(2 * width, width)
        self.head = nn.Conv2d(width, 4, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        x = self.mid(self.pool(b))
        x = self.dec2(torch.cat([self.up2(x), b], 1))
        x = self.dec1(torch.cat([self.up1(x), a], 1))
        return self.head(x)


class DiffusionBlock(nn.Module):
    """A residual block with time embedding and attention, as diffusion U-Nets have."""

    def __init__(self, width=32):
        super().__init__()
        self.inp = nn.Conv2d(4, width, 3, padding=1)
        self.norm1, self.conv1 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, width))
        self.norm2, self.conv2 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm3 = nn.GroupNorm(8, width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.out = nn.Conv2d(2 * width, 4, 3, padding=1)

    def forward(self, x, t):
        half = torch.exp(torch.arange(32, device=x.device) * (-9.21 / 32))
        angle = t[:, None].float() * half[None]
        emb = self.time(torch.cat([torch.sin(angle), torch.cos(angle)], -1))
        x = self.inp(x)
        h = self.conv1(nn.functional.silu(self.norm1(x))) + emb[:, :, None, None]
        x = x + self.conv2(nn.functional.silu(self.norm2(h)))
        b, c, hh, ww = x.shape
        y = self.norm3(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(y).chunk(3, -1)
        q, k, v = (z.view(b, hh * ww, 4, c // 4).transpose(1, 2) for z in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, hh * ww, c)).transpose(1, 2).view(b, c, hh, ww)
        return self.out(torch.cat([self.up(self.down(x)), x], 1))


class Mlp(nn.Sequential):
    def __init__(self, layers=8, width=1024):
        parts = []
        for _ in range(layers):
            parts += [nn.Linear(width, width), nn.ReLU()]
        super().__init__(*parts, nn.Linear(width, 10))


OWN = {
    "mlp": (Mlp, lambda b: (torch.zeros(b, 1024),)),
    "lstm": (lambda: Recurrent("LSTM"), lambda b: (torch.ones(b, SEQ, dtype=torch.long),)),
    "lstm_bidirectional": (lambda: Recurrent("LSTM", bidirectional=True),
                           lambda b: (torch.ones(b, SEQ, dtype=torch.long),)),
    "gru": (lambda: Recurrent("GRU"), lambda b: (torch.ones(b, SEQ, dtype=torch.long),)),
    "rnn_tanh": (lambda: Recurrent("RNN"), lambda b: (torch.ones(b, SEQ, dtype=torch.long),)),
    "unet": (UNet, lambda b: (torch.zeros(b, 3, 64, 64),)),
    "diffusion_block": (DiffusionBlock,
                        lambda b: (torch.zeros(b, 4, 16, 16), torch.zeros(b, dtype=torch.long))),
    "transformer_encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 4,
            enable_nested_tensor=False),
        lambda b: (torch.zeros(b, SEQ, 256),)),
}


def own(name, batch):
    model, inputs = OWN[name]
    return model(), inputs(batch), {}


FAMILIES = [(VISION, vision), (SEGMENTATION, segmentation), (VIDEO, video), (HF, hf), (OWN, own)]
NAMES = [name for table, _ in FAMILIES for name in table]


def blocks(model):
    """What plimsoll calls blocks: each outermost module whose name ends in a number and that
    is made of others."""
    found = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(other + ".") for other in found)
        if path[-1:].isdigit() and not inside and list(module.children()) and \
                type(module) not in (nn.Sequential, nn.ModuleList):
            found[path] = module
    return list(found.values())


def checkpoint(name, model):
    if name in HF and HF[name][0] != "SwinForImageClassification":  # that one nests its checkpoints
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return
    for module in blocks(model):
        module.forward = functools.partial(
            torch.utils.checkpoint.checkpoint, module.forward, use_reentrant=False)


def with_blocks(names):
    """Prints those that have something to checkpoint."""
    for name in names:
        model = make(name, 1)[0]
        if getattr(model, "supports_gradient_checkpointing", False) or \
                name not in HF and blocks(model):
            print(name)


def names():
    print(*NAMES)


def versions():
    torchvision_models()
    import torchvision
    import transformers
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, "
          f"transformers {transformers.__version__}")


def export(name, path):
    """A model as plimsoll.estimate(module, ...) exports it, the same at each recording."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    from plimsoll._export import export_module
    exported = export_module(*make(name))
    entry = zipfile.ZipInfo("model/models/model.json", (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, exported.data, zipfile.ZIP_DEFLATED, 9)


def make(name, batch=16):
    torch.manual_seed(0)
    for table, build in FAMILIES:
        if name in table:
            model, args, kwargs = build(name, batch)
            return model.train(), args, kwargs
    if ":" in name:  # a function of the user's
        module, function = name.split(":")
        model, args, kwargs = getattr(importlib.import_module(module), function)()
        return model.train(), args, kwargs
    raise SystemExit(f"unknown model '{name}': known are {', '.join(NAMES)}")
