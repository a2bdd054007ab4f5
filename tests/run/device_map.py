"""device_map.py -- accelerate and transformers spread a small GPT-2 over two cards."""
import gc
import tempfile

import torch
from accelerate import dispatch_model, infer_auto_device_map, init_empty_weights
from accelerate import load_checkpoint_and_dispatch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

cuda = torch.cuda
config = GPT2Config(n_layer=6, n_embd=128, n_head=4, vocab_size=1000, n_positions=128,
                    tie_word_embeddings=False)


def held(index):
    return cuda.memory_stats(index).get("requested_bytes.all.current", 0)


def bytes_on(model):
    """What the parameters and buffers of each card request, each storage once."""
    out = [{}, {}]
    for t in [*model.parameters(), *model.buffers()]:
        if t.is_cuda:
            out[t.device.index][t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return [sum(storages.values()) for storages in out]


def used(model, start):
    here = bytes_on(model)
    assert [held(i) - start[i] for i in (0, 1)] == here, (start, here)
    assert min(here) > 0
    logits = model(torch.randint(1000, (2, 64), device="cuda")).logits
    assert logits.shape == (2, 64, 1000) and logits.is_cuda
    return here


with tempfile.TemporaryDirectory() as folder:
    model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    whole = sum(p.nbytes for p in model.parameters())
    limits = {0: whole * 2 // 5, 1: whole}
    # a model in memory
    device_map = infer_auto_device_map(model, max_memory=limits, no_split_module_classes=["GPT2Block"])
    assert set(device_map.values()) == {0, 1}, device_map
    model = dispatch_model(model, device_map)
    first = used(model, (0, 0))
    assert first[0] <= limits[0]
    del model
    gc.collect()
    start = held(0), held(1)
    # one from disk, without a copy of it in memory
    with init_empty_weights():
        model = GPT2LMHeadModel(config)
    model.tie_weights()
    model = load_checkpoint_and_dispatch(model, folder, device_map="auto", max_memory=limits,
                                         no_split_module_classes=["GPT2Block"])
    assert used(model, start) == first
    del model
    gc.collect()
    start = held(0), held(1)
    model = AutoModelForCausalLM.from_pretrained(folder, device_map="auto", max_memory=limits)
    assert set(model.hf_device_map.values()) == {0, 1}
    used(model, start)
print("fine")
