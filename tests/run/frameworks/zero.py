"""DeepSpeed ZeRO as its users write it: zero.py STAGE [optimizer] [parameters], what goes to the CPU."""
import pathlib
import sys

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import deepspeed  # noqa: E402
from world import VOCABULARY, Net  # noqa: E402


def config(stage, *offload):
    to_cpu = {"device": "cpu", "pin_memory": True}
    zero = {"stage": stage}
    if "optimizer" in offload:
        zero["offload_optimizer"] = to_cpu
    if "parameters" in offload:
        zero["offload_param"] = to_cpu
    return {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0,
            "bf16": {"enabled": True}, "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}


def main(stage, *offload):
    settings = config(int(stage), *offload)
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path=settings, enabled=stage == "3"):
        model = Net()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                      config=settings)
    made = torch.cuda.memory_allocated()
    tokens = torch.randint(0, VOCABULARY, (4, 256)).to(engine.device)
    for _ in range(2):
        logits = engine(tokens)
        loss = cross_entropy(logits.float().view(-1, VOCABULARY), tokens.view(-1))
        engine.backward(loss)
        engine.step()
    print("made", made, "held", torch.cuda.memory_allocated(),
          "peak", torch.cuda.max_memory_allocated())


main(*sys.argv[1:])
