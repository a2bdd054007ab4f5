#!/usr/bin/env python3
"""rows.py -- the rows of src/zoo/networks.def, one for each network that src/families has; needs the libraries.

    rows.py --update       writes the file

A row has the parameters that the library counts, and the tags of its weights whose classes and images are those of the network.
"""
import sys
from typing import Iterator, List

from networks import network
from table import ROOT, texts

FILE = ROOT / "src" / "zoo" / "networks.def"
HEAD = """/* networks.def -- networks of timm, torchvision and ultralytics that are known by name: tools/families/rows.py writes it.
 *
 * NETWORK(library, name, parameters, description, source, other names, classes).  Other names: pages of the hub with weights for as
 * many classes and images of the same size. */

"""


def tags(kind: str) -> List[str]:
    """Pages of the hub with weights for a network, its default first; torchvision has none."""
    library, _, name = kind.partition(":")
    if library != "timm":
        return []
    from timm.models import get_pretrained_cfg, list_pretrained
    own = get_pretrained_cfg(name)
    found = []
    for tag in list_pretrained(f"{name}.*"):
        cfg = get_pretrained_cfg(tag)
        if (cfg.num_classes, cfg.input_size) == (own.num_classes, own.input_size):
            found.append(f"timm/{tag}")
    first = f"timm/{name}.{own.tag}"
    return [first, *(t for t in found if t != first)]


def row(kind: str) -> Iterator[str]:
    of = network(kind)
    names = tags(kind)
    doc, src = (names[0], f"huggingface.co/{names[0]}") if names else (of.__name__, of.version)
    yield f'NETWORK("{of.library}", "{of.name}", {of.parameters},'
    yield f'        "{doc}", "{src}",'
    lines = [""]
    for other in names or [of.name, *([f"{of.name}.pt"] if of.library == "ultralytics" else [])]:
        if len(lines[-1]) + len(other) > 84 and lines[-1]:
            lines.append("")
        lines[-1] += f" {other}" if lines[-1] or len(lines) > 1 else other
    yield from (f'        "{line}"{"," if i == len(lines) - 1 else ""}' for i, line in enumerate(lines))
    yield f'        {of.keys["num_classes"]})'


def main() -> None:
    text = HEAD + "".join("\n".join(row(head["family"])) + "\n" for head, _ in texts("network"))
    if "--update" in sys.argv:
        FILE.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
