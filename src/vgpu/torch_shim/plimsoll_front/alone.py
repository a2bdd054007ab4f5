"""Runs the script again, by itself, on cards that would have chosen other kernels.

The tape of the run says nothing about them.  The process is started again as it was when
Python began, on one such card at a time; its report's verdict becomes that card's row.
"""

import array
import contextlib
import ctypes
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import termios

from .abi import Fits, Verdict
from .device import flush_output, say, text

FITS = {"yes": Fits.YES, "no": Fits.NO, "maybe": Fits.MAYBE}


def waits_on_stdin():
    """Whether there is something to read, which a second process could not read again."""
    try:
        mode = os.fstat(0)
        if stat.S_ISCHR(mode.st_mode):  # a terminal, /dev/null
            return False
        if stat.S_ISREG(mode.st_mode):
            return mode.st_size > 0
        count = array.array("i", [0])
        fcntl.ioctl(0, termios.FIONREAD, count)
        return count[0] > 0
    except OSError:  # closed
        return False


class Command:
    """The process as it was started; made before the script can change anything."""

    def __init__(self):
        # A child of the command may depend on the command: it cannot be started by itself.
        self.whole = os.getppid() == int(os.environ.get("PLIMSOLL_RUN_PARENT") or 0)
        self.environ, self.folder = dict(os.environ), os.getcwd()
        self.words = [sys.executable, *getattr(sys, "orig_argv", ())[1:]]
        self.stdin = waits_on_stdin()

    def start(self, card, folder):
        environ = {**self.environ, "PLIMSOLL_RUN_GPU": card, "PLIMSOLL_RUN_REPORT": folder}
        environ.pop("PLIMSOLL_RUN_SAVE", None)
        return subprocess.Popen(self.words, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Alone:
    def __init__(self, run, card):
        self.run, self.command, self.card = run, run["command"], card
        self.process, self.stopped = None, False

    def run_all(self):
        cards = self.card.rows("other_cards", ctypes.c_char_p)
        if not cards or not self.command.whole or len(self.command.words) < 2:
            return
        if self.command.stdin:
            self.card.call("note", b"", b"the script was not run again: it has standard input, "
                                        b"which a second run could not read")
            return
        with self.signals():
            for card in cards:
                if not self.stopped:
                    self.run_on(card.decode())

    def run_on(self, card):
        flush_output()
        say(f"attention or a convolution takes another kernel on '{card}': running the script again on that card")
        try:
            with tempfile.TemporaryDirectory(dir=self.run["report"]) as folder:
                self.process = self.command.start(card, folder)
                if self.stopped:  # before there was a process to end
                    self.process.terminate()
                self.process.wait()
                with open(os.path.join(folder, f"{self.process.pid}+.json"), encoding="utf-8") as f:
                    row = json.load(f)["cards"][0]
        except (OSError, ValueError):
            return  # it wrote no report: the card's row stays unknown
        if not self.stopped:
            self.card.call("alone", ctypes.byref(verdict(row)))

    @contextlib.contextmanager
    def signals(self):
        """One ends the second run, not the process that has a report to write."""
        before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                                                   signal.SIGQUIT)}
        before = {n: h for n, h in before.items() if h not in (None, signal.SIG_IGN)}
        for number in before:
            signal.signal(number, self.stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self, number, frame):
        self.stopped = True
        if self.process:
            self.process.terminate()


def verdict(row):
    """A row of a report's "cards"."""
    return Verdict(text(row["gpu"]), row["gpu_bytes"], FITS.get(row["fits"], Fits.UNKNOWN),
                   row["peak_allocated"] or 0, row["peak_reserved"] or 0, row["device_low"] or 0,
                   row["device_high"] or 0, text(row["oom_line"]), text(row["oom_text"]),
                   row["growth_step"] or 0, row["peak_allocated"] is not None)
