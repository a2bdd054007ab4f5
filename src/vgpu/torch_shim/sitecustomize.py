# sitecustomize.py -- Python imports this when it starts, because `plimsoll run`
# put this folder into PYTHONPATH.  Loads the package plimsoll_front, then the sitecustomize that
# stands behind this one, if there is any.
import importlib
import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _load(name, spec):
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _next():
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        _load("sitecustomize", spec)


if "PLIMSOLL_RUN_LIB" in os.environ:
    _load("plimsoll_front", importlib.util.spec_from_file_location(
        "plimsoll_front", os.path.join(_here, "plimsoll_front", "__init__.py"),
        submodule_search_locations=[os.path.join(_here, "plimsoll_front")]))
    importlib.import_module("plimsoll_front.start").start()
_next()
