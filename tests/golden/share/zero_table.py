#!/usr/bin/env python3
"""Compares `plimsoll estimate --dp` with table 1 of the paper on ZeRO: model states of each rank, in GB.

    tests/golden/share/zero_table.py PROGRAM          compares
    tests/golden/share/zero_table.py PROGRAM print    prints a row for each figure: published, from the command

The paper counts model states only: parameters and gradients of 2 bytes, master weights and Adam's moments of 12.  They are
what is left at the end of backward, with a single token, without workspaces and with small buckets:

  P_os+g     --strategy ds_zero2
  P_os+g+p   --strategy ds_zero3, without parameters that persist
  P_os       --strategy ds_zero1 at the end of forward, and the gradients of all parameters.  The run takes more: DeepSpeed
             copies the gradients of the own part before it frees any.

The models have many narrow layers, so that a rank's part, which holds whole gradients, is not much more than its share.
src: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, arXiv 1910.02054v3, table 1
"""
import json
import pathlib
import subprocess
import sys
import tempfile

PUBLISHED = {  # billions of parameters: ranks: P_os, P_os+g, P_os+g+p
    7.5: {1: (120, 120, 120), 4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5), 64: (31.4, 16.6, 1.88), 256: (30.4, 15.4, 0.47),
          1024: (30.1, 15.1, 0.12)},
    128: {1: (2048, 2048, 2048), 4: (896, 704, 512), 16: (608, 368, 128), 64: (536, 284, 32), 256: (518, 263, 8),
          1024: (513, 257, 2)},
    1000: {1: (16000, 16000, 16000), 4: (7000, 5500, 4000), 16: (4750, 2875, 1000), 64: (4187, 2218, 250),
           256: (4046, 2054, 62.5), 1024: (4011, 2013, 15.6)},
}
SHAPES = {7.5: (1024, 4096, 444), 128: (4096, 11264, 620), 1000: (9216, 24576, 978)}  # hidden, MLP, layers
WITHIN = 0.005  # or the last digit, which the paper rounds or cuts


def write_config(folder, billions):
    hidden, mlp, layers = SHAPES[billions]
    rest = billions * 1e9 - layers * (4 * hidden**2 + 3 * hidden * mlp + 2 * hidden) - hidden
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "hidden_size": hidden,
              "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": hidden // 128,
              "num_key_value_heads": hidden // 128, "vocab_size": max(1024, int(rest / (2 * hidden) / 1024) * 1024)}
    path = folder / str(billions)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def last_phases(program, path, ranks, options):
    command = [program, "estimate", path, "--batch", "1", "--seq", "1", "--optimizer", "adam", "--workspace", "off",
               "--torch", "2.13", "--advice", "none", "--json", *options]
    if ranks > 1:
        command += ["--dp", str(ranks)]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    answer = json.loads(run.stdout)
    return {p["phase"]: p["requested"] for p in answer["phases"]}, answer["model"]["parameter_bytes"]


def model_states(program, path, ranks):
    """P_os, P_os+g and P_os+g+p in GB."""
    if ranks == 1:
        return [last_phases(program, path, ranks, ["--dtype", "fp32"])[0]["backward"] / 1e9] * 3
    stage_1, gradients = last_phases(program, path, ranks, ["--strategy", "ds_zero1,reduce_bucket_size=1"])
    stage_2, _ = last_phases(program, path, ranks, ["--strategy", "ds_zero2,reduce_bucket_size=1"])
    stage_3, _ = last_phases(program, path, ranks, ["--strategy", "ds_zero3,reduce_bucket_size=1,stage3_param_persistence_threshold=0"])
    return [(stage_1["forward"] + gradients) / 1e9, stage_2["backward"] / 1e9, stage_3["backward"] / 1e9]


def is_near(ours, published):
    digits = len(str(published).partition(".")[2])
    return abs(ours - published) <= max(WITHIN * published, 10**-digits)


def main(program, *how):
    wrong = rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for billions, table in PUBLISHED.items():
            path = write_config(pathlib.Path(folder), billions)
            for ranks, published in table.items():
                for name, want, ours in zip(("os", "os+g", "os+g+p"), published, model_states(program, path, ranks)):
                    near = is_near(ours, want)
                    rows += 1
                    wrong += not near
                    if how or not near:
                        print(f"{billions}B {ranks} P_{name} {want} {ours:.6g}{'' if near else ' DIFFERS'}")
    print(f"{rows} figures, {wrong} of another size")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
