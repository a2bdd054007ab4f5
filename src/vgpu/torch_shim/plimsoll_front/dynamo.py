"""Leaves torch._dynamo out until something compiles.

Optimizers and Meta kernels import it only to say that it shall leave a function alone, which
takes a second: half the time of a small script.  While it is not loaded nothing is being
compiled, so there is nothing to say.
"""

import functools
import sys


def is_loaded():
    return "torch._dynamo" in sys.modules


def keep_functions(compile_module):
    """torch._compile._disable_dynamo: a function stays as it is until dynamo is there."""
    disable = getattr(compile_module, "_disable_dynamo", None)
    if not disable:
        return  # another version of PyTorch, which may load dynamo as it likes

    @functools.wraps(disable)
    def disable_later(fn=None, recursive=True):
        if fn is None:
            return functools.partial(disable_later, recursive=recursive)
        disabled = disable(fn, recursive)

        @functools.wraps(fn)
        def run(*args, **kwargs):
            return (disabled if is_loaded() else fn)(*args, **kwargs)
        return run
    compile_module._disable_dynamo = disable_later


def keep_steps(optimizer_module):
    """The decorator of each optimizer's step, which sets the gradient mode and breaks graphs."""
    torch = optimizer_module.torch
    use_grad = getattr(optimizer_module, "_use_grad_for_differentiable", None)
    if not use_grad:
        return

    @functools.wraps(use_grad)
    def use_grad_later(step):
        breaking = use_grad(step)

        @functools.wraps(step)
        def run(self, *args, **kwargs):
            if is_loaded():
                return breaking(self, *args, **kwargs)
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return step(self, *args, **kwargs)
        return run
    optimizer_module._use_grad_for_differentiable = use_grad_later
