#!/usr/bin/env python3
"""combinations.py -- docs/combinations.md is what the program answers, and what the goldens have compared: src/job/compared.def.

    tools/combinations.py BUILD [--update]

A choice is a setting whose row of src/settings/settings.def has .pairs, with one of its values.  All pairs of choices are
asked for.  Each is answered, or refused with a sentence of src/job/together.def; else it is reported, as is a row
of that file that nothing reaches.  Each engine is asked for each format of weights, type of keys and values, and
division among cards.  A pair is compared with real code if a recorded run has both: what the
scripts in tests/golden ask for says so, and none of that may be refused.
"""
import collections
import itertools
import json
import pathlib
import re
import runpy
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/combinations.md"
PAIRS = ROOT / "src/job/compared.def"
BEGIN, END = "<!-- combinations -->\n", "<!-- end of combinations -->\n"
ROWS = {  # the settings whose values are rows
    "strategy": ("share/strategies.def", "PLIM_STRATEGY"), "peft": ("transform/adapters.def", "PLIM_ADAPTER"),
    "optimizer": ("optim/optims.def", "PLIM_OPTIM"), "ema": ("optim/emas.def", "PLIM_EMA"),
    "loop": ("settings/loops.def", "PLIM_LOOP")}
GOLDENS = ["idiom/idiom", "scaler/scaler", "tune/tune", "share/share", "share/part", "share/context", "share/experts",
           "share/stage", "loss/loss", "megatron/gpt", "releases/releases", "releases/bnb"]
MEGATRON = "a model of Megatron-LM"
CARDS = ["strategy", "tp", "sequence_parallel", "pp", "schedule", "cp", "ep", MEGATRON]  # rows of the first table

COMPARED, ANSWERED, REFUSED = "compared", "answered", "no"

Choice = collections.namedtuple("Choice", "key value needs many")


# ---- what there is ------------------------------------------------------------------------


def strings(text):
    """The strings in a C expression, adjacent ones joined."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))


def field(row, name):
    found = re.search(rf'\.{name} = ((?:"(?:[^"\\]|\\.)*"\s*)+)', row)
    return strings(found[1]) if found else None


def settings():
    """By key: the row's text."""
    text = (ROOT / "src/settings/settings.def").read_text()
    return {m[1]: m[2] for m in re.finditer(r"^SETTING\((\w+), (.*?)(?=^SETTING|^#undef)", text, re.M | re.S)}


def values_of(key, value, row):
    if value != "*":
        return value.split("/")
    if key in ROWS:
        path, macro = ROWS[key]
        names = re.findall(rf'^{macro}\("?(\w+)', (ROOT / "src" / path).read_text(), re.M)
    else:
        names = field(row, "words").split()
    return [each for each in names if each not in settings() and each != field(row, "hidden")]  # lora is one


def choices():
    found = []
    for key, row in settings().items():
        if not (pairs := field(row, "pairs")):
            continue
        (_, value), *needs = (item.strip().partition("=")[::2] for item in pairs.split(";"))
        many = value == "*" or "/" in value or field(row, "words") is not None
        found += [Choice(key, each, tuple(needs), many) for each in values_of(key, value, row)]
    return found + [Choice(MEGATRON, "", (), False)]


def name(choice):
    return f"{choice.key} {choice.value}" if choice.many else choice.key


def table():
    """The rows of together.def: a, b, the sentence, a pattern of it."""
    text = (ROOT / "src/job/together.def").read_text()
    traits = {m[1]: m[2] for m in re.finditer(r'^PLIM_TRAIT\((\w+), "([^"]*)"', (ROOT / "src/job/traits.def").read_text(), re.M)}
    rows = []
    for m in re.finditer(r'^PLIM_(APART|NEEDS|BELOW)\((?:[A-Z]+, )?("[^"]*"|\w+), ("[^"]*"|\w+), (NULL|".*")\)$', text, re.M):
        a, b = (traits.get(word) or strings(word) for word in m.group(2, 3))
        why = f"with {a}, {b} is not simulated" if m[4] == "NULL" else strings(m[4])
        rows.append((m[1], a, b, re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(why)))))
    return rows


# ---- what is answered ---------------------------------------------------------------------


SIZES = {"vocab_size": 2000, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 8, "intermediate_size": 256, "dtype": "float32"}


ARGUMENTS = ("--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --micro-batch-size 1 "
             "--bf16 --vocab-size 2000")


class Program:
    """Questions to the library, of small models of its own."""

    def __init__(self, build, folder):
        sys.path.insert(0, str(ROOT / "python"))
        import os
        os.environ["PLIMSOLL_LIBRARY"] = str(build / "libplimsoll.so")
        import plimsoll
        self.plimsoll, self.rows = plimsoll, table()
        self.models = {}
        for kind, model, more in (("llama", "LlamaForCausalLM", {}), ("mixtral", "MixtralForCausalLM", {"num_local_experts": 4})):
            (folder / kind).mkdir()
            (folder / kind / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [model], **SIZES, **more}))
            self.models[kind] = folder / kind
        for each, more in ((MEGATRON, ""), ("mixture", " --num-experts 4 --disable-bias-linear")):
            self.models[each] = folder / f"{each}.txt"
            self.models[each].write_text(ARGUMENTS + more)
        self.models = {"resnet18": "resnet18", **{each: str(path) for each, path in self.models.items()}}

    def refuses(self, model, given):
        """The message, or None."""
        ask, more = self.plimsoll.estimate, {"advice": "none", "workspace": "off"}
        if "vram" in given:
            ask, more = self.plimsoll.fit, {}
        if model in ("llama", "mixtral"):
            more["seq"] = 256
        try:
            ask(self.models[model], **more, **given)
        except self.plimsoll.Error as error:
            return str(error)
        return None

    def pair(self, *pair):
        """The message, or None: without what either needs, or with it."""
        mains = {c.key: c.value for c in pair if c.key != MEGATRON}
        needs = {key: value for c in pair for key, value in c.needs if key not in mains}
        own = any(c.key == MEGATRON for c in pair)
        model = ("mixture" if own else "mixtral") if "ep" in mains else MEGATRON if own else "llama"
        if own:  # whose strategy is its own
            needs.pop("strategy", None)
        messages = [self.refuses(model, mains), *([self.refuses(model, {**needs, **mains})] if needs else [])]
        if None in messages:
            return None
        plain = [pattern for kind, _, _, pattern in self.rows if kind != "NEEDS"]
        return next((why for why in messages if any(pattern.fullmatch(why) for pattern in plain)), messages[-1])


# Of rows that no pair reaches, because they are about values, or about a setting without what it needs.
FURTHER = [
    ("llama", {"optimizer": "adamw,in_backward=1", "accumulate": 2}), ("llama", {"optimizer": "adamw,in_backward=1", "clip": True}),
    ("llama", {"optimizer": "adamw,in_backward=1", "pp": 2}), ("llama", {"optimizer": "adamw,in_backward=1", "tp": 2}),
    ("llama", {"optimizer": "adamw,in_backward=1", "dp": 2}),
    ("llama", {"optimizer": "adamw,in_backward=1", "grad_scaler": True, "autocast": "fp16"}),
    ("llama", {"strategy": "fsdp2"}), ("llama", {"microbatches": 4}), ("llama", {"schedule": "gpipe"}), ("llama", {"stages_per_rank": 2}),
    ("llama", {"stages_per_rank": 2, "pp": 2}), (MEGATRON, {"stages_per_rank": 2, "pp": 2}), ("llama", {"sequence_parallel": True}),
    (MEGATRON, {"mode": "infer", "pp": 2}), (MEGATRON, {"accumulate": 2, "pp": 2}),
    ("llama", {"tp": 2, "sequence_parallel": True, "optimizer": "sgd,momentum=0.9"}), ("llama", {"tp": 2, "optimizer": "adamw,impl=fused"}),
    ("llama", {"ep": 2}), ("mixtral", {"ep": 2, "dp": 4, "strategy": "fsdp2,replicate=2"}), ("llama", {"ep": 2, "dp": 4, "strategy": "fsdp2"}),
    ("llama", {"quant": "nf4"}), ("resnet18", {"cache": "on"}), ("resnet18", {"images": "1"}), ("resnet18", {"audio": "30s"}), ("resnet18", {"sequences": "padded"}), ("resnet18", {"sequences": "packed"}),
    ("llama", {"checkpoint": "blocks,reentrant", "dp": 2, "strategy": "fsdp2"}), (MEGATRON, {"pp": 2, "strategy": "megatron_fsdp"}),
    ("llama", {"grad_scaler": True, "dtype": "fp16"}), ("llama", {"peft": "prompt_tuning", "cp": 2, "strategy": "ddp"}),
    ("llama", {"grad_scaler": True, "autocast": "fp16", "cp": 2, "strategy": "ddp"}), ("resnet18", {"gpu": "t4", "vram": "8GiB"}),
    ("llama", {"bitsandbytes": "0.41"}), ("resnet18", {"transformers": "5.24"}),
    *(("resnet18", {"attention": how}) for how in ("sdpa", "eager", "flash")), ("llama", {"attention": "flex"}),
    ("llama", {"attention": "flash", "dtype": "bf16", "cp": 2, "dp": 2, "strategy": "ddp"}),
]


def ask_all(program):
    """By pair of choices: the message, or None.  Left out are pairs of values of one setting, and choices that the model does not take."""
    alone = {c: program.pair(c) for c in choices()}
    taken = [c for c, why in alone.items() if not why]
    return {pair: program.pair(*pair) for pair in itertools.combinations(taken, 2) if pair[0].key != pair[1].key}


def judge(program, answers):
    """What is wrong: refusals that are no row's, rows that nothing reaches."""
    rows, reached = program.rows, set()
    further = [(f"{model} {given}", program.refuses(model, given)) for model, given in FURTHER]
    for what, why in [*((" with ".join(map(name, pair)), why) for pair, why in answers.items()), *further]:
        found = {row for row in rows if why and row[3].fullmatch(why)}
        reached |= found
        if why and not found:
            yield f"{what}: no row of together.def says '{why}'"
    yield from (f"no pair is refused by the row of '{a}' and '{b}'" for _, a, b, why in rows if (_, a, b, why) not in reached)


# ---- what was compared --------------------------------------------------------------------


def goldens(build):
    """The settings of the recorded runs, as the program says that it used them."""
    sys.path.insert(0, str(ROOT / "tests/golden"))
    import runs
    seen, scripts, ask = {}, [], runs.ask
    runs.Runs.main = lambda self, doc: scripts.append(self)

    def record(command, at, code=0):
        words = [str(word) for word in command]
        path, rest = pathlib.Path(words[2]), words[3:]
        for option in ("--batch", "--seq", "--rank"):
            if option in rest:
                del rest[rest.index(option):][:2]
        own = path.suffix == ".txt"  # arguments of Megatron-LM
        key = (path.read_text() if own else path.suffix, *rest)
        if key not in seen:
            seen[key] = {MEGATRON: own, **ask(words, ("settings",), code)}
        return 0

    runs.ask = record
    for script in GOLDENS:
        try:
            runpy.run_path(str(ROOT / f"tests/golden/{script}.py"), run_name="__main__")
        except SystemExit:
            pass
        with tempfile.TemporaryDirectory() as folder:
            folder, those = pathlib.Path(folder), scripts[-1]
            runs.write_configs(folder, those.models)
            for case in those.read():
                those.predicted(build / "plimsoll", folder, *case)
    differential = runpy.run_path(str(ROOT / "tools/differential/differential.py"))
    for words in differential["SETTINGS"].values():
        record([build / "plimsoll", "estimate", ROOT / "tests/golden/differential/llama.pt2", *words, "--json"], ())
    return list(seen.values())


def is_set(choice, used, row):
    """Whether a run has the choice."""
    value = used.get(choice.key)
    if choice.many:
        return isinstance(value, str) and value.split(",")[0] == choice.value.split(",")[0]
    return value is True or (isinstance(value, int) and value > 1) or (isinstance(value, str) and value != field(row, "hidden"))


def compared(build, among):
    """The pairs of choices that a recorded run has both of, and the choices that one has."""
    rows, alone, pairs = settings(), set(), set()
    for used in goldens(build):
        has = [c for c in among if (used[MEGATRON] if c.key == MEGATRON else is_set(c, used, rows[c.key]))]
        alone.update(has)
        # Such a model goes with other things than a model that PyTorch divides.
        pairs.update(pair for pair in itertools.combinations(has, 2) if not used[MEGATRON] or pair[1].key == MEGATRON)
    return alone, pairs


# ---- engines ------------------------------------------------------------------------------


def engine_questions(program):
    """What an engine may be asked to serve: a column of the table, and the settings of each of its questions."""
    formats = {"transformers": {}, "llama.cpp": {}}
    for row in program.plimsoll.quantizations():
        if "weights" in row.setting:
            formats["llama.cpp" if "llama.cpp" in row.setting else "transformers"][row.name] = {"weights": row.name}
    types = [word for row in program.plimsoll.engines() for word in kv_types(row.name)]
    yield "weights", formats["transformers"]
    yield "weights of llama.cpp", formats["llama.cpp"]
    yield "kv", {word: {"kv": word} for word in dict.fromkeys(types) if word != "auto"}
    yield "tp", {"tp": {"tp": 2}}
    yield "pp", {"pp": {"pp": 2}}
    yield "draft", {"draft": {"draft": program.models["llama"]}}


def kv_types(engine):
    rows = (ROOT / "src/serve/engines.def").read_text(encoding="utf-8")
    row = re.search(rf'PLIM_ENGINE\(\w+, "{re.escape(engine)}",(.*?)(?=\nPLIM_ENGINE|\Z)', rows, re.S)[1]
    return re.findall(r'((?:"[^"]*"\s*)+)', row)[1].replace('"', " ").split()


def engine_runs():
    """(engine, column, value) of what engines said or did in the goldens of serve."""
    folder = ROOT / "tests/golden/serve"
    for line in (folder / "sglang.txt").read_text(encoding="utf-8").splitlines():
        given = dict(re.findall(r"--(tp|pp|kv|weights) (\S+)", line.split("|")[0])) if line[:1] not in "#" else {}
        for key, value in given.items():
            yield "sglang", key, value if key in ("kv", "weights") else key


def serve_refuses(program, engine, given):
    """The message, or None."""
    try:
        program.plimsoll.serve(program.models["llama"], engine=engine, context=256, gpu="a100", **given)
    except program.plimsoll.Error as error:
        return str(error).removeprefix(f"'{program.models['llama']}/config.json': ")
    return None


def engine_cells(program):
    """By engine and column: the values by kind, and the messages."""
    runs = set(engine_runs())
    for row in program.plimsoll.engines():
        for column, questions in engine_questions(program):
            cell = collections.defaultdict(list)
            for value, given in questions.items():
                why = serve_refuses(program, row.name, given)
                kind = REFUSED if why else COMPARED if (row.name, column, value) in runs else ANSWERED
                said = value if value == column else f"{column.split()[0]} {value}"
                cell[kind].append((said, why and why.replace(f"'{value}'", "'...'")))
            yield row.name, column, cell


def engines(program):
    cells = list(engine_cells(program))
    columns = list(dict.fromkeys(column for _, column, _ in cells))
    yield "\n## In serving\n\n| | " + " | ".join(f"`{c}`" if " " not in c else c for c in columns) + " |\n"
    yield "| --- |" + " --- |" * len(columns) + "\n"
    for engine in dict.fromkeys(engine for engine, _, _ in cells):
        words = [in_short(set(cell)) for name, _, cell in cells if name == engine]
        yield f"| `{engine}` | " + " | ".join(words) + " |\n"
    for engine in dict.fromkeys(engine for engine, _, _ in cells):
        yield f"\n### `{engine}`\n\n"
        mine = [(column, cell) for name, column, cell in cells if name == engine]
        for kind, words in (COMPARED, "compared with the engine"), (ANSWERED, "answered, not compared with these settings"):
            if those := [value for _, cell in mine for value, _ in cell[kind]]:
                yield f"* {words}: " + ", ".join(f"`{value}`" for value in those) + "\n"
        refused = collections.defaultdict(list)
        for _, cell in mine:
            for value, why in cell[REFUSED]:
                refused[why].append(value)
        for why, those in refused.items():
            yield "* no: " + ", ".join(f"`{value}`" for value in those) + f": *{why}*\n"


# ---- the page -----------------------------------------------------------------------------


def kind_of(pair, answers, pairs):
    return REFUSED if answers[pair] else COMPARED if pair in pairs else ANSWERED


def in_short(kinds):
    """Of the values of a setting: what is best known of those that are not refused."""
    best = next((kind for kind in (COMPARED, ANSWERED) if kind in kinds), REFUSED)
    return f"{best}, or no" if REFUSED in kinds and best != REFUSED else best


def overview(kinds, taken):
    keys = list(dict.fromkeys(c.key for c in taken))
    columns = [key for key in keys if key not in ("strategy", "schedule", "zero_grad", "empty_cache", MEGATRON)]
    yield "| | " + " | ".join(f"`{key}`" if key != "mode" else "`infer`" for key in columns) + " |\n"
    yield "| --- |" + " --- |" * len(columns) + "\n"
    for c in (c for c in taken if c.key in CARDS):
        cells = ({kinds[c, d] for d in taken if d.key == key and (c, d) in kinds} for key in columns)
        yield f"| {code(c)} | " + " | ".join(in_short(cell) if cell else "" for cell in cells) + " |\n"


def code(choice):
    return choice.key if choice.key == MEGATRON else f"`{name(choice)}`"


def listed(those, taken):
    """Choices by setting: all values of one, or their names."""
    words = []
    for key in dict.fromkeys(c.key for c in those):
        here, every = ([c for c in among if c.key == key] for among in (those, taken))
        rest = [f"`{c.value}`" for c in every if c not in here]
        if len(every) == 1 or not rest:
            words.append(code(here[0]) if len(every) == 1 else f"`{key}`")
        elif len(here) > 9:
            words.append(f"`{key}` but {' and '.join(rest) if len(rest) < 3 else ', '.join(rest)}")
        else:
            words.append(f"`{key}` " + ", ".join(f"`{c.value}`" for c in here))
    return "; ".join(words)


def paragraph(choice, taken, kinds, whys):
    """What goes with a choice, as lines."""
    others = [d for d in taken if (choice, d) in kinds]
    for kind, words in ((COMPARED, "compared with the real code"), (ANSWERED, "answered, not compared")):
        if those := [d for d in others if kinds[choice, d] == kind]:
            yield f"* {words}: {listed(those, taken)}\n"
    refused = collections.defaultdict(list)
    for d in others:
        if whys[choice, d]:
            refused[re.sub(r"(?<=\W)'[^' ]*'", "'...'", " " + whys[choice, d])[1:]].append(d)
    for why, those in refused.items():
        yield f"* no: {listed(those, taken)}: *{why}*\n"


def by_choice(taken, kinds, whys):
    for key in dict.fromkeys(c.key for c in taken):
        same = collections.defaultdict(list)
        for c in (c for c in taken if c.key == key):
            same["".join(paragraph(c, taken, kinds, whys))].append(c)
        yield f"\n### {key if key == MEGATRON else f'`{key}`'}\n"
        for text, those in same.items():
            yield ("\n" + ", ".join(f"`{c.value}`" for c in those) + "\n" if those[0].many else "") + "\n" + text


def page(answers, pairs):
    taken = list(dict.fromkeys(c for pair in answers for c in pair))
    taken = [c for c in choices() if c in set(taken)]
    kinds, whys = {}, {}
    for (a, b), why in answers.items():
        kinds[a, b] = kinds[b, a] = kind_of((a, b), answers, pairs)
        whys[a, b] = whys[b, a] = why
    count = collections.Counter(kinds[pair] for pair in answers)
    yield (f"Of {len(answers):,} pairs {count[COMPARED]:,} were compared, {count[ANSWERED]:,} are answered without that, "
           f"{count[REFUSED]:,} are refused.\n\n## On several cards\n\n")
    yield from overview(kinds, taken)
    yield "\n## All pairs\n"
    yield from by_choice(taken, kinds, whys)


def pairs_file(pairs):
    """Those pairs where one meets others: what an answer says depends on them."""
    meets = {key for key, row in settings().items() if ".meets = true" in row} | {MEGATRON}
    rows = sorted(f'PLIM_COMPARED("{name(a)}", "{name(b)}")\n' for a, b in pairs if {a.key, b.key} & meets)
    return ("/* compared.def -- pairs of settings that a recorded run of the real code has.  Made by tools/combinations.py.\n"
            " * PLIM_COMPARED(a, b) */\n" + "".join(rows))


def keep(path, new, update):
    """Writes the file, or says that it is another one."""
    if path.exists() and path.read_text(encoding="utf-8") == new:
        return []
    if update:
        path.write_text(new, encoding="utf-8")
        return []
    return [f"{path}: it is not what the program answers (tools/combinations.py BUILD --update)"]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(build, pathlib.Path(folder))
        answers = ask_all(program)
        wrong = list(judge(program, answers))
        serving = "".join(engines(program))
    _, pairs = compared(build, choices())
    wrong += [f"{' with '.join(map(name, pair))}: recorded, and refused: {answers[pair]}" for pair in pairs if answers.get(pair)]
    text = PAGE.read_text(encoding="utf-8")
    new = text.split(BEGIN)[0] + BEGIN + "".join(page(answers, pairs)) + serving + END + text.split(END)[1]
    update = "--update" in sys.argv
    wrong += keep(PAGE, new, update) + keep(PAIRS, pairs_file(pairs), update)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
