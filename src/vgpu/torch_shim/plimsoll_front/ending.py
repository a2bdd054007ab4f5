"""How the script ends: by itself, by an error, by a signal or by --limit.

However it does, the report is written once, by Story.finish.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time

from . import HERE
from .abi import End
from .device import flush_output
from .packages import CUDA_BUILD, CUDA_LIBRARIES

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
           if hasattr(signal, name)]
GRACE = 3.0  # seconds that a script has to end after it was told to
ONE_KEY = 0.5  # a signal to the whole group also comes from `plimsoll run`: seconds apart


class Stopped(SystemExit):
    """Raised in the script's own thread."""


def causes(error):
    """An error, and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def describe(kind, error, trace):
    """What ended the script, where, and whose fault it may be."""
    text = str(error).strip()
    first = text.partition("\n")[0]
    where = ""
    while trace is not None:  # the innermost line that is not a package's
        file = trace.tb_frame.f_code.co_filename
        if file[0] != "<" and f"-packages{os.sep}" not in file and not file.startswith(HERE):
            where = f" at {file.removeprefix(os.getcwd() + os.sep)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, ImportError) and any(name in text for name in CUDA_LIBRARIES):
        first += " (compiled for CUDA: remove the package if it is optional. " + \
            CUDA_BUILD.format("it") + ")"
    ours = "plimsoll" in text or isinstance(error, NotImplementedError) and "CUDA" in text
    return (f"the script ended with {kind.__name__}{where}" + (f": {first}" if first else "") +
            (" (a limit of the pretend GPU, see docs/pretend-gpu.md)" if ours else ""))


class Ending:
    def __init__(self, story, shim):
        self.story, self.shim = story, shim
        self.signalled = -GRACE  # when the last signal came
        self.timer, self.interrupted = None, False

    def watch(self, seconds):
        """`seconds`: those of --limit; 0: no limit."""
        self.seconds = seconds
        self.watch_errors()
        self.watch_signals()
        self.watch_exit()
        self.story.run["lifeline"].end = self.end_now
        atexit.register(self.at_exit)
        self.watch_time()

    def watch_time(self):
        if self.seconds:
            self.timer = threading.Timer(self.seconds, self.limit, [self.seconds])
            self.timer.daemon = True
            self.timer.start()

    def begin_anew(self):
        """In a fork that is the first of its line to use the card: from here on it is a process with a report of its own."""
        story = self.story
        story.device.pid, story.main, story.finishing = os.getpid(), threading.get_ident(), threading.RLock()
        story.run["command"].whole = False
        story.run["lifeline"].hold()
        self.watch_time()

    def at_exit(self):
        if os.getpid() != self.story.device.pid:
            return
        self.run_alone()
        self.ignore_signals()
        self.story.finish()
        self.shim.plimsoll_shim_close()
        self.end_threads()
        # The engine's thread may still hold the last graph; if the interpreter were gone
        # when it drops Python's objects in there, the process would abort.
        time.sleep(0.03)

    def end_threads(self):
        """Python waits for the script's threads, but before 3.12 not for one whose join() was
        interrupted: it now finds no card, and is to end before the interpreter does."""
        threading.excepthook = lambda args: None
        others = {t.ident for t in threading.enumerate()
                  if not t.daemon and t is not threading.current_thread()}
        until = time.monotonic() + GRACE
        while others & sys._current_frames().keys() and time.monotonic() < until:
            time.sleep(0.01)

    def run_alone(self):
        """On other cards that need it, if the script ended by itself, or by --limit."""
        story = self.story
        if (os.getpid() != story.device.pid or self.interrupted or story.end == End.ERROR or
                threading.current_thread() is not threading.main_thread()):
            return
        if self.timer:
            self.timer.cancel()
        with story.finishing:  # whoever else ends the process waits
            if not story.done:
                story.run_alone()

    def watch_exit(self):
        """os._exit leaves out what atexit would do."""
        leave = os._exit

        def exit_now(status):
            self.run_alone()
            self.story.finish()
            leave(status)
        os._exit = exit_now

    def watch_errors(self):
        before, story = sys.excepthook, self.story

        def hook(kind, error, trace):
            if any("OutOfMemoryError" in type(e).__name__ for e in causes(error)):
                story.end = End.MEMORY
            elif not story.why:
                story.end = End.ERROR
                story.why = describe(kind, error, trace)
            before(kind, error, trace)
        sys.excepthook = hook

    # -- signals

    def watch_signals(self):
        """Those that the script leaves as they are."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self.on_signal)

    def ours(self, number):
        return signal.getsignal(number) == self.on_signal

    def ignore_signals(self):
        if threading.current_thread() is threading.main_thread():
            for number in filter(self.ours, SIGNALS):
                signal.signal(number, signal.SIG_IGN)

    def on_signal(self, number, frame):
        interrupt = number == signal.SIGINT
        if os.getpid() != self.story.device.pid:  # a forked worker: as if we had never been there
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        before, self.signalled = self.signalled, time.monotonic()
        if self.signalled - before < ONE_KEY:
            return
        if self.limited:
            raise Stopped(0)
        self.end_for(number)
        if interrupt:
            raise KeyboardInterrupt
        # As a shell reports a process that the signal ended.
        threading.Thread(target=self.insist, args=[128 + number], daemon=True).start()
        raise Stopped(128 + number)

    def end_for(self, number):
        self.interrupted = True
        self.end_early(f"ended by {signal.Signals(number).name}")

    def end_early(self, why):
        self.story.end = End.EARLY
        self.story.why = f"{why}: the report covers what ran before"

    def insist(self, status):
        """Ends the script from another thread, if it caught what ends scripts, or if it waits."""
        time.sleep(GRACE)
        self.leave(status)

    def leave(self, status):
        """Ends the script from another thread."""
        self.story.finish()  # first: the script's thread may be about to write, forever
        flush_output()
        os._exit(status)

    def end_now(self, number):
        """For a signal that the script did not end for."""
        if not self.limited:
            self.end_for(number)
        self.leave(128 + number)

    # -- the limit

    limited = False

    def limit(self, seconds):
        """Ends the script in its own thread, where it can be ended."""
        if self.story.done:
            return
        self.limited = True
        self.end_early(f"stopped after {seconds} s (--limit)")
        main = threading.main_thread().ident
        if self.ours(signal.SIGTERM):
            signal.pthread_kill(main, signal.SIGTERM)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main),
                                                       ctypes.py_object(Stopped))
        self.insist(0)
