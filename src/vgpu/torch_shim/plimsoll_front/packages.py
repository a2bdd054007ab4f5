"""Packages that bring CUDA code of their own, which a CPU build of PyTorch cannot run.

HOOKS has a row for each: the module in which the package finds its code, and what is done before
and after that is loaded.  Some of the code only writes to tensors that the caller made: it takes no
memory, and a function that does nothing stands for it (IN_PLACE).  For the rest there is an error
that names the way out.
"""

import functools
import logging
import types

CUDA_BUILD = ("Use an environment with a CUDA build ('pip install torch', no GPU is needed): 'plimsoll "
              "run' then runs {} on stub CUDA libraries.")

CUDA_LIBRARIES = ("libcuda", "libc10_cuda", "libtorch_cuda", "libcublas", "libcudnn", "libnvrtc")

# An extension that is compiled when it is first used: the functions of it that neither allocate nor return.
# src: DeepSpeed 0.19, deepspeed/ops/csrc/{adam,lion,adagrad}
IN_PLACE = {
    "fused_adam": ["multi_tensor_adam"],
    "fused_lion": ["multi_tensor_lion"],
    "cpu_adam": ["create_adam", "adam_update", "adam_rollback", "destroy_adam"],
    "cpu_lion": ["create_lion", "lion_update", "destroy_lion"],
    "cpu_adagrad": ["create_adagrad", "adagrad_update", "destroy_adagrad"],
}


def extension(name, sources):
    """What stands for an extension; None: it can be compiled."""
    if name in IN_PLACE:
        nothing = dict.fromkeys(IN_PLACE[name], lambda *args, **kwargs: None)
        return types.SimpleNamespace(__name__=name, **nothing)
    if any(source.endswith((".cu", ".cuh")) for source in sources):
        raise RuntimeError(f"plimsoll: the extension '{name}' is CUDA code, which a CPU build of PyTorch "
                           "cannot run: choose an option of its package that does without it. " +
                           CUDA_BUILD.format("it"))
    return None


class CppExtension:
    """Where PyTorch compiles an extension for the script that asks for it."""

    before = None

    @staticmethod
    def after(module):
        def standing_in(load):
            @functools.wraps(load)
            def run(name, sources=(), *args, **kwargs):
                sources = [sources] if isinstance(sources, str) else sources
                return extension(name, sources) or load(name, sources, *args, **kwargs)
            return run
        module.load = standing_in(module.load)


class DeepSpeed:
    """Before it gets to PyTorch with an extension, it asks for nvcc."""

    before = None

    @staticmethod
    def after(module):
        load = module.OpBuilder.load

        @functools.wraps(load)
        def run(self, *args, **kwargs):
            return extension(self.name, self.sources()) or load(self, *args, **kwargs)
        module.OpBuilder.load = run


class DeepSpeedChecks:
    """ZeRO-3 asks whether rank 0 has the same lists as this one: it is assumed to have them, but what
    it would send is not what this rank has where it receives."""

    before = None

    @staticmethod
    def after(module):
        receive = module.get_lst_from_rank0

        @functools.wraps(receive)
        def run(lst):
            receive(lst)
            return list(lst)
        module.get_lst_from_rank0 = run
        module.assert_lst_len_same_as_other_ranks = lambda lst: None


class Bitsandbytes:
    """Without its library, each of its functions says where it runs."""

    module = "bitsandbytes.cextension"
    message = ("plimsoll: bitsandbytes runs CUDA code of its own, which needs a CUDA build of "
               "PyTorch, and this is a CPU build. " + CUDA_BUILD.format("bitsandbytes") + "\n")

    @classmethod
    def before(cls, spec):
        logging.getLogger(cls.module).disabled = True  # advice on installing CUDA

    @classmethod
    def after(cls, module):
        logging.getLogger(cls.module).disabled = False
        module.lib.formatted_error = cls.message


HOOKS = {
    "bitsandbytes.cextension": Bitsandbytes,
    "deepspeed.ops.op_builder.builder": DeepSpeed,
    "deepspeed.runtime.zero.utils": DeepSpeedChecks,
    "torch.utils.cpp_extension": CppExtension,
}
