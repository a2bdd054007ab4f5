#!/usr/bin/env python3
"""gpus_from_csv.py -- writes src/gpu/gpus.def from the tables src/gpu/gpus.csv and src/gpu/migs.csv.

    tools/gpus_from_csv.py            writes it
    tools/gpus_from_csv.py --check    says whether it is up to date (exit 1: no)

The table has a row a device: half of a dual-chip card, one memory option of a
laptop chip.  An empty field is unknown.

name, aliases       how it is called; the first alias is the short name that lists show
vendor, class, arch, year
memory_gb           as sold
memory_type         NVIDIA: gddr, hbm; shared: with the CPU
total_bytes         what the driver tells a process, to the byte
total_gib           the same as an out-of-memory message prints it, to 0.01 GiB
kept_gib            of shared memory, what the system keeps of the total, as "least..usual..most": GiB;
                    "least..most" and "..most": the usual, and the least, are not known
bandwidth_gbs       10^9 bytes a second
fp32 ... fp8        dense TFLOPS; of GeForce cards fp16 is with fp16 accumulation
fp16_acc32          the same with fp32 accumulation, as PyTorch multiplies: half of it on GeForce
                    cards with tensor cores (white papers of the generations), else equal
compute_capability  NVIDIA only
sms                 multiprocessors (AMD: CUs, Intel: Xe cores, Apple: cores)
price_usd           of the launch, before tax
source              keys of SOURCES below, or what to look up, divided by "; "
note                what was derived or disagrees: for whoever edits the row

Where the total is unknown it is estimated: docs/sources/cards.md 1.

migs.csv has a row a MIG profile of a card of gpus.csv, a part of it that is a card to a process:

card                the first alias of the whole card
profile             "3g.20gb"
total_gib           of an instance, as nvidia-smi mig -lgip and out-of-memory messages print it
sms                 multiprocessors
memory_parts        the share of memory, "4/8": that of the bandwidth, and of an unknown total
source              as above
"""

import csv
import pathlib
import re
import sys

ROOM = pathlib.Path(__file__).resolve().parent.parent / "src" / "gpu"
GIB = 1 << 30
MIB = 1 << 20

# What a driver leaves of the memory sold, where nobody's figure is known.
# src: docs/sources/cards.md 1
LEFT = {"gddr": 0.975, "hbm": 0.985, "shared": 0.95}
ECC_LEFT = 15 / 16  # data-centre cards with GDDR keep the check bits in the memory itself

SOURCES = {
    "wikipedia": "Wikipedia via github voidful/gpu-info-api gpu-data@03a6b34 (2025-06-16), CC-BY-SA",
    "ml-engineering": "github stas00/ml-engineering@744d01e compute/accelerator/README.md "
                      "(vendors' datasheets), CC-BY-SA-4.0",
    "lightning": "github Lightning-AI/pytorch-lightning@7f0c343 fabric/utilities/throughput.py "
                 "(vendors' datasheets), Apache-2.0",
    "huggingface": "npm @huggingface/tasks 0.21.54 hardware-*.ts (approximate), MIT",
    "nvidia": "developer.nvidia.com/cuda-gpus",
    "apple-tables": "llmcheck.net and the akunu book, which agree",
    "metal": "Metal's working set, github ollama/ollama#434, ggml-org/llama.cpp#3213; the least: set by hand, "
             "antirez/ds4#893",
    "mig-guide": "NVIDIA Multi-Instance GPU User Guide, Supported MIG Profiles",
    "seeed": "Seeed Studio wiki, table of Jetson modules",
}

HEAD = """\
/* gpus.def -- the cards.  Written by tools/gpus_from_csv.py from gpus.csv and migs.csv; do not edit.
 *
 * GPU, and MIG of the instances after them: (name, aliases, the whole card of a MIG instance, vendor, class, arch, year, GB as sold,
 *     bytes a process is told, how that is known (DRIVER: exactly; PRINTED: to 0.01 GiB; MARKETED:
 *     estimated from the size sold), shared with the CPU, bytes of it that the system keeps (least,
 *     usual, most), GB/s, TFLOPS dense: fp32, tf32, fp16, fp16 with
 *     accumulation in fp32, bf16, fp8; compute capability * 10, SMs (AMD: CUs,
 *     Intel: Xe cores, Apple: cores), price at launch in US dollars, src)
 *
 * 0 is unknown.  fp16 of GeForce cards is with fp16 accumulation. */"""
RATES = ("bandwidth_gbs", "fp32", "tf32", "fp16", "fp16_acc32", "bf16", "fp8")


def key(text):
    """As plim_gpu_find compares: letters and digits, without the makers' words."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return "".join(w for w in words if w not in ("nvidia", "geforce"))


def check_names(rows):
    """Each name and alias means one card; full names first."""
    taken = {}
    for names in ([(r["name"], r["name"]) for r in rows],
                  [(a, r["name"]) for r in rows for a in r["aliases"].split(", ")]):
        for name, card in names:
            if not key(name):
                sys.exit(f"'{card}' has an empty name or alias")
            if taken.setdefault(key(name), card) != card:
                sys.exit(f"'{name}' of '{card}' is taken by '{taken[key(name)]}'")


def memory(row):
    """(bytes, kind): what a process is told the device has."""
    if row["total_bytes"]:
        return int(row["total_bytes"]), "DRIVER"
    if row["total_gib"]:
        return int(float(row["total_gib"]) * GIB) // MIB * MIB, "PRINTED"
    if row.get("part_bytes"):
        return row["part_bytes"], "MARKETED"
    total = float(row["memory_gb"]) * GIB  # GB as sold are 2^30
    if row["class"] == "datacenter" and row["memory_type"] == "gddr":
        total *= ECC_LEFT
    if row["memory_type"] != "shared" or row["vendor"] == "NVIDIA":
        total *= LEFT.get(row["memory_type"], 1)
    return int(total) // MIB * MIB, "MARKETED"


def kept(row):
    """Bytes of shared memory that the system keeps: least, usual, most; 0: not known."""
    parts = row["kept_gib"].split("..") if row["kept_gib"] else ["0"]
    if len(parts) == 2:
        parts.insert(1, "0")
    least, usual, most = [int(float(p or 0) * GIB) // MIB * MIB for p in parts * (4 - len(parts))][:3]
    if not least <= (usual or most) <= most or (most and row["memory_type"] != "shared"):
        sys.exit(f"'{row['name']}': 'kept_gib' is {row['kept_gib']}")
    return least, usual, most


def instance(mig, rows):
    """A MIG profile as a row of a card: what has no row of its own is in proportion."""
    whole = next((r for r in rows if r["aliases"].split(", ")[0] == mig["card"]), None)
    if not whole:
        sys.exit(f"'{mig['card']}' is no card")
    part, of = map(int, mig["memory_parts"].split("/"))
    share = int(mig["sms"]) / int(whole["sms"]) if mig["sms"] and whole["sms"] else 0
    row = {**whole, "name": f"{whole['name']} MIG {mig['profile']}", "of": mig["card"],
           "aliases": f"{mig['card']}:{mig['profile']}", "total_bytes": "", "total_gib": mig["total_gib"],
           "memory_gb": mig["profile"].split(".")[1].removesuffix("gb"), "sms": mig["sms"], "price_usd": "",
           "bandwidth_gbs": str(float(whole["bandwidth_gbs"] or 0) * part / of),
           "source": mig["source"] + "; rates in proportion"}
    row["part_bytes"] = memory(whole)[0] * part // of // MIB * MIB
    return {**row, **{c: str(float(whole[c] or 0) * share) for c in RATES[1:]}}


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def macro(name):
    return "SRC_" + name.upper().replace("-", "_")


def source(row):
    """Keys become macros: long sources stand once."""
    if not row["source"]:
        sys.exit(f"'{row['name']}' has no source")
    parts = re.split(r"(?<![\w-])(" + "|".join(SOURCES) + r")(?![\w-])", row["source"])
    return " ".join(macro(p) if p in SOURCES else quoted(p) for p in parts if p)


def number(text):
    return f"{float(text or 0):g}"


def table(rows):
    yield HEAD
    for name, text in SOURCES.items():
        yield f"#define {macro(name)} {quoted(text)}"
    for row in rows:
        total, kind = memory(row)
        yield (f'{"MIG" if row.get("of") else "GPU"}({quoted(row["name"])}, {quoted(row["aliases"])}, "{row.get("of", "")}", "{row["vendor"]}", '
               f'"{row["class"]}", "{row["arch"]}", {row["year"]},')
        yield (f'    {number(row["memory_gb"])}, {total}, {kind}, '
               f'{str(row["memory_type"] == "shared").lower()}, {", ".join(map(str, kept(row)))}, '
               + ", ".join(number(row[c]) for c in RATES)
               + f', {round(float(row["compute_capability"] or 0) * 10)}, {number(row["sms"])}, '
               f'{number(row["price_usd"])},')
        yield f"    {source(row)})"
    for name in SOURCES:
        yield f"#undef {macro(name)}"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    rows, migs = ([*csv.DictReader((ROOM / name).read_text(encoding="utf-8").splitlines())]
                  for name in ("gpus.csv", "migs.csv"))
    rows += [instance(m, rows) for m in migs]
    check_names(rows)
    text = "\n".join(table(rows)) + "\n"
    path = ROOM / "gpus.def"
    if sys.argv[1:]:
        if path.read_text(encoding="utf-8") != text:
            sys.exit("src/gpu/gpus.def is not what gpus.csv and migs.csv say: "
                     "run tools/gpus_from_csv.py")
    else:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
