"""The scripts: one row each, and the commit of each repository."""
import typing

COMMITS = {
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "karpathy/minGPT": "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "chanwutk/vision_references": "aea0f07fa3a7afb81417d4ee84ac0ab6d4b156d3",  # torchvision's references alone
    "Lightning-AI/pytorch-lightning": "7f0c3436cd3f6ad3753125672024fc415cbcb414",
    "huggingface/diffusers": "58eb52c0803ea9af3abec60841c2a093bdf1f951",
    "huggingface/pytorch-image-models": "aa4b5850c1543fa488abf260f18390eda46cf85d",
    "vwxyzjn/cleanrl": "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
}


class Script(typing.NamedTuple):
    name: str
    repository: str | None  # None: a file of this project
    file: str
    args: str = ""
    data: str = ""  # functions of data.py
    packages: str = "torch"  # modules that it imports
    steps: int | None = 3  # optimizer steps; None: to its end
    options: str = ""  # of plimsoll run
    folder: str | None = None  # in the repository, to run in (default: the file's)
    routes: str = "cpu stub"
    expected: str = "fits"
    differs: str = ""  # why the two routes do not request the same bytes

    def title(self):
        """The name, and what stands in the command line."""
        return f"{self.name}: `{' '.join([self.file.split('/')[-1], self.args]).strip()}`"


NANO = "--dataset=shakespeare_char --compile=False --gradient_accumulation_steps=1 --eval_iters=2 "
COCO = "--data-path coco -j 0 --output-dir out -b 2 --print-freq 1 --model "
LIGHTNING = "Lightning-AI/pytorch-lightning"
EX, VISION = "pytorch/examples", "chanwutk/vision_references"

SCRIPTS = [
    # ---- language models
    Script("nanoGPT, small", "karpathy/nanoGPT", "train.py",
           "config/train_shakespeare_char.py " + NANO + "--batch_size=64", "nanogpt", "torch numpy"),
    Script("minGPT, adder", "karpathy/minGPT", "projects/adder/adder.py", "--trainer.num_workers=0",
           folder=".", routes="cpu"),
    Script("Trainer on GPT-2", None, "tests/cuda_stub/routes/trainer_gpt2.py", packages="transformers accelerate",
           steps=None),
    *(Script(f"Trainer on {name}", None, "tools/public_scripts/own/trainer_family.py", family,
             packages="transformers accelerate", steps=None, routes="cpu")
      for name, family in (("Llama", "llama"), ("BERT", "bert"), ("T5", "t5"))),
    Script("trl, SFTTrainer on Llama", None, "tools/public_scripts/own/sft.py", packages="trl datasets tokenizers",
           steps=None, routes="cpu"),
    Script("peft, LoRA", None, "tests/cuda_stub/routes/lora_llama.py", packages="transformers peft", steps=None),
    Script("peft, LoRA, checkpoints", None, "tests/cuda_stub/routes/lora_llama.py", "checkpoint",
           packages="transformers peft", steps=None),

    # ---- a rank of several
    *(Script(f"{name}, rank 3 of 4", EX, f"distributed/{file}", options="--gpu 4xa100-80g --world 4 --rank 3",
             routes="cpu")
      for name, file in (("DDP", "ddp/example.py"), ("FSDP2", "FSDP2/example.py"),
                         ("tensor parallel", "tensor_parallelism/tensor_parallel_example.py"),
                         ("sequence parallel", "tensor_parallelism/sequence_parallel_example.py"),
                         ("FSDP and tensor parallel", "tensor_parallelism/fsdp_tp_example.py"))),

    # ---- frameworks over PyTorch
    Script("Lightning, bug report", LIGHTNING, "examples/pytorch/bug_report/bug_report_model.py", packages="lightning",
           steps=None, routes="cpu"),
    Script("Lightning, Llama 3 in two dimensions, rank 3 of 4", LIGHTNING, "examples/pytorch/tensor_parallel/train.py",
           packages="lightning", options="--gpu 4xa100-80g --world 4 --rank 3", routes="cpu"),
    Script("PyG, graph convolution", None, "tools/public_scripts/own/pyg.py", packages="torch_geometric", steps=None,
           routes="cpu"),
    Script("diffusers, train_unconditional", "huggingface/diffusers",
           "examples/unconditional_image_generation/train_unconditional.py",
           "--train_data_dir pictures --resolution 64 --train_batch_size 4 --num_epochs 1 --output_dir out "
           "--dataloader_num_workers 0 --save_images_epochs 100 --save_model_epochs 100", "pictures",
           "diffusers datasets accelerate torchvision", routes="cpu"),
    Script("timm, ViT-S", "huggingface/pytorch-image-models", "train.py",
           "pictures --dataset folder --model vit_small_patch16_224 --batch-size 16 --num-classes 10 --epochs 1 "
           "--workers 1 --amp --train-split train --val-split train", "pictures", "timm torchvision", folder=".",
           routes="cpu"),

    # ---- pictures
    Script("imagenet, resnet18", EX, "imagenet/main.py", "--dummy -a resnet18 -b 32 -j 0 --epochs 1", "",
           "torch torchvision", options="--workspace off"),  # cuDNN's workspace is an estimate
    Script("mnist", EX, "mnist/main.py", "--epochs 1", "mnist", "torch torchvision", None, routes="cpu"),
    Script("mnist_rnn", EX, "mnist_rnn/main.py", "--accel --epochs 1", "mnist", "torch torchvision", None,
           routes="cpu"),
    Script("vae", EX, "vae/main.py", "--epochs 1", "mnist", "torch torchvision", routes="cpu"),
    Script("dcgan", EX, "dcgan/main.py", "--dataset fake --accel --niter 1 --workers 0", "", "torch torchvision", 4,
           routes="cpu"),
    Script("torchvision, ResNet-50", VISION, "references/classification/train.py",
           "--data-path pictures --model resnet50 -b 16 -j 0 --epochs 1 --amp --output-dir out", "pictures",
           "torch torchvision", routes="cpu"),
    *(Script(f"torchvision, {name}", VISION, "references/detection/train.py", COCO + model + more, "coco",
             "torch torchvision pycocotools", None, routes="cpu")
      for name, model, more in (
          ("Faster R-CNN", "fasterrcnn_resnet50_fpn", " --epochs 1"),
          ("Mask R-CNN", "maskrcnn_resnet50_fpn", " --epochs 1"),
          ("RetinaNet", "retinanet_resnet50_fpn", " --epochs 1"),
          ("SSD", "ssdlite320_mobilenet_v3_large", " --epochs 1 --data-augmentation ssdlite"))),

    # ---- reinforcement learning
    Script("cleanrl, PPO", "vwxyzjn/cleanrl", "cleanrl/ppo.py", "--total-timesteps 1024", "",
           "torch gymnasium tyro tensorboard", None, routes="cpu"),
]
