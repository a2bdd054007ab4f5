"""src: flash-attention 2.8 flash_attn/bert_padding.py pad_input, IndexPutFirstAxis"""
import torch


class PutRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, places, rows):
        ctx.save_for_backward(places)
        output = torch.zeros(rows, *values.shape[1:], device=values.device, dtype=values.dtype)
        output[places] = values
        return output

    @staticmethod
    def backward(ctx, grad):
        (places,) = ctx.saved_tensors
        return grad[places], None, None


def pad_input(hidden_states, indices, batch, seqlen):
    return PutRows.apply(hidden_states, indices, batch * seqlen).view(batch, seqlen, *hidden_states.shape[1:])


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    raise NotImplementedError
