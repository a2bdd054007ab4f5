/* topics.c -- see topics.h */
#include "topics.h"

#include <string.h>

/* clang-format off */
static const plim_topic topics[] = {
{"quickstart", "the first steps: a model, a card, a batch",
 "Will it fit?  Name a model, a batch and a card:\n"
 "  plimsoll estimate resnet50 --batch 64 --optimizer adamw --gpu rtx4090\n"
 "\n"
 "Which batch is the largest on each card?\n"
 "  plimsoll fit resnet50 --optimizer adamw --gpu t4,rtx4090,h100\n"
 "\n"
 "A language model, by its short name or its id on the Hugging Face hub:\n"
 "  plimsoll estimate llama-3.1-8b --dtype bf16 --seq 2048 --lora r=16 --gpu h100\n"
 "Of one that is not built in the config.json is fetched (not with --offline).\n"
 "\n"
 "To serve it instead of training it:\n"
 "  plimsoll serve llama-3.1-8b --gpu rtx4090 --context 16384\n"
 "\n"
 "Your own model: save it with torch.export.save, an ONNX exporter or\n"
 "save_pretrained (its config.json is enough), and name the file or the folder:\n"
 "  plimsoll estimate net.pt2 --batch 64 --optimizer adamw\n"
 "\n"
 "Your own script, on a simulated card; it needs a CPU build of PyTorch:\n"
 "  plimsoll run --gpu rtx4090 --steps 3 -- python train.py\n"
 "\n"
 "'plimsoll models' and 'plimsoll gpus' list the names; 'plimsoll help memory'\n"
 "explains the figures.\n"},
{"memory", "what the figures of an answer mean",
 "An answer has four peaks, each at a moment of its own:\n"
 "  requested   bytes that tensors ask for\n"
 "  allocated   the same, rounded up to the allocator's blocks:\n"
 "              torch.cuda.max_memory_allocated()\n"
 "  reserved    what the allocator holds from CUDA, with its cache of free blocks:\n"
 "              torch.cuda.max_memory_reserved()\n"
 "  device      reserved plus the CUDA context: what nvidia-smi shows\n"
 "\n"
 "With a card there is a fifth:\n"
 "  needed      the smallest capacity on which the run does not run out of memory:\n"
 "              a full card makes the allocator give back its cache\n"
 "\n"
 "A range goes from the lower to the upper bound of what is not exactly known:\n"
 "workspaces of libraries and the CUDA context.\n"
 "  fits            needed is within the card even at its upper bound\n"
 "  may not fit     only at its lower bound\n"
 "  usually         the figure at the usual sizes, between the bounds\n"
 "\n"
 "The categories of what is live at the peak:\n"
 "  parameter, buffer, gradient, optimizer_state   the same for every batch\n"
 "  input, output                                  of the model, and the loss\n"
 "  activation                                     saved for the backward pass\n"
 "  temporary                                      for the duration of an op\n"
 "  workspace                                      scratch memory of a library\n"
 "\n"
 "More: docs/commands/estimate.md, docs/when-not-to-trust-it.md\n"},
{"nvidia-smi", "why nvidia-smi shows more than PyTorch",
 "nvidia-smi shows more than torch.cuda.max_memory_allocated(), because it counts\n"
 "  the CUDA context        some hundred MiB for each process\n"
 "  the allocator's cache   blocks that PyTorch keeps and no tensor uses\n"
 "  libraries               what they allocate by themselves, such as NCCL\n"
 "  other processes         all that use the card\n"
 "\n"
 "Compare like with like:\n"
 "  nvidia-smi, of one process            device\n"
 "  torch.cuda.max_memory_reserved()      reserved\n"
 "  torch.cuda.max_memory_allocated()     allocated\n"
 "\n"
 "A full card in nvidia-smi is not a sign that a run needs all of it: the cache\n"
 "grows while there is room, and goes back to CUDA when there is none.\n"
 "\n"
 "  plimsoll top                          who has the memory of each card, now\n"
 "  plimsoll record -- COMMAND            which library of a program asked for it\n"
 "  plimsoll fit MODEL --vram 22GiB       with the memory that is really free\n"
 "\n"
 "More: docs/when-not-to-trust-it.md, docs/out-of-memory.md\n"},
};
/* clang-format on */

const plim_topic *plim_topic_at(size_t i)
{
    return i < sizeof topics / sizeof *topics ? &topics[i] : NULL;
}

const plim_topic *plim_topic_find(const char *name)
{
    for (size_t i = 0; plim_topic_at(i); i++)
        if (!strcmp(plim_topic_at(i)->name, name))
            return plim_topic_at(i);
    return NULL;
}
