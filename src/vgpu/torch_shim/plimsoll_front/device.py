"""The C functions of a pretend GPU, as methods."""

import contextlib
import ctypes
import os
import sys

from .abi import PUT, By, Card, Err, Options, Render, Stat, Style, c_ptr, c_u64


def hold_streams():
    """Opens 0, 1 and 2 where they are closed: the next file would get the number, and what C code prints to it.  For
    Python, and for what it starts, they stay closed."""
    with contextlib.suppress(OSError):
        while True:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd > 2:
                os.close(fd)
                return


# A stream may be None, closed, or without a reader: the script goes on.
NO_STREAM = AttributeError, OSError, ValueError


def flush_output():
    with contextlib.suppress(*NO_STREAM):
        sys.stdout.flush()


def say(text):
    with contextlib.suppress(*NO_STREAM):
        sys.stderr.write(f"plimsoll: {text}\n")
        sys.stderr.flush()


def fail(text, code=3):
    """Ends the script with one line; 3 and 4 as in cli/console.h."""
    flush_output()
    say(text)
    os._exit(code)


def text(z):
    return z.encode() if z is not None else None


class Device:
    """The C functions of a plim_vgpu, as methods."""

    def __init__(self, run, torch_version, index=0):
        self.index = index
        self.lib = ctypes.CDLL(run["lib"], mode=ctypes.RTLD_GLOBAL)
        self.handle = c_ptr()
        self.lib.plim_vgpu_oom_text.argtypes = [c_ptr, c_ptr, ctypes.c_size_t]
        self.lib.plim_vgpu_oom_text.restype = ctypes.c_size_t
        self.lib.plim_vgpu_history.argtypes = [c_ptr, c_u64, ctypes.c_bool]
        self.fraction = 1.0
        self.alloc_conf = run["alloc_conf"] or ""
        self.note = ""
        options = Options(text(run["gpu"]), run["vram"], text(torch_version),
                          text(run["alloc_conf"]), text(run["workspace"]), index,
                          text(os.environ.get("CUBLAS_WORKSPACE_CONFIG")),
                          text(os.environ.get("CUDA_MODULE_LOADING")))
        err = Err()
        st = self.lib.plim_vgpu_open(ctypes.byref(options), ctypes.byref(self.handle),
                                        ctypes.byref(err))
        if st:
            fail(err.msg.decode(), 2)
        self.card = Card()
        self.lib.plim_vgpu_card_get(self.handle, ctypes.byref(self.card))
        simulated = self.card.torch.decode()
        if torch_version.split(".")[:2] != simulated.split("."):
            self.note = (f"PyTorch {torch_version} has no profile: it is simulated as the nearest "
                         f"version that has one, {simulated}")

    def call(self, name, *args):
        err = Err()
        if getattr(self.lib, "plim_vgpu_" + name)(self.handle, *args, ctypes.byref(err)):
            raise RuntimeError(err.msg.decode())

    def failed(self):
        return self.lib.plim_vgpu_oom_text(self.handle, None, 0) > 0

    def mem_info(self):
        free, total = c_u64(), c_u64()
        self.lib.plim_vgpu_mem_info(self.handle, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def rows(self, name, kind):
        """What plim_vgpu_NAME lists; there may be more of it a moment later."""
        count = getattr(self.lib, "plim_vgpu_" + name)
        rows = (kind * (count(self.handle, None, 0) + 64))()
        return rows[:min(count(self.handle, rows, len(rows)), len(rows))]

    def stats(self):
        return self.rows("stats", Stat)

    def used(self):
        """Whether the script asked for memory."""
        return self.failed() or any(s.name == b"allocation" and s.all.allocated
                                    for s in self.stats())


class Machine:
    """The cards of a run.  What is said of the script is said to each of them; remarks and the
    process are the first one's."""

    def __init__(self, run, torch_version):
        self.cards = [Device(run, torch_version, i) for i in range(run["cards"])]
        self.lib, self.note, self.pid = self.cards[0].lib, self.cards[0].note, os.getpid()
        self.seen = lambda: len(self.cards)  # by the script, from the first

    def call(self, name, *args):
        for card in self.cards[:1] if name == "note" else self.cards:
            card.call(name, *args)

    def report(self, run, render):
        """Of the cards that the script saw."""
        pieces = []
        put = PUT(lambda _, p, n: pieces.append(ctypes.string_at(p, n)) or 0)
        cards = self.cards[:max(self.seen(), 1)]
        reports, err = (c_ptr * len(cards))(), Err()
        style = Style(ctypes.sizeof(Style), **{
            k: run[k] for k in ("si", "color", "ascii", "width", "top", "quiet")})
        st = 0
        for i, card in enumerate(cards):
            made = c_ptr()
            card.call("group", getattr(By, (run["by"] or "line").upper()))
            st = st or self.lib.plim_vgpu_report_make(card.handle, ctypes.byref(made),
                                                      ctypes.byref(err))
            reports[i] = made.value
        if not st:
            st = self.lib.plim_vgpu_machine_print(
                reports, len(reports), render, ctypes.byref(style), put, None, ctypes.byref(err))
        for made in reports:
            self.lib.plim_vgpu_report_free(c_ptr(made))
        return f"plimsoll: {err.msg.decode()}\n".encode() if st else b"".join(pieces)
