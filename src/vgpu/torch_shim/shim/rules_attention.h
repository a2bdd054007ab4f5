// rules_attention.h -- rules: attention.
#pragma once
#include "fallback.h"

namespace {

int64_t attention_backend(const Tensor &q, const Tensor &k, const Tensor &v,
                          const std::optional<Tensor> &mask, double dropout, bool causal,
                          std::optional<double>, bool gqa)
{
    auto &context = at::globalContext();
    OnDevice there(q.device());
    const plim_vgpu_tensor query = geometry(q), key = geometry(k), value = geometry(v);
    plim_vgpu_attention_call call = {};
    call.mask = mask && mask->defined();
    call.causal = causal;
    call.mask_grad = call.mask && mask->requires_grad();
    call.mask_strided = call.mask && mask->dim() && mask->stride(-1) != 1;
    call.gqa = gqa;
    call.dropout = dropout > 0;
    call.without =
        (context.userEnabledFlashSDP() ? 0u : 1u << PLIM_VGPU_SDPA_FLASH) |
        (context.userEnabledMemEfficientSDP() ? 0u : 1u << PLIM_VGPU_SDPA_EFFICIENT) |
        (context.userEnabledCuDNNSDP() ? 0u : 1u << PLIM_VGPU_SDPA_CUDNN);
    return plim_vgpu_attention(card(), &query, &key, &value, &call);
}

void connect_attention()
{
    at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_backend);
}

} // namespace
