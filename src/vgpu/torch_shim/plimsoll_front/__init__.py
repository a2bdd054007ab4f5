"""plimsoll_front -- makes torch.cuda answer as a card that does not exist.

Loaded by sitecustomize.py in a Python that `plimsoll run` started.  When the script
imports torch, this package

 1. builds the shim against that torch (once; the result is kept) and loads it before
    torch looks for a GPU: build.py, cache.py;
 2. gives torch._C the functions that a CUDA build has, so that torch.cuda itself
    stays PyTorch's own code: torch_c.py, comm.py, snapshot.py;
 3. replaces the few Python functions of torch that a CPU build refuses: patches.py;
 4. gives torch.distributed a process group that moves nothing: world.py, ../dist;
 5. follows modules, backward passes and optimizers, to say what memory is for, and
    writes the report when the script ends: story.py, holders.py, ending.py;
 6. ends the script when `plimsoll run` is told to end: lifeline.py;
 7. runs the script again on other cards where its tape says nothing: alone.py.

device.py has the C functions of libplimsoll, with their structs and numbers in abi.py;
start.py puts the parts together.  Settings come in variables PLIMSOLL_RUN_*, from
cli/cmd_run.c.
"""

import os

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # share/plimsoll
