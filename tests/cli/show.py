#!/usr/bin/env python3
"""show.py PATH... -- what stands there in the JSON on stdin, one line each.

A path is keys and indices with dots between them; * is every one of a list.
"""

import json
import sys


def at(value, path):
    for i, key in enumerate(path):
        if key == "*":
            return [at(item, path[i + 1:]) for item in value]
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


document = json.load(sys.stdin)
for argument in sys.argv[1:]:
    print(json.dumps(at(document, argument.split("."))))
