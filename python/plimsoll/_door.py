"""_door.py -- the door of last resort: a model that plimsoll does not know is built and exported by its own library.

As a program, which `plimsoll` starts with a Python that has the library (cli/door.h):

    PYTHON _door.py [--infer] [--batch N] [--seq N] [--input [NAME=]SHAPE]... [--attention HOW] [--no-cache]
                    [--component PART] [--trust-remote-code] [--verbose] MODEL

MODEL is a config.json, a model_index.json, a folder with one of them, or a name such as timm:convnext_base.  The graph is
written to stdout, as the library reads it.  Exit status 3: it could not be had, for the reason that is the last line of
stderr; 5: for one that its library raised, of which that is the first line.  --verbose shows all that happens on the way,
and writes no graph.

In Python, graph_of(asked, config) is the same for plimsoll.estimate(config).

An export takes seconds and is kept in the user's cache, plimsoll/exports, under a key of all that decides it: the files
that are read, what is asked for, the Python, the releases of its libraries, and these files.  Its name has the sizes
that it holds for.  Nothing is loaded from the hub, and no code that comes with a model is run unless it is trusted.
"""

from __future__ import annotations

import os
import re
import sys

if __name__ == "__main__":  # as a file, of a Python that need not know the package
    _here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p and os.path.abspath(p) != _here]  # nor is the working folder in it

import hashlib  # noqa: E402
import json  # noqa: E402

TYPE_CHECKING = False  # as in _place.py: a graph that is in the cache is there in milliseconds
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

    from ._build import Asked

    Limits = Dict[str, Tuple[int, Optional[int]]]

ROOM = 1 << 30  # bytes of the cache: what was used least recently goes first
NAMES = ("timm", "torchvision")
FILES = ("model_index.json", "config.json")  # that stand for a folder
BESIDE = ("preprocessor_config.json",)


class Failure(Exception):
    """Why there is no graph, in one line."""

    status = 3


class Raised(Failure):
    """The library raised an error, of which this is the first line."""

    status = 5


# ---- what decides an export ----------------------------------------------------------------------------------


def release(name: str) -> Optional[str]:
    """The release of a package that would be imported, without importing it; None: there is none."""
    for folder in sys.path:
        package = os.path.join(folder, name)
        if not os.path.isfile(os.path.join(package, "__init__.py")):
            continue
        version = re.compile(re.escape(name) + r"-(.+)\.(?:dist|egg)-info", re.IGNORECASE)
        found = [m.group(1) for m in map(version.fullmatch, sorted(os.listdir(folder))) if m]
        return found[0] if found else f"of {os.stat(os.path.join(package, '__init__.py')).st_mtime_ns}"
    from importlib.util import find_spec  # it may come in another way than by a folder

    spec = find_spec(name)
    return f"of {os.stat(spec.origin).st_mtime_ns}" if spec and spec.origin and os.path.isfile(spec.origin) else None


def library_of(config: Any) -> str:
    """The name of the library that builds it; whether it is one that is known, _key says."""
    if isinstance(config, str):
        return config.partition(":")[0]
    return "diffusers" if "_class_name" in config else "transformers"


def _read_beside(folder: Optional[str], config: Any, trust: bool) -> Iterator[bytes]:
    """What an export reads of the folder, besides the config itself."""
    if not folder:
        return
    parts = [k for k, v in config.items() if isinstance(v, (list, tuple))] if "_class_name" in config else []
    paths = [os.path.join(folder, *place) for place in
             ((name,) for name in BESIDE)] + [os.path.join(folder, str(part), "config.json") for part in parts]
    if trust:
        paths += sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".py"))
    for path in paths:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                yield path.encode("utf-8", "surrogateescape") + file.read()


def _key(config: Any, folder: Optional[str], asked: Dict[str, Any]) -> str:
    library = library_of(config)
    if isinstance(config, str) and library not in NAMES:
        raise Failure(f"'{config}' names no library: write timm:NAME or torchvision:NAME")
    missing = [name for name in ("torch", library) if release(name) is None]
    if missing:
        raise Failure(f"it has no {' and no '.join(missing)} ('{sys.executable} -m pip install {' '.join(missing)}')")
    digest = hashlib.sha256()
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("_build.py", "_door.py", "_export.py", "_open.py", "_pt2.py"):
        with open(os.path.join(here, name), "rb") as file:
            digest.update(file.read())
    what = [config, {k: v for k, v in asked.items() if k not in ("batch", "seq")}, sys.executable, sys.version,
            [(n, release(n)) for n in ("torch", "transformers", "diffusers", *NAMES)]]
    digest.update(json.dumps(what, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    for part in _read_beside(folder, config, asked["trust"]) if not isinstance(config, str) else ():
        digest.update(part)
    return digest.hexdigest()[:40]


# ---- the cache -------------------------------------------------------------------------------------------------


def _folder() -> Optional[str]:
    """Of this user alone; None: there is none that is to be trusted."""
    bases = [os.environ.get("XDG_CACHE_HOME", ""), os.path.join(os.environ.get("HOME", ""), ".cache"),
             os.environ.get("LOCALAPPDATA", "")]
    base = next(filter(os.path.isabs, bases), None)
    if base is None:
        return None
    path = os.path.join(base, "plimsoll", "exports")
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        for place in (path, os.path.dirname(path)):
            found = os.lstat(place)
            if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022 or
                                           os.path.islink(place)):
                return None
    except OSError:
        return None
    return path


# key, batches, lengths, and the length of a run that names none
_ENTRY = re.compile(r"([0-9a-f]{40})\.b(\d+)-(\d*)\.s(\d+)-(\d*)\.d(\d+)\.json")


def _holds(low: str, high: str, size: int) -> bool:
    """As the reader of an export does: a lower bound of 2 comes from tracing.  0: no such size is asked for."""
    return not size or ((int(low) <= 2 or size >= int(low)) and (not high or size <= int(high)))


def _find(folder: Optional[str], key: str, batch: int, seq: Optional[int]) -> Optional[bytes]:
    for name in sorted(os.listdir(folder)) if folder else ():
        entry = _ENTRY.fullmatch(name)
        if not folder or not entry or entry.group(1) != key or not _holds(entry.group(2), entry.group(3), batch) or \
                not _holds(entry.group(4), entry.group(5), seq or int(entry.group(6))):
            continue
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
            os.utime(path)
        except OSError:
            continue
        if data.endswith(b"}"):
            return data
    return None


def _keep(folder: Optional[str], key: str, limits: Limits, data: bytes) -> None:
    if not folder:
        return
    (b0, b1), (s0, s1) = limits.get("batch", (0, None)), limits.get("seq", (0, None))
    path = os.path.join(folder, f"{key}.b{b0}-{b1 or ''}.s{s0}-{s1 or ''}.d{limits['default'][0]}.json")
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
        _tidy(folder)
    except OSError:  # a full disk: then it is made again
        try:
            os.unlink(temporary)
        except OSError:
            pass


def _tidy(folder: str) -> None:
    found: List[Tuple[float, int, str]] = []
    for entry in os.scandir(folder):
        status = entry.stat(follow_symlinks=False)
        found.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= ROOM:
            break
        os.unlink(path)
        total -= size


def _module(name: str) -> Any:
    """A module of the package that lies around this file."""
    from importlib import import_module, util

    if __name__ != "__main__":
        return import_module(f".{name}", __package__)
    if "plimsoll" not in sys.modules:
        spec = util.spec_from_file_location("plimsoll", os.path.join(_here, "__init__.py"), submodule_search_locations=[_here])
        assert spec and spec.loader
        sys.modules["plimsoll"] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["plimsoll"])
    return import_module(f"plimsoll.{name}")


# ---- a graph ------------------------------------------------------------------------------------------------------


def graph_of(config: Any, folder: Optional[str] = None, *, train: bool = True, batch: Optional[int] = None,
             seq: Optional[int] = None, inputs: Optional[Dict[str, Tuple[int, ...]]] = None,
             attention: Optional[str] = None, cache: bool = True, component: Optional[str] = None, trust: bool = False,
             keep: bool = True) -> bytes:
    """The graph of a model, from the cache or exported now.  `config` is what the file holds, or a name."""
    given = next(iter((inputs or {}).values()), (0,))[0]
    batch = batch or given or 1
    asked = {"train": train, "batch": batch, "seq": seq, "inputs": inputs or {}, "attention": attention, "cache": cache,
             "component": component, "trust": trust}
    key = _key(config, folder, asked)
    place = _folder() if keep else None
    found = _find(place, key, batch, seq)
    if found is None:
        found, limits = _export(config, folder, asked)
        _keep(place, key, limits, found)
    return found


def _export(config: Any, folder: Optional[str], asked: Dict[str, Any]) -> Tuple[bytes, Limits]:
    build, errors = _module("_build"), _module("_errors")
    try:
        return _written(build.Asked(config=config, folder=folder, **asked))
    except build.Refusal as why:
        raise Failure(str(why)) from why
    except errors.Error as why:
        raise Raised(str(why).partition("; `plimsoll run")[0]) from why
    except Exception as why:  # whatever a library raises about a configuration
        line = next((text.strip() for text in str(why).splitlines() if text.strip()), "")
        raise Raised(": ".join(filter(None, (type(why).__name__, line[:300])))) from why


def _written(asked: Asked) -> Tuple[bytes, Limits]:
    """With the model's own loss, if it has one that can be exported."""
    import torch

    build, export_module = _module("_build"), _module("_export").export_module
    built = build.build(asked)
    notes = [f"Exported by {build.source_of(built)} with torch {torch.__version__.partition('+')[0]} in {sys.executable}.",
             *built.notes]
    how: Any = {"batch": asked.batch, "sequences": build.SEQUENCES, "notes": notes}
    try:
        exported = export_module(built.module, (), built.inputs, **how)
    except _module("_errors").Error:
        if built.plain is None:
            raise
        notes.append("The model's own loss could not be exported, and is not counted.")
        exported = export_module(built.module, (), built.plain, **how)
    head = build.head_of(built, exported, asked)
    limits: Limits = {"default": (built.seq or 0, None), **exported.limits}
    return json.dumps(head).encode()[:-1] + b"," + exported.data[1:], limits


# ---- as a program ----------------------------------------------------------------------------------------------------


def open_config(model: str) -> Tuple[Any, Optional[str]]:
    """What names a model, as (what its file holds, its folder)."""
    if model.partition(":")[0] in NAMES and not os.path.exists(model):
        return model, None
    path = model
    if os.path.isdir(model):
        path = next(filter(os.path.isfile, (os.path.join(model, name) for name in FILES)), "")
        if not path:
            raise Failure(f"'{model}' holds no {' and no '.join(FILES)}")
    try:
        with open(path, "rb") as file:
            config = json.loads(file.read())
    except (OSError, ValueError) as why:
        raise Failure(f"'{path}' cannot be read: {why}") from None
    if not isinstance(config, dict):
        raise Failure(f"'{path}' is no object of JSON")
    return config, os.path.dirname(os.path.abspath(path))


def shapes(items: Sequence[str]) -> Dict[str, Tuple[int, ...]]:
    found = {}
    for item in items:
        name, equals, shape = item.rpartition("=")
        try:
            found[name if equals else ""] = tuple(int(n) for n in re.split("[x,]", shape))
        except ValueError:
            raise Failure(f"'{item}' is not a shape") from None
    return found


def main(words: Sequence[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--infer", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--attention")
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--component")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("model")
    given = parser.parse_args(words)
    if not given.trust_remote_code:
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", DIFFUSERS_OFFLINE="1")
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no graph
    try:
        config, folder = open_config(given.model)
        data = graph_of(config, folder, train=not given.infer, batch=given.batch, seq=given.seq,
                        inputs=shapes(given.input), attention=given.attention, cache=not given.no_cache,
                        component=given.component, trust=given.trust_remote_code, keep=not given.verbose)
    except Failure as why:
        if given.verbose:
            raise
        sys.stderr.write(f"\n{' '.join(str(why).split())}\n")
        return why.status
    if not given.verbose:
        with os.fdopen(out, "wb") as file:
            file.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
