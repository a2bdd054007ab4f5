#!/usr/bin/env python3
"""python.py -- what the Python package adds to the library: the import, and each call.

    bench/python.py BUILD

Times are of the processor, the least of many, so that other work on the machine counts little; that of an import is of a
fresh interpreter, without the interpreter's own start.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = 30
IMPORT = "import time; a = time.process_time(); import plimsoll; {}; print(time.process_time() - a)"


def least_ms(call):
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def import_ms(then):
    """Of `import plimsoll` and what follows it."""
    times = [float(subprocess.check_output([sys.executable, "-c", IMPORT.format(then)])) for _ in range(RUNS)]
    return 1e3 * min(times)


def library_ms(name, **settings):
    """Of the library alone, for a model and settings that are ready."""
    from plimsoll import _library
    from plimsoll._settings import Settings
    lib, model, s = _library.library(), _library.Handle("plim_model_open", "plim_model_free", name.encode()), \
        Settings("estimate", settings)

    def call():
        result = _library.HANDLE()
        assert not lib.plim_estimate_run(model.pointer, s.handle.pointer, ctypes.byref(result), None)
        lib.plim_estimate_free(result)
    return least_ms(call)


def main():
    os.environ["PLIMSOLL_LIBRARY"] = str(pathlib.Path(sys.argv[1], "libplimsoll.so").resolve())
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    sys.path.insert(0, str(ROOT / "python"))
    import plimsoll
    print(f"Python {sys.version.split()[0]}: import plimsoll {import_ms('pass'):.1f} ms; "
          f"with the first use of a name {import_ms('plimsoll.estimate'):.1f} ms")
    for name in ("resnet50", "llama-3.1-8b"):
        alone = library_ms(name, batch=8)
        call = least_ms(lambda: plimsoll.estimate(name, batch=8))
        figure = least_ms(lambda: plimsoll.estimate(name, batch=8).memory.peak_reserved)
        text = least_ms(lambda: str(plimsoll.estimate(name, batch=8)))
        print(f"estimate {name}: the library {alone:.1f} ms; called from Python {call - alone:+.1f} ms, "
              f"with an attribute {figure - alone:+.1f} ms, printed {text - alone:+.1f} ms")


if __name__ == "__main__":
    main()
