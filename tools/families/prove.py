"""prove.py -- is what C builds from a family's text what transformers does?  Parameter for parameter and node for node."""

from __future__ import annotations

import json
import pathlib
import random
import re
from typing import Any, Dict, Iterator, List, Tuple

from lines import SAME, built, crc32
from probe import UNITS, Run, Study
from trace import Call, Op


WITHOUT_DEFAULT = re.compile(r"^key ([\w.]+): [^=\n]*$", re.M)


def shape(sizes: Any, dtype: Any) -> str:
    return f"{str(dtype).replace('torch.', '')}[{','.join(map(str, sizes))}]"


def expected(call: Call) -> Iterator[str]:
    for item in call.items:
        if isinstance(item, Op):
            yield " ".join([SAME.get(item.target, item.target), *(shape(v.shape, v.dtype) for v in item.outs)])
        elif isinstance(item, Call):
            yield from expected(item)


def differs(program: str, path: str, study: Study, moved: Dict[str, Any], how: Dict[str, Any],
            proof: List[Dict[str, Any]]) -> str:
    """Empty, or what is not equal.  What was compared is added to the proof."""
    config, model = study.model(moved, how)
    keys = json.loads(json.dumps({k: v for k, v in config.to_diff_dict().items() if k != "label2id"},
                                 default=str))
    flat = study.flat(moved, config)
    for key in WITHOUT_DEFAULT.findall(pathlib.Path(path).read_text()):  # which transformers leaves out where it is what another file would mean by that
        part, _, name = key.rpartition(".")
        if part and key in flat:
            keys.setdefault(part, {}).setdefault(name, flat[key])
    if study.flat_part and len(proof) % 2:  # as older files are
        part = keys.get(study.flat_part, {})
        older = {**{k: v for k, v in part.items() if k != "model_type"}, **{k: v for k, v in keys.items() if k != study.flat_part}}
        keys = older if study.flat(older, study.config_class(**older)) == flat else keys
    row = study.row(flat, how)
    how = {k: v for k, v in how.items() if k != UNITS} | ({k: row[k] for k in ("$height", "$width")} if UNITS in how else {})
    lines, why = built(program, path, keys, how)
    if why:
        return f"refused: {why}"
    wanted = [f"param {n} {shape(p.shape, p.dtype)}" for n, p in model.named_parameters()]
    config.use_cache = how["$cache"]
    wanted += expected(study.traced(model, row, how))
    if how["$dtype"] == "float32":  # casts to it that code leaves out then are none
        wanted, lines = ([w for w in x if not w.startswith("cast float32[")] for x in (wanted, lines))
    for i, (a, b) in enumerate(zip(wanted, lines)):
        if a != b:
            return f"line {i}: '{a}' is '{b}'"
    if len(wanted) != len(lines):
        return f"{len(lines)} lines, not {len(wanted)}"
    proof.append({"config": keys, "how": how, "lines": len(wanted), "crc32": crc32(wanted)})
    return ""


def prove(program: str, path: str, study: Study, count: int, seed: int = 0) -> Tuple[List[Dict[str, Any]], List[Tuple[str, Run]]]:
    """Of configurations that nobody chose those that are equal, and others with what is not equal."""
    rng = random.Random(f"prove {study.kind} {seed}")
    proof: List[Dict[str, Any]] = []
    wrong: List[Tuple[str, Run]] = []
    for _ in range(count * 12):
        run = study.random(rng)
        if run is None:
            continue
        if len(proof) % 3 == 2:  # which no run that was learnt has
            run = study.attempt(run.moved, {**run.how, "$dtype": "float32"}) or run
        why = differs(program, path, study, run.moved, run.how, proof)
        if "is not known for model_type" in why:  # refused by its key: no wrong answer
            study.why = why
            continue
        if why and run.how["$dtype"] == "float32":  # which is not learnt: the same must be wrong in another type
            run = study.attempt(run.moved, {**run.how, "$dtype": study.how["$dtype"]}) or run
            if not differs(program, path, study, run.moved, run.how, []):
                raise ValueError(f"in fp32, which was not learnt: {why}")
        if why:
            changed = {k: v for k, v in run.how.items() if v != study.how.get(k)}
            wrong.append((f"{why} {run.moved} {changed}", run))
        if len(proof) + len(wrong) == count:
            break
    return proof, wrong
