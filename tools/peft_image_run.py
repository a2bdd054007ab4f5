"""A step of peft's method comparison on images, for `plimsoll run`: peft's own code on FLUX.2-klein-base-4B in bf16.

    plimsoll run --gpu l40s -- python tools/peft_image_run.py EXPERIMENT

EXPERIMENT is a folder of method_comparison/image-gen/experiments of peft, with an adapter_config.json unless every parameter is
trained.  The loop is that of run.py there, on images of 512 x 512: the embeddings of the prompts and the latents of the images,
made beforehand, stay on the device, and so does the model that judges images (DINOv2) between steps.  Printed on stderr is the
maximum of reserved bytes since the loop began, which is what peft's script reports.  The results name diffusers 0.38; later ones
free tensors in another order.
"""
import pathlib
import sys

import peft
import torch
import transformers
from diffusers import Flux2KleinPipeline, Flux2Transformer2DModel

MODEL = {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "joint_attention_dim": 7680, "guidance_embeds": False}
IMAGES, PROMPT_TOKENS, PATCHES = 14, 512, 32


def main(folder):
    device, dtype = "cuda", torch.bfloat16
    with torch.device("meta"):
        model = Flux2Transformer2DModel(**MODEL)
    model = model.to(dtype).to_empty(device=device)
    model.enable_gradient_checkpointing()
    if (pathlib.Path(folder) / "adapter_config.json").exists():
        model = peft.get_peft_model(model, peft.PeftConfig.from_pretrained(folder))
    model = model.to("cpu").train()
    judge = transformers.Dinov2Model(transformers.Dinov2Config(image_size=518)).to(device)  # noqa: F841  it stays
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    all_prompts = torch.zeros(IMAGES, PROMPT_TOKENS, model.config.joint_attention_dim, dtype=dtype, device=device)
    all_text_ids = torch.zeros(IMAGES, PROMPT_TOKENS, 4, dtype=torch.long, device=device)
    all_latents = torch.zeros(IMAGES, model.config.in_channels, PATCHES, PATCHES, dtype=dtype, device=device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for step in range(1, 4):
        indices = torch.tensor([0, 1], device=device)
        latents = all_latents.index_select(0, indices)
        prompts = all_prompts.index_select(0, indices)
        text_ids = all_text_ids.index_select(0, indices)
        image_ids = Flux2KleinPipeline._prepare_latent_ids(latents).to(device)
        noise = torch.randn_like(latents)
        timesteps, sigmas = torch.full((2,), 500.0, device=device), torch.full((2, 1, 1, 1), 0.5, dtype=dtype, device=device)
        packed = Flux2KleinPipeline._pack_latents((1.0 - sigmas) * latents + sigmas * noise)
        optimizer.zero_grad()
        predicted = model(hidden_states=packed, timestep=timesteps / 1000, guidance=None, encoder_hidden_states=prompts,
                          txt_ids=text_ids, img_ids=image_ids, return_dict=False)[0]
        predicted = predicted[:, : packed.size(1)]
        predicted = Flux2KleinPipeline._unpack_latents_with_ids(predicted, image_ids, PATCHES, PATCHES)
        weighting, target = torch.ones_like(sigmas), noise - latents
        loss = torch.mean((weighting.float() * (predicted.float() - target.float()) ** 2).reshape(target.shape[0], -1), 1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if hasattr(model, "base_model") and hasattr(model.base_model, "update_and_allocate"):
            model.base_model.update_and_allocate(step)
    print("max_reserved", torch.cuda.max_memory_reserved(), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
