#!/usr/bin/env python3
"""ansi_svg.py -- converts coloured terminal output to an SVG image.

    plimsoll estimate resnet50 --color always | tools/ansi_svg.py 'plimsoll estimate resnet50' >docs/img/estimate.svg

Supports what plimsoll prints: SGR codes for bold, dim, the 16 colours and 38;5;N. Block characters are drawn as
rectangles, so that bars have no gaps in any font.
"""
import html
import re
import sys

CELL_W, CELL_H, PAD = 8.4, 18, 16
BACK, FORE, DIM = "#101418", "#d8dee6", "#7d8894"
BASE = ["#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee6",
        "#7d8894", "#ff7b86", "#b5e08c", "#ffd68a", "#7cc4ff", "#dc9bf0", "#6fd3df", "#ffffff"]
LEVELS = {chr(0x2580 + i): i / 8 for i in range(1, 9)}           # lower blocks, an eighth each
LEFTS = {chr(0x2590 - i): i / 8 for i in range(1, 8)}            # left blocks


def colour(n):
    if n < 16:
        return BASE[n]
    if n >= 232:
        v = 8 + 10 * (n - 232)
        return f"#{v:02x}{v:02x}{v:02x}"
    n -= 16
    steps = [0, 95, 135, 175, 215, 255]
    return "#%02x%02x%02x" % (steps[n // 36], steps[n // 6 % 6], steps[n % 6])


def cells(line, state):
    """(character, fill, bold) for each column; state goes on to the next line, as on a terminal."""
    fill, bold = state
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            for c in part:
                yield c, fill, bold
            continue
        codes = [int(x or 0) for x in part[2:-1].split(";")]
        while codes:
            c = codes.pop(0)
            if c == 0:
                fill, bold = FORE, False
            elif c == 1:
                bold = True
            elif c == 2:
                fill = DIM
            elif c == 38 and codes[:1] == [5]:
                fill, codes = colour(codes[1]), codes[2:]
            elif 30 <= c <= 37:
                fill = BASE[c - 30]
            elif 90 <= c <= 97:
                fill = BASE[c - 82]
            state[:] = fill, bold


def draw(row, line, state):
    y = PAD + row * CELL_H
    for col, (c, fill, bold) in enumerate(cells(line, state)):
        x = PAD + col * CELL_W
        if c in LEVELS:
            h = CELL_H * LEVELS[c]
            yield f'<rect x="{x:.1f}" y="{y + CELL_H - h:.1f}" width="{CELL_W + .2:.1f}" height="{h + .2:.1f}" fill="{fill}"/>'
        elif c in LEFTS:
            yield f'<rect x="{x:.1f}" y="{y}" width="{CELL_W * LEFTS[c]:.1f}" height="{CELL_H}" fill="{fill}"/>'
        elif c != " ":
            weight = ' font-weight="bold"' if bold else ""
            yield f'<text x="{x:.1f}" y="{y + 13.5}" fill="{fill}"{weight}>{html.escape(c)}</text>'


def main():
    lines = sys.stdin.read().rstrip("\n").split("\n")
    if len(sys.argv) > 1:
        lines = ["\x1b[32m$\x1b[0m \x1b[1m" + sys.argv[1] + "\x1b[0m"] + lines
    columns = max(sum(1 for _ in cells(l, [FORE, False])) for l in lines)
    width, height = 2 * PAD + columns * CELL_W, 2 * PAD + len(lines) * CELL_H
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
          f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">')
    print(f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>')
    state = [FORE, False]
    for row, line in enumerate(lines):
        print("".join(draw(row, line, state)))
    print("</svg>")


main()
