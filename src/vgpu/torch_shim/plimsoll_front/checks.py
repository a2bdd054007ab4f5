"""What a check is taken for with a CUDA build on stub libraries, where a read gives 0.

As with a CPU build (shim/guesses.h), a check finds nothing wrong: `all` and `equal` hold.
"""

import functools


def checks_hold(torch):
    def remembering(f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            result = f(*args, **kwargs)
            if not torch.compiler.is_compiling() and result.is_cuda and result.numel() == 1:
                result._plimsoll_holds = True
            return result
        return run

    def reading(f):
        @functools.wraps(f)
        def run(self):
            value = f(self)
            return True if getattr(self, "_plimsoll_holds", False) else value
        return run

    def comparing(f):
        @functools.wraps(f)
        def run(a, b):
            return f(a, b) or a.is_cuda and a.shape == b.shape and a.dtype == b.dtype
        return run

    for owner in (torch, torch.Tensor):
        owner.all = remembering(owner.all)
        owner.equal = comparing(owner.equal)
    for name in ("__bool__", "item"):
        setattr(torch.Tensor, name, reading(getattr(torch.Tensor, name)))
