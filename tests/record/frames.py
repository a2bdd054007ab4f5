"""A Python program that allocates through the driver, with Python's lock (PyDLL) and without it (CDLL)."""
import ctypes
import sys
import threading

driver = (ctypes.PyDLL if sys.argv[1] == "held" else ctypes.CDLL)("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxPushCurrent_v2(context)


def take(mib):
    return driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))  # line 14


def deeper(mib):
    take(mib)
    driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20))  # line 19


class Busy(threading.Thread):
    """Holds the lock most of the time: a recorder that waited for it would be slow."""
    stop = False

    def run(self):
        while not self.stop:
            sum(range(1000))


busy = Busy()
busy.start()
deeper(6)
for _ in range(500):
    take(2)
Busy.stop = True
busy.join()
