#!/usr/bin/env python3
"""settings_table.py -- the table of docs/settings.md is what the library says of its settings.

    tools/settings_table.py LIBPLIMSOLL.SO [--update]

Reads the rows of src/settings/settings.def through plim_setting_at.
"""
import ctypes
import pathlib
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/settings.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
KINDS = ["true or false", "integer", "size", "number", "word", "text", "list"]


class Setting(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("key", ctypes.c_char_p), ("kind", ctypes.c_int), ("arg", ctypes.c_char_p),
                ("words", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64),
                ("preset", ctypes.c_char_p), ("group", ctypes.c_char_p), ("commands", ctypes.c_char_p),
                ("doc", ctypes.c_char_p)]


def value(s):
    if s.words:
        return ", ".join(f"`{w}`" for w in s.words.decode().split())
    if KINDS[s.kind] == "integer":
        return f"{s.least} to {s.most}"
    return KINDS[s.kind]


def option(s):
    if not s.arg and s.words:
        return ", ".join(f"`--{w}`" for w in s.words.decode().split())
    return "`--" + s.key.decode().replace("_", "-") + "`"


def table(lib):
    s = Setting(size=ctypes.sizeof(Setting))
    group, i = None, 0
    while lib.plim_setting_at(ctypes.c_uint32(i), ctypes.byref(s)):
        if s.group != group:
            group = s.group
            yield f"\n## {group.decode()}\n\n| setting | option | value | preset | taken by | description |\n"
            yield "| --- | --- | --- | --- | --- | --- |\n"
        preset = f"`{s.preset.decode()}`" if s.preset else ""
        doc = s.doc.decode().replace("|", "; ")
        yield (f"| `{s.key.decode()}` | {option(s)} | {value(s)} | {preset} | {s.commands.decode()} | {doc} |\n")
        i += 1


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.plim_setting_at.restype = ctypes.c_bool
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    new = head + BEGIN + "".join(table(lib)) + "\n" + END + tail
    if "--update" in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    elif new != text:
        print(f"{PAGE}: the table is not what the library says (tools/settings_table.py LIB --update)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
