#!/usr/bin/env python3
"""check_contact.py -- SECURITY.md and README.md name one place to report to.

    tools/check_contact.py [--release | --self-test]

Each has one line `Report to: PLACE`, a mail address, an https URL or, until a release fills it in, <SECURITY-CONTACT>, which
--release refuses. Exit status 1: something is wrong.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ("SECURITY.md", "README.md")
PLACEHOLDER = "<SECURITY-CONTACT>"
PLACE = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+|https://[\w-]+(\.[\w-]+)+(/\S*)?")
LINE = re.compile(r"^\W*Report to: (\S+)$", re.M)


def problems(texts, release):
    """What is wrong with the files; `texts` has their contents by name."""
    places = {name: LINE.findall(text) for name, text in texts.items()}
    bad = [f"{name}: {len(found)} lines 'Report to: ...', and not one" for name, found in places.items() if len(found) != 1]
    if bad:
        return bad
    first, *rest = ((name, found[0]) for name, found in places.items())
    bad = [f"{name} says '{place}', and {first[0]} '{first[1]}'" for name, place in rest if place != first[1]]
    if first[1] == PLACEHOLDER:
        return bad + ([f"'{PLACEHOLDER}' is not filled in: a release names where to report"] if release else [])
    return bad + ([] if PLACE.fullmatch(first[1]) else [f"{first[0]}: '{first[1]}' is neither a mail address nor an https URL"])


def self_test():
    rows = (  # what each file says, and whether it is right before a release and for one
        (PLACEHOLDER, PLACEHOLDER, True, False),
        ("security@example.org", "security@example.org", True, True),
        ("https://example.org/plimsoll/security", "https://example.org/plimsoll/security", True, True),
        ("security@example.org", PLACEHOLDER, False, False),
        ("security@example.org", "other@example.org", False, False),
        ("http://example.org", "http://example.org", False, False),
        ("somebody", "somebody", False, False),
        ("a@example.org\nReport to: a@example.org", "a@example.org", False, False),
    )
    wrong = []
    for security, readme, *right in rows:
        texts = {"SECURITY.md": f"# Security\n\nReport to: {security}\n", "README.md": f"Text.\nReport to: {readme}\n"}
        wrong += [(security, readme, release) for release in (False, True) if bool(problems(texts, release)) == right[release]]
    wrong += [] if problems({"SECURITY.md": "nothing", "README.md": f"Report to: {PLACEHOLDER}\n"}, False) else ["no line"]
    return [f"not so: {x}" for x in wrong]


def main():
    how = sys.argv[1:]
    if how == ["--self-test"]:
        bad = self_test()
    elif how in ([], ["--release"]):
        bad = problems({name: (ROOT / name).read_text(encoding="utf-8") for name in FILES}, bool(how))
    else:
        sys.exit(__doc__)
    print(*bad, sep="\n", end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
