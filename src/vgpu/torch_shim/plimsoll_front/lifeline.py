"""The processes' side of cli/lifeline.h: a file by which `plimsoll run` and they know of one another."""

import _thread
import fcntl
import os
import signal
import time

AT_RUN, AT_PROCESSES = 0, 1  # the bytes that are locked
leave = os._exit  # before ending.py replaces it


class Lifeline:
    def __init__(self, path):
        self.path = path or ""
        self.end = self.end_at_once  # what ends this process for a signal

    def hold(self):
        """From here on this process ends when `plimsoll run` says so, or when it is killed."""
        try:
            self.file = os.open(self.path, os.O_RDONLY)
            fcntl.lockf(self.file, fcntl.LOCK_SH, 1, AT_PROCESSES)
        except OSError:
            return  # the run is over, or its file system has no locks
        _thread.start_new_thread(self.wait, ())  # one that scripts do not see among theirs

    def wait(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the script's
        try:
            fcntl.lockf(self.file, fcntl.LOCK_SH, 1, AT_RUN)
            number = int(os.pread(self.file, 16, 0) or -1)
        except OSError:
            return  # the script has closed it
        if number < 0:  # `plimsoll run` was killed: nobody reads a report
            leave(128 + signal.SIGKILL)
        elif number:
            self.end(number)

    def end_at_once(self, number):
        """While there is nothing to report."""
        os.kill(os.getpid(), number)  # what is being built is then removed
        time.sleep(5)  # enough on a busy machine
        leave(128 + number)
