#!/usr/bin/env python3
"""figures.py -- what is written of the figures of the answers, from their rows.

    tools/figures.py [--update]

Reads src/answers/*.def, which src/report/figures.h describes, and compares with them, or with
--update writes, what is theirs in

 * the headers: the structs between "figures: NAMES" and "end of figures";
 * python/plimsoll/_records.py: the classes of a .def;
 * docs/json.md: the tables of an answer or an object.

Reads src/report/renderings.def, too: plim_render in plimsoll.h, and Render in _library.py and the shim's abi.py.

A figure without a line of doc, or a number without a unit, is an error.
"""
import keyword
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = ROOT / "src/answers"
WIDTH = 95

# ---- reading the rows ---------------------------------------------------------------

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\S')


def statements(text):
    """The macro calls of a .def: name and arguments, each a list of tokens."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    tokens = TOKEN.findall(re.sub(r"(?m)^#.*$", "", text))
    at = 0
    while at < len(tokens):
        name, at = tokens[at], at + 1
        args, depth = [[]], 0
        if at < len(tokens) and tokens[at] == "(":
            while True:
                t, at = tokens[at], at + 1
                depth += (t == "(") - (t == ")")
                if t == ")" and not depth:
                    break
                if t == "," and depth == 1:
                    args.append([])
                elif not (t == "(" and depth == 1):
                    args[-1].append(t)
        yield name, args


def text_of(tokens):
    """The text of string literals."""
    return "".join(t[1:-1].replace('\\"', '"').replace("\\\\", "\\") for t in tokens if t[0] == '"')


def kinds():
    """name: type in C, type in Python, unit, whether it may be unknown by itself"""
    out = {}
    for name, args in statements((ROWS / "kinds.def").read_text(encoding="utf-8")):
        c = " ".join(args[1]).replace("* ", "*")
        python = "".join(args[2])
        plain = python[len("Optional["):-1] if python.startswith("Optional[") else python
        out["".join(args[0])] = (c, plain, text_of(args[3]), plain != python)
    return out


KINDS = kinds()
LISTS = "ROWS", "LIST", "LIST_AS", "TEXTS", "SERIES"
IN_TEXT = "SHOWN", "COLUMN", "RANGE", "DELTA", "CARD"
NUMBERS = {name for name, (c, python, unit, _) in KINDS.items() if python in ("int", "float") and not unit}


class Figure:
    """A row: `what` is its macro, `struct` where the field is, `key` its name in JSON."""

    def __init__(self, what, args):
        plain = ["".join(a) for a in args if not (a and a[0] == ".")]
        named = {a[1]: a[3:] for a in args if a and a[0] == "."}
        self.what, self.struct = what, plain[0]
        self.kind = self.of = self.path = None
        self.key = plain[1] if len(plain) > 1 else None
        if what in ("FIGURE", "FIELD", "DERIVED"):
            self.kind, self.path = plain[2], self.key
        elif what == "DIFFERENCE":
            self.kind = "READ_BYTES"
        elif what == "NESTED":
            self.path, self.kind = plain[2], plain[3]
        elif what == "INDEXED":
            self.path, self.kind = plain[2], plain[4]
        elif what == "GROUPED":
            self.key, self.path, self.kind = plain[2], f"{plain[1]}_{plain[2]}", plain[3]
        elif what in ("ROWS", "LIST", "PART", "REF", "GROUP", "INNER", "INNER_REF", "INNER_ROWS", "INNER_LIST"):
            self.of, self.path = plain[2], self.key
        elif what in ("REF_AS", "LIST_AS"):
            self.path, self.of = plain[2], plain[3]
        elif what == "REF_AT":
            self.path, self.of = plain[2], plain[4]
        elif what in ("SHAPE", "SHAPE_AGAIN", "SETTINGS"):
            self.key = self.path = what.split("_")[0].lower()
        elif what in ("TEXTS", "PAIRS", "SERIES"):
            self.path, self.count = self.key, plain[-1]
        self.doc, self.unit, self.empty = (text_of(named[k]) if k in named else "" for k in ("doc", "unit", "empty"))
        self.empty = self.empty or text_of(named.get("nothing", []))
        self.known = "".join(named["known"])[:-1].split(",")[1] if "known" in named else ""
        self.unless = "".join(named["unless"])[:-1].split(",")[1] if "unless" in named else ""
        self.only = "only" in named or "when" in named

    @property
    def optional(self):
        return bool(self.empty or self.known or self.unless or (self.kind in KINDS and KINDS[self.kind][3]))

    @property
    def in_data(self):
        return self.what not in ("FIELD", "INNER", "INNER_REF", "INNER_ROWS", "INNER_LIST", *IN_TEXT)

    @property
    def in_struct(self):
        """Has plim_STRUCT a field for it?"""
        return self.what not in ("DERIVED", "DIFFERENCE", "GROUP", "NESTED", "INDEXED", "LIST_AS", "SHAPE_AGAIN", "REF_AT",
                             *IN_TEXT)


class Object:
    """An object of the JSON: name, class or None, figures; an answer has a schema."""

    def __init__(self, what, args, file):
        self.name, self.python, self.file = args[0][0], args[1][0] if what != "TABLE" and args[1] else None, file
        self.schema = text_of(args[2]) if what == "REPORT" else None
        self.table = what == "TABLE"
        self.doc = text_of(args[-1])
        self.figures = []


def read_objects():
    objects = {}
    for path in sorted(ROWS.glob("*.def")):
        current = None
        for what, args in statements(path.read_text(encoding="utf-8")):
            if what in ("OBJECT", "REPORT", "TABLE"):
                current = Object(what, args, path.stem)
                objects[current.name] = current
            elif what not in ("END", "KIND"):
                current.figures.append(Figure(what, args))
                current.figures[-1].group = current
    return objects


OBJECTS = read_objects()
KEYS = {f.of: f.key for o in OBJECTS.values() for f in o.figures if f.what == "GROUP"}  # of an object within another
FLAGS = {(f.struct, f.key): f.doc for o in OBJECTS.values() for f in o.figures if f.kind == "FLAG"}


def lacking():
    """What the rows leave open."""
    for o in OBJECTS.values():
        if not o.doc:
            yield f"'{o.name}' has no doc"
        for f in o.figures:
            where = f"'{f.key}' of '{o.name}'"
            if f.what in IN_TEXT:
                continue
            if not f.doc:
                yield f"{where} has no doc"
            if f.kind in NUMBERS and not f.unit:
                yield f"{where} is a number without a unit"
            if f.in_data and f.of and f.of not in OBJECTS:
                yield f"{where} is made of '{f.of}', which is no object"
            if f.known and (f.struct, f.known) not in FLAGS:
                yield f"{where} is known by '{f.known}', which is not a flag of 'plim_{f.struct}'"


def unit_of(f):
    return f.unit or (KINDS[f.kind][2] if f.kind in KINDS else "")


def what_is(f, nothing, flag, name=""):
    """The doc, and what stands for the unknown: `nothing` is its name there.  A name says the unit of a number, or the
    doc does."""
    unit = unit_of(f) if (f.kind in NUMBERS or f.what == "PART") and name and not name.endswith(unit_of(f)) else ""
    said = [f"{f.doc} ({unit})" if unit and unit not in f.doc else f.doc]
    if f.empty:
        said.append(f"{nothing}: {f.empty}")
    if f.known:
        said.append(flag(f))
    if f.unless and not f.empty:
        said.append(f"{nothing} if there is none: '{f.unless}' says why")
    return "; ".join(said)


def unless(nothing):
    return lambda f: f"{nothing} unless {FLAGS[(f.struct, f.known)]}"


# ---- plimsoll.h ------------------------------------------------------------------------


def c_fields(f):
    """The declarations of a figure: each with its comment."""
    nothing = {"TEXT": "NULL", "FITS": "PLIM_FITS_NO_CARD", "RUN_FITS": "PLIM_VGPU_FITS_UNKNOWN", None: "NULL"}.get(f.kind, "0")
    doc = what_is(f, nothing, lambda f: f"only if {f.known}", f.path)
    if f.kind == "STEP":
        doc += "; -1: PLIM_PHASE_LOAD, which precedes step 0"
    count = f"uint32_t n_{f.path};"
    if f.what == "SHAPE":
        return [("int rank;", doc), ("int64_t dim[8];", "")]
    if f.what == "TEXTS":
        return [(f"const char *const *{f.path};", doc), (count, "")]
    if f.what == "PAIRS":
        return [(f"const plim_info_pair *const *{f.path};", doc), (count, "")]
    if f.what in ("ROWS", "LIST", "INNER_ROWS", "INNER_LIST"):
        return [(f"const plim_{of_struct(f.of)} *{'const *' * f.what.endswith('ROWS')}{f.path};", doc), (count, "")]
    if f.what == "SERIES":
        return [(f"uint64_t {f.path}[{f.count}];", doc)]
    if f.what in ("PART", "INNER"):
        return [(f"plim_{of_struct(f.of)} {f.path};", doc)]
    if f.what in ("REF", "REF_AS", "INNER_REF"):
        return [(f"const plim_{of_struct(f.of)} *{f.path};", doc)]
    if f.what == "SETTINGS":
        return [(f"const plim_settings *{f.path};", doc)]
    c = KINDS[f.kind][0]
    return [(f"{c}{'' if c.endswith('*') else ' '}{f.path};", doc)]


def of_struct(name):
    """The struct whose fields an object's figures are; one that is not made of rows has its name."""
    return OBJECTS[name].figures[0].struct if name in OBJECTS else name


def c_comment(doc, indent=""):
    """A comment of lines that fit."""
    lines = textwrap.wrap(doc, WIDTH - len(indent) - 6, break_on_hyphens=False)
    return [indent + ("/* " if not i else " * ") + text + (" */" if i == len(lines) - 1 else "")
            for i, text in enumerate(lines)]


def c_field(declaration, doc):
    """A field, and its comment after or above it."""
    line = f"    {declaration} /* {doc} */"
    if not doc:
        return [f"    {declaration}"]
    return [line] if len(line) <= WIDTH else [*c_comment(doc, "    "), f"    {declaration}"]


def c_group(o, struct, first):
    """The line before fields of an object other than those above: where one is in another, it has a key there."""
    what = "the rest, in no group" if o.name == struct else f"{KEYS.get(o.name, o.name)}: {o.doc}"
    return [""] * (not first) + c_comment(f"-- {what} --", "    ")


def c_struct(name):
    figures = [f for o in OBJECTS.values() for f in o.figures if f.struct == name and f.in_struct]
    figures.sort(key=lambda f: f.kind != "SIZE")  # a struct begins with its size
    about = next(o for o in OBJECTS.values() if any(f.struct == name for f in o.figures))
    about = OBJECTS.get(name, about)
    out = [*c_comment(f"{about.doc[0].upper()}{about.doc[1:]}."), f"typedef struct plim_{name} {{"]
    group = about
    for f in figures:
        if f.group is not group:
            out += c_group(f.group, name, f is figures[0])
        group = f.group
        for declaration, doc in c_fields(f):
            out += c_field(declaration, doc)
    return "\n".join(out + [f"}} plim_{name};"]) + "\n"


def renderings():
    """The constants and what they are."""
    rows = statements((ROOT / "src/report/renderings.def").read_text(encoding="utf-8"))
    return [(args[0][0], text_of(args[3])) for _, args in rows]


def render_enum():
    rows = renderings()
    lines = [f"    PLIM_{name} = {i}{',' if i + 1 < len(rows) else ''}" for i, (name, _) in enumerate(rows)]
    wide = max(map(len, lines))
    body = "\n".join(f"{line:{wide}} /* {what} */" for line, (_, what) in zip(lines, rows))
    return f"typedef enum plim_render {{\n{body}\n}} plim_render;\n"


def library(text):
    """The class Render of _library.py and abi.py."""
    names = [name for name, _ in renderings()]
    return re.sub(r"(class Render:\n.*\n    ).*\n", lambda m: f"{m[1]}{', '.join(names)} = range({len(names)})\n", text)


def header(text):
    def structs(m):
        return m[1] + "\n".join(c_struct(name) for name in m[2].split()) + m[3]
    text = re.sub(r"typedef enum plim_render \{\n.*?\} plim_render;\n", lambda m: render_enum(), text, flags=re.S)
    return re.sub(r"(/\* figures: ([\w ]+) \*/\n/\* clang-format off \*/\n).*?(/\* clang-format on \*/\n/\* end of figures \*/\n)",
                  structs, text, flags=re.S)


# ---- Python ----------------------------------------------------------------------------


def python_type(f):
    plain = {"SHAPE": "Tuple[int, ...]", "SHAPE_AGAIN": "Tuple[int, ...]", "TEXTS": "List[str]",
             "PAIRS": "Dict[str, str]", "SERIES": "List[Optional[int]]", "SETTINGS": "Dict[str, Any]"}.get(f.what)
    if f.what in LISTS and f.of:
        plain = f"List[{class_name(OBJECTS[f.of])}]"
    elif f.of:
        plain = class_name(OBJECTS[f.of])
    plain = plain or KINDS[f.kind][1]
    return f"Optional[{plain}]" if f.optional else plain


def class_name(o):
    return o.python + "Report" * bool(o.schema)


def python_class(o):
    yield f"class {class_name(o)}(Record):\n"
    yield f'    """{o.doc[0].upper() + o.doc[1:]}."""\n\n'
    if o.schema:
        yield "    schema: str\n"
    for f in (f for f in o.figures if f.in_data):
        doc = what_is(f, "None", unless("None"), f.key).replace('"', "'")
        if f.only:
            doc += "; not always there"
        lines = textwrap.wrap(doc.replace("\\", "\\\\"), 118 - 10, break_on_hyphens=False)
        yield f"    {f.key}{'_' * keyword.iskeyword(f.key)}: {python_type(f)}\n"
        yield f'    """' + "\n    ".join(lines) + '"""\n'


def records(text):
    def classes(m):
        return m[1] + "\n\n".join("".join(python_class(o)) for o in OBJECTS.values() if o.file == m[2] and o.python) + m[3]
    return re.sub(r"(# figures: (\w+)\n\n\n).*?(\n\n# end of figures\n)", classes, text, flags=re.S)


# ---- docs/json.md ------------------------------------------------------------------------


def value_of(f, seen):
    if f.of:
        o = OBJECTS[f.of]
        what = "list of objects" if f.what in LISTS else f"object of {f.unit}" if f.unit else "object"
        if f.of in seen:
            return f"{what}, as `{seen[f.of]}`"
        return f"{what}: [{section_of(o)[0]}](#{section_of(o)[1]})" if is_elsewhere(o) else what
    plain = {"SHAPE": "list of numbers", "SHAPE_AGAIN": "list of numbers", "TEXTS": "list of texts",
             "PAIRS": "object of texts", "SERIES": "list of bytes", "SETTINGS": "[object](settings.md)"}.get(f.what)
    return plain or unit_of(f) or {"bool": "true or false", "str": "text"}[KINDS[f.kind][1]]


def is_elsewhere(o):
    """Has the object a table of its own?"""
    return o.file == "shared" or o.schema


def section_of(o):
    return (o.schema, o.schema.replace("/", "")) if o.schema else (o.python, o.python.lower())


def table_rows(o, path, seen):
    """The members of an object; of the objects in it, each once: `seen` says where."""
    for f in (f for f in o.figures if f.in_data):
        doc = re.sub(r'"([^"]+)"', r"`\1`", what_is(f, "`null`", unless("`null`")))
        if f.only:
            doc += "; the member is left out if there is none"
        name = f"{path}{f.key}{'[]' * (f.what in LISTS)}"
        yield f"| `{name}` | {value_of(f, seen)} | {doc.replace('|', chr(92) + '|')} |\n"
        if f.of and f.of not in seen and not is_elsewhere(OBJECTS[f.of]):
            seen[f.of] = name
            yield from table_rows(OBJECTS[f.of], f"{name}.", seen)


def page(text):
    def tables(m):
        return m[1] + "| key | value | what it is |\n| --- | --- | --- |\n" + "".join(table_rows(OBJECTS[m[2]], "", {})) + m[3]
    return re.sub(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->\n)", tables, text, flags=re.S)


# ---- all of them ----------------------------------------------------------------------------

HEADERS = "include/plimsoll.h", "include/plimsoll_vgpu.h", "include/plimsoll_live.h"
FILES = {**dict.fromkeys(HEADERS, header), "python/plimsoll/_records.py": records, "docs/json.md": page,
         "python/plimsoll/_library.py": library, "src/vgpu/torch_shim/plimsoll_front/abi.py": library}


def missing(path, text):
    """Objects that have no place in a file."""
    if path.endswith("_records.py"):
        named = set(re.findall(r"^# figures: (\w+)$", text, re.M))
        yield from (f"the classes of '{file}'" for file in {o.file for o in OBJECTS.values() if o.python} - named)
    if path.endswith(".md"):
        named = set(re.findall(r"<!-- figures: (\w+) -->", text))
        parts = {f.of for o in OBJECTS.values() for f in o.figures if f.of in OBJECTS and OBJECTS[f.of].file == o.file}
        yield from (f"the table of '{o.name}'" for o in OBJECTS.values()
                    if not o.table and o.name not in parts | named)


def main():
    problems = list(lacking())
    for name, write in FILES.items() if not problems else ():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        problems += [f"{name}: {what} has no place" for what in missing(name, text)]
        new = write(text)
        if new != text and "--update" in sys.argv:
            path.write_text(new, encoding="utf-8")
        elif new != text:
            problems.append(f"{name}: not what the rows say (tools/figures.py --update)")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
