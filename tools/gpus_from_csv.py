#!/usr/bin/env python3
"""gpus_from_csv.py -- writes src/gpu/gpus.def from a table of cards.

    tools/gpus_from_csv.py gpus.csv > src/gpu/gpus.def

The table is not part of the tree; its columns are
name, vendor, class, arch, year, memory_gb_marketed, memory_bw_gbs, fp32_tflops,
tf32_dense_tflops, fp16_tensor_dense_tflops, bf16_tensor_dense_tflops,
fp8_tensor_dense_tflops, compute_capability, sm_count,
driver_reported_total_bytes, source, notes; empty means unknown.

What this script adds is below, with its reasons: the totals that people's
drivers printed, the estimate for cards where nobody's did, and the short names.
"""

import csv
import re
import sys

GIB = 1 << 30
MIB = 1 << 20

# "GPU 0 has a total capacity of 23.64 GiB", as CUDA reports it on Linux to
# PyTorch's out-of-memory message: two decimals, so good to 5 MiB.  (Windows
# shows the marketed size.)  Where several were seen, the smallest.
PRINTED_GIB = {
    "NVIDIA GeForce RTX 2080 Ti": (10.76, "github JDAI-CV/image-captioning#11"),
    "NVIDIA GeForce RTX 3070": (7.78, "github akshitac8/OW-DETR#46"),
    "NVIDIA GeForce RTX 3080 10GB": (9.78, "github zai-org/CogVideo#34"),
    "NVIDIA GeForce RTX 3090": (23.70, "github GaoLii/DSP#10, xiaoxiangAQ/GAS-Net#7"),
    "NVIDIA GeForce RTX 4090": (23.64, "github TMElyralab/MuseTalk#76, 3DTopia/Phidias-Diffusion#8"),
    "NVIDIA GeForce RTX 5090": (31.36, "github TrajectoryCrafter/TrajectoryCrafter#20"),
    "NVIDIA Quadro RTX 4000": (7.80, "github CompVis/stable-diffusion#485"),
    "NVIDIA RTX A4000": (15.61, "github DengKaiCQ/VGGT-Long#6"),
    "NVIDIA V100 SXM2 32GB": (31.74, "github haotian-liu/LLaVA#812"),
    "NVIDIA T4": (14.56, "github Zheng-Chong/CatVTON#133, AlphaGPU/leetgpu-challenges#52"),
    "NVIDIA A10": (21.99, "github zai-org/CogVLM#236"),
    "NVIDIA A30": (23.53, "github google/RB-Modulation#5"),
    "NVIDIA A100 SXM4 80GB": (79.15, "github stas00/ml-engineering@744d01e (79.15 to 79.21 by driver)"),
    "NVIDIA L40": (44.40, "github NVlabs/Eagle#68"),
    "NVIDIA L40S": (44.53, "github Wan-Video/Wan2.1#205"),
    "NVIDIA H100 SXM5 80GB": (79.11, "github vllm-project/vllm#27508"),
    "NVIDIA B200 SXM": (178.35, "github stas00/ml-engineering@744d01e"),
}

# Data-centre cards with GDDR keep ECC's check bits in the memory itself and
# have it on by default: a sixteenth is gone (T4, A10, L40 above agree).
# src: NVIDIA CUDA C++ Best Practices Guide, "On GPUs with GDDR memory with ECC
# enabled the available DRAM is reduced by 6.25%".
HBM = re.compile(r"P100|V100|A30$|A100|H100|H200|GH200|H800|H20 |B200|B300|Titan V$")

# Nobody's driver was seen: marketed size (GB on the box are 2^30: the totals
# known are all above the box's number of 10^9 bytes), less ECC, times what
# drivers leave of it.  GDDR: 0.971 to 0.988 on twelve cards; HBM: 0.980 to
# 0.992 on eight.  Other vendors: no figures, so the box's number.
LEFT_GDDR = 0.975
LEFT_HBM = 0.985

# A bare name with more than one card behind it means this one: the first sold,
# of two sold at once the smaller.
BARE = {
    "GTX 1060": "6GB", "RTX 2060": "6GB", "RTX 3050": "8GB", "RTX 3060": "12GB",
    "RTX 3080": "10GB", "RTX 4060 Ti": "8GB", "RTX 5060 Ti": "8GB", "RTX A2000": "6GB",
}

ALIASES = {
    "NVIDIA TITAN X Pascal": "titanx, titanxp-2016", "NVIDIA TITAN Xp": "titanxp",
    "NVIDIA Titan V": "titanv", "NVIDIA Titan RTX": "titanrtx",
    "NVIDIA RTX A2000 6GB": "a2000", "NVIDIA RTX A2000 12GB": "a2000-12g", "NVIDIA RTX A4000": "a4000",
    "NVIDIA RTX A4500": "a4500",
    "NVIDIA RTX A5000": "a5000", "NVIDIA RTX A5500": "a5500", "NVIDIA RTX A6000": "a6000",
    "NVIDIA RTX 2000 Ada Generation": "rtx2000ada, 2000ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "rtx4000sffada",
    "NVIDIA RTX 4000 Ada Generation": "rtx4000ada, 4000ada",
    "NVIDIA RTX 5000 Ada Generation": "rtx5000ada, 5000ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000ada, 6000ada",
    "NVIDIA RTX PRO 4000 Blackwell": "rtxpro4000", "NVIDIA RTX PRO 4500 Blackwell": "rtxpro4500",
    "NVIDIA RTX PRO 5000 Blackwell": "rtxpro5000",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtxpro6000",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000-server",
    "NVIDIA Tesla K20": "k20", "NVIDIA Tesla K40": "k40", "NVIDIA Tesla K80 (per GPU of 2)": "k80",
    "NVIDIA Tesla M40 12GB": "m40", "NVIDIA Tesla M40 24GB": "m40-24g",
    "NVIDIA Tesla M60 (per GPU of 2)": "m60", "NVIDIA Tesla P4": "p4", "NVIDIA Tesla P40": "p40",
    "NVIDIA Tesla P100 PCIe 12GB": "p100-12g", "NVIDIA Tesla P100 PCIe 16GB": "p100-pcie",
    "NVIDIA Tesla P100 SXM2": "p100, p100-sxm2",
    "NVIDIA V100 SXM2 16GB": "v100, v100-16g, tesla-v100", "NVIDIA V100 SXM2 32GB": "v100-32g",
    "NVIDIA V100 PCIe 16GB": "v100-pcie", "NVIDIA V100 PCIe 32GB": "v100-pcie-32g",
    "NVIDIA V100S PCIe 32GB": "v100s", "NVIDIA T4": "t4, tesla-t4",
    "NVIDIA A16 (per GPU of 4)": "a16",
    "NVIDIA A100 PCIe 40GB": "a100-pcie", "NVIDIA A100 SXM4 40GB": "a100-40g, a100-sxm4-40g",
    "NVIDIA A100 PCIe 80GB": "a100-pcie-80g", "NVIDIA A100 SXM4 80GB": "a100, a100-80g, a100-sxm4",
    "NVIDIA H100 PCIe 80GB": "h100-pcie", "NVIDIA H100 NVL (per GPU)": "h100-nvl",
    "NVIDIA H100 SXM5 80GB": "h100, h100-80g, h100-sxm, h100-sxm5, h100-80gb-hbm3",
    "NVIDIA H200 SXM 141GB": "h200, h200-sxm", "NVIDIA H200 NVL 141GB": "h200-nvl",
    "NVIDIA GH200 96GB": "gh200, gh200-96g", "NVIDIA GH200 141GB": "gh200-141g",
    "NVIDIA H800 SXM 80GB": "h800", "NVIDIA H20 96GB": "h20", "NVIDIA B200 SXM": "b200",
    "NVIDIA GB200 (per GPU)": "gb200", "NVIDIA B300 SXM": "b300", "NVIDIA GB300 (per GPU)": "gb300",
    "NVIDIA GB10 (DGX Spark)": "gb10, dgx-spark, spark",
    "NVIDIA Jetson AGX Orin 64GB": "agx-orin, agx-orin-64g, orin",
    "NVIDIA Jetson AGX Orin 32GB": "agx-orin-32g", "NVIDIA Jetson Orin NX 16GB": "orin-nx",
    "NVIDIA Jetson Orin Nano 8GB Super": "orin-nano", "NVIDIA Jetson AGX Xavier 32GB": "agx-xavier",
    "NVIDIA Jetson Xavier NX 8GB": "xavier-nx", "NVIDIA Jetson Nano 4GB": "jetson-nano",
    "NVIDIA Jetson T5000 (AGX Thor)": "agx-thor, thor",
    "AMD Instinct MI50 16GB": "mi50", "AMD Instinct MI50 32GB": "mi50-32g",
    "AMD Radeon AI PRO R9700": "r9700", "AMD Radeon Pro W6800": "w6800",
    "AMD Radeon RX 9060 XT 16GB": "rx9060xt",
    "Intel Arc A770 8GB": "a770-8g", "Intel Arc A770 16GB": "a770, a770-16g",
    "Intel Arc Pro B60 24GB": "b60",
    "Intel Data Center GPU Max 1100": "max1100", "Intel Data Center GPU Max 1350": "max1350",
    "Intel Data Center GPU Max 1550": "max1550",
}


def key(text):
    """As plim_gpu_find compares: letters and digits, without the makers' words."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))


def short_names(name):
    """Names made by rule: bare models, sizes as 12g."""
    found = []
    m = re.match(r"NVIDIA GeForce ([GR]TX) (\d+)((?: (?:Ti|Super|D))*)(?: (\d+)GB)?$", name)
    if m:
        line, number, suffix, size = m.groups()
        model = f"{line} {number}{suffix}"
        compact = (number + suffix.replace(" ", "")).lower()
        prefixed = line.lower() + compact
        if size is None or BARE.get(model) == size + "GB":
            found += [prefixed, compact]
        if size:
            found += [f"{prefixed}-{size}g", f"{compact}-{size}g"]
    m = re.match(r"AMD Radeon (RX (?:Vega )?\d+(?: XTX| XT| GRE)?)$", name)
    if m:
        model = m.group(1).lower().replace(" ", "")
        found += [model, model[2:]]
    m = re.match(r"AMD Instinct (MI\d+[AX]?)(?: .*)?$", name)
    if m and name not in ALIASES:
        found.append(m.group(1).lower())
    m = re.match(r"Intel Arc (?:Pro )?([AB]\d+)$", name)
    if m:
        found.append(m.group(1).lower())
    m = re.match(r"Apple (M\d(?: \w+)?) (\d+)GB$", name)
    if m:
        found.append(f"{m.group(1).lower().replace(' ', '-')}-{m.group(2)}g")
    return found


def expand(row):
    """A row of the table as one device each: memory options, dual-chip cards."""
    notes = row["notes"]
    if "2 GCDs" in notes:  # each half is a device of its own to a framework
        half = dict(row)
        half["name"] += " (per GCD of 2)"
        half["memory_gb_marketed"] = str(float(row["memory_gb_marketed"]) / 2)
        for column in ("memory_bw_gbs", "fp32_tflops", "fp16_tensor_dense_tflops",
                       "bf16_tensor_dense_tflops", "sm_count"):
            if row[column]:
                half[column] = f"{float(row[column]) / 2:g}"
        return [half]
    if "/" in row["memory_gb_marketed"]:
        options = []
        for size in row["memory_gb_marketed"].split("/"):
            option = dict(row)
            option["name"] += f" {size}GB"
            option["memory_gb_marketed"] = size
            options.append(option)
        return options
    return [row]


def memory(row):
    """(bytes, kind): what a process is told the device has."""
    name = row["name"]
    if row["driver_reported_total_bytes"]:
        return int(row["driver_reported_total_bytes"]), "DRIVER"
    if name in PRINTED_GIB:
        return int(PRINTED_GIB[name][0] * GIB) // MIB * MIB, "PRINTED"
    total = float(row["memory_gb_marketed"]) * GIB
    if row["vendor"] == "NVIDIA" and row["class"] in ("consumer", "workstation", "datacenter") \
            and "unified" not in row["notes"]:
        hbm = HBM.search(name)
        if row["class"] == "datacenter" and not hbm:
            total *= 15 / 16
        total *= LEFT_HBM if hbm else LEFT_GDDR
    return int(total) // MIB * MIB, "MARKETED"


SOURCES = [  # long sources get a name; the rest stand in their row
    ("SRC_WIKI", "Wikipedia via github voidful/gpu-info-api gpu-data@03a6b34 (2025-06-16), CC-BY-SA"),
    ("SRC_MLE", "github stas00/ml-engineering@744d01e compute/accelerator/README.md "
                "(vendor datasheets; CC-BY-SA-4.0)"),
    ("SRC_PL", "github Lightning-AI/pytorch-lightning@7f0c343 fabric/utilities/throughput.py "
               "(vendor datasheets; Apache-2.0)"),
    ("SRC_HF", "npm @huggingface/tasks 0.21.54 hardware-*.ts (MIT; author says approximate)"),
    ("SRC_CC", "cc: developer.nvidia.com/cuda-gpus (search excerpt)"),
    ("SRC_M", "llmcheck.net + akunu book (search excerpts, agree)"),
    ("SRC_JETSON", "Seeed Jetson wiki table"),
]


def source(row):
    text = row["source"]
    if row["name"] in PRINTED_GIB and not row["driver_reported_total_bytes"]:
        text += "; total: " + PRINTED_GIB[row["name"]][1]
    # Numbers of a search tool's own rows help nobody else.
    text = re.sub(r" \(find_string id [^)]*\)", "", text)
    text = re.sub(r"find_string id \d+ \(cites amd\.com\)", "amd.com, cited in a public repository", text)
    parts = re.split("(" + "|".join(re.escape(s) for _, s in SOURCES) + ")", text)
    names = {s: n for n, s in SOURCES}
    out = [names.get(p) or '"' + p.replace("\\", "\\\\").replace('"', '\\"') + '"'
           for p in parts if p]
    return " ".join(out)


def number(text):
    """Ranges ("7-8") depend on the card bought: unknown."""
    return f"{float(text):g}" if re.fullmatch(r"[0-9.]+", text) else "0"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8", newline="") as f:
        rows = [device for row in csv.DictReader(f) for device in expand(row)]
    unknown = set(PRINTED_GIB) | set(ALIASES)
    unknown -= {r["name"] for r in rows}
    if unknown:
        sys.exit(f"no such card in the table: {sorted(unknown)}")

    print("/* gpus.def -- the cards.  Written by tools/gpus_from_csv.py; do not edit.")
    print(" *")
    print(" * GPU(name, aliases, vendor, class, arch, year, GB on the box, bytes a process is")
    print(" *     told, how that is known (DRIVER: exactly; PRINTED: to 0.01 GiB; MARKETED:")
    print(" *     estimated from the box), GB/s, TFLOPS dense: fp32, tf32, fp16, bf16, fp8;")
    print(" *     compute capability * 10, SMs (AMD: CUs, Intel: Xe cores, Apple: cores), src)")
    print(" *")
    print(" * 0 is unknown.  fp16 of GeForce cards is with fp16 accumulation. */")
    for name, text in SOURCES:
        print(f'#define {name} "{text}"')
    taken = {}
    for row in rows:  # full names first: an alias must not take one
        name, own = row["name"], key(row["name"])
        if own in taken:
            sys.exit(f"'{name}' and '{taken[own]}' are one name")
        taken[own] = name
    for row in rows:
        name = row["name"]
        names = [a for a in ALIASES.get(name, "").split(", ") if a] + short_names(name)
        aliases, own = [], key(name)
        names = names or [own]  # the short name that lists show
        for alias in names:
            if alias in aliases:
                continue
            if taken.get(key(alias), name) != name:
                sys.exit(f"'{alias}' of '{name}' is taken by '{taken[key(alias)]}'")
            taken[key(alias)] = name
            aliases.append(alias)
        total, kind = memory(row)
        cc = row["compute_capability"]
        print(f'GPU("{name}", "{", ".join(aliases)}", "{row["vendor"]}", "{row["class"]}", '
              f'"{row["arch"]}", {row["year"]},')
        print(f'    {number(row["memory_gb_marketed"])}, {total}, {kind}, '
              + ", ".join(number(row[c]) for c in (
                  "memory_bw_gbs", "fp32_tflops", "tf32_dense_tflops", "fp16_tensor_dense_tflops",
                  "bf16_tensor_dense_tflops", "fp8_tensor_dense_tflops"))
              + f', {round(float(cc) * 10) if cc else 0}, {number(row["sm_count"])},')
        print(f"    {source(row)})")
    for name, _ in SOURCES:
        print(f"#undef {name}")


if __name__ == "__main__":
    main()
