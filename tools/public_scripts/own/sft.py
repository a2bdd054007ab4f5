"""sft.py -- trl's SFTTrainer on a small Llama, with a tokenizer of characters, packed to 256 tokens."""
import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<pad>", "<eos>", "<unk>", *LETTERS])}, "<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=256, intermediate_size=688, num_hidden_layers=3,
                                     num_attention_heads=4, pad_token_id=0, eos_token_id=1))
text = Dataset.from_dict({"text": ["the load line of a ship is the mark to which she may be loaded. " * 4] * 64})
with tempfile.TemporaryDirectory() as folder:
    SFTTrainer(model=model, processing_class=tokenizer, train_dataset=text, args=SFTConfig(
        output_dir=folder, max_length=256, packing=True, per_device_train_batch_size=4, max_steps=3, bf16=True,
        report_to=[], save_strategy="no", logging_steps=1)).train()
