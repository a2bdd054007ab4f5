// rules_rnn.h -- rules: recurrent networks.
#pragma once
#include "fallback.h"

namespace {

int64_t rnn_weights(const std::vector<Tensor> &list)
{
    int64_t n = 0;
    for (const Tensor &t : list)
        n += t.numel();
    return n;
}

void cudnn_rnn_flatten(const c10::OperatorHandle &op, Stack *stack)
{
    InOp in("_cudnn_rnn_flatten_weight");
    Call c(op, stack);
    std::vector<Tensor> weights = c.at("weight_arr").toTensorVector();
    Tensor all = contig({rnn_weights(weights)}, weights[0].scalar_type());
    int64_t at_ = 0;
    for (Tensor &w : weights) { // the weights become views of the buffer
        auto *impl = w.unsafeGetTensorImpl();
        impl->set_storage_keep_dtype(all.storage());
        impl->set_storage_offset(at_);
        impl->set_sizes_and_strides(w.sizes().vec(), dense_strides(w.sizes()));
        at_ += w.numel();
    }
    stack->push_back(all);
}

// src: cudnn/RNN.cpp _cudnn_impl; mode 0 relu, 1 tanh, 2 lstm, 3 gru
Tensor rnn_buffer(at::TensorList params)
{
    if (params.empty() || !params[0].has_storage())
        return Tensor();
    for (const Tensor &p : params)
        if (!p.storage().is_alias_of(params[0].storage()))
            return Tensor();
    int64_t n = 0;
    for (const Tensor &p : params)
        n += p.numel();
    Tensor flat = params[0].detach();
    return at::native::as_strided_tensorimpl(flat, {n}, {1}, 0);
}

std::tuple<Tensor, Tensor, Tensor> rnn(const Tensor &x, const Tensor &hx, const Tensor &cx,
                                       at::TensorList params, bool biases, int64_t mode,
                                       int64_t layers, double p, bool train, bool both,
                                       bool first, IntArrayRef packed = {})
{
    int64_t hidden = mode == 2 && cx.defined() ? cx.size(2) : hx.size(2);
    int64_t proj = mode == 2 && cx.defined() && hx.size(2) != cx.size(2) ? hx.size(2) : 0;
    int64_t stride = biases ? 4 : 2;
    if (proj)
        stride++;
    std::optional<Tensor> buffer;
    {
        at::NoGradGuard no_grad;
        Tensor b = rnn_buffer(params);
        if (b.defined())
            buffer = b;
    }
    auto r = at::_cudnn_rnn(x, params, stride, buffer, hx,
                            cx.defined() ? std::optional<Tensor>(cx) : std::nullopt, mode,
                            hidden, proj, layers, first, p, train, both, packed, std::nullopt);
    return {std::get<0>(r), std::get<1>(r), std::get<2>(r)};
}

void lstm(Tensor &out, Tensor &hy, Tensor &cy, const Tensor &x, at::TensorList hx,
          at::TensorList params, bool biases, int64_t layers, double p, bool train, bool both,
          bool first)
{
    std::tie(out, hy, cy) =
        rnn(x, hx[0], hx[1], params, biases, 2, layers, p, train, both, first);
}

template <int64_t Mode>
void plain_rnn(Tensor &out, Tensor &hy, const Tensor &x, const Tensor &hx,
               at::TensorList params, bool biases, int64_t layers, double p, bool train,
               bool both, bool first)
{
    Tensor none;
    std::tie(out, hy, none) =
        rnn(x, hx, Tensor(), params, biases, Mode, layers, p, train, both, first);
}

// Of packed sequences; how many there are at each step is known on the CPU.
IntArrayRef sizes_of(const Tensor &t)
{
    return IntArrayRef(t.const_data_ptr<int64_t>(), (size_t)t.numel());
}

void packed_lstm(Tensor &out, Tensor &hy, Tensor &cy, const Tensor &x, const Tensor &sizes,
                 at::TensorList hx, at::TensorList params, bool biases, int64_t layers,
                 double p, bool train, bool both)
{
    std::tie(out, hy, cy) = rnn(x, hx[0], hx[1], params, biases, 2, layers, p, train, both,
                                false, sizes_of(sizes));
}

template <int64_t Mode>
void packed_rnn(Tensor &out, Tensor &hy, const Tensor &x, const Tensor &sizes,
                const Tensor &hx, at::TensorList params, bool biases, int64_t layers, double p,
                bool train, bool both)
{
    Tensor none;
    std::tie(out, hy, none) = rnn(x, hx, Tensor(), params, biases, Mode, layers, p, train,
                                  both, false, sizes_of(sizes));
}

void connect_rnn()
{
    at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&lstm);
    at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<0>);
    at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<1>);
    at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&plain_rnn<3>);
    at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_lstm);
    at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<0>);
    at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<1>);
    at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&packed_rnn<3>);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) { RULE("_cudnn_rnn_flatten_weight", cudnn_rnn_flatten); }
