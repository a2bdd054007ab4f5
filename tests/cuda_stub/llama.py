#!/usr/bin/env python3
"""The CUDA backend of llama.cpp, as it is shipped, on the stub libraries: a program that is not PyTorch.

    llama.py STUBS

PLIMSOLL_TEST_LLAMA names the folder where this was unpacked; without it the test is skipped (77):

    npm pack @node-llama-cpp/linux-x64-cuda && tar xzf node-llama-cpp-linux-x64-cuda-*.tgz
"""
import ctypes
import os
import pathlib
import sys

GIB = 1 << 30
PAGE = 2 << 20


def load(stubs, package):
    """The stubs first: the names that the backend asks for are theirs then."""
    for name in ("libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"):
        ctypes.CDLL(os.path.join(stubs, name), mode=ctypes.RTLD_GLOBAL)
    found = next(pathlib.Path(package).rglob("libggml-cuda.so"))
    base = ctypes.CDLL(str(found.parent / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    cuda = ctypes.CDLL(str(found))
    for f in (cuda.ggml_backend_cuda_buffer_type, cuda.ggml_backend_init, cuda.ggml_backend_cuda_init, base.ggml_backend_buft_alloc_buffer, base.ggml_backend_buffer_get_base):
        f.restype = ctypes.c_void_p
    base.ggml_backend_buft_alloc_buffer.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    base.ggml_backend_buffer_free.argtypes = base.ggml_backend_free.argtypes = [ctypes.c_void_p]
    return base, cuda


def memory(cuda):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.ggml_backend_cuda_get_device_memory(0, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def expect(what, have, want):
    print(("ok   " if have == want else "FAIL ") + f"{what}: {have}" + ("" if have == want else f", not {want}"), flush=True)
    return have != want


def main(stubs, package):
    os.environ["PLIMSOLL_RUN_GPU"] = "rtx4090"
    base, cuda = load(stubs, package)
    bad = expect("devices", cuda.ggml_backend_cuda_get_device_count(), 1)
    name = ctypes.create_string_buffer(128)
    cuda.ggml_backend_cuda_get_device_description(0, name, 128)
    bad += expect("name", name.value.decode(), "NVIDIA GeForce RTX 4090")
    backend = cuda.ggml_backend_cuda_init(0)
    bad += expect("a backend", bool(backend), True)

    free, total = memory(cuda)
    bad += expect("free is less than total, which is 24 GiB or a little less", 22 * GIB < free < total <= 24 * GIB, True)
    kind = cuda.ggml_backend_cuda_buffer_type(0)
    buffer = base.ggml_backend_buft_alloc_buffer(kind, 3 * GIB + 1)
    bad += expect("what a buffer takes", free - memory(cuda)[0], 3 * GIB + PAGE)
    bad += expect("a buffer that is too large", base.ggml_backend_buft_alloc_buffer(kind, free), None)
    base.ggml_backend_buffer_free(buffer)
    bad += expect("free again", memory(cuda)[0], free)
    base.ggml_backend_free(backend)
    return 1 if bad else 0


if __name__ == "__main__":
    if not os.environ.get("PLIMSOLL_TEST_LLAMA"):
        print("skipped: PLIMSOLL_TEST_LLAMA names no unpacked @node-llama-cpp/linux-x64-cuda")
        sys.exit(77)
    sys.exit(main(sys.argv[1], os.environ["PLIMSOLL_TEST_LLAMA"]))
