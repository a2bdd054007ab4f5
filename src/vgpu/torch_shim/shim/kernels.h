// kernels.h -- the kernels that libplimsoll models.
#pragma once
#include "call.h"

namespace {

plim_vgpu_tensor geometry(const Tensor &t)
{
    plim_vgpu_tensor out = {};
    out.dtype = t.defined() ? dtype_of(t.scalar_type()) : -1;
    out.rank = t.defined() ? (int)t.dim() : 0;
    for (int i = 0; i < out.rank && i < 8; i++) {
        out.dim[i] = t.size(i);
        out.stride[i] = t.stride(i);
    }
    return out;
}

// An op's arguments in the library's words.
struct Words {
    std::vector<plim_vgpu_arg> args;
    std::vector<std::vector<plim_vgpu_tensor>> tensors;
    std::vector<std::vector<int64_t>> ints;
    std::vector<Tensor> given; // the tensors in order
    bool ok = true;            // false: one is of a kind that it does not know

    explicit Words(const Call &c) : Words(c.in.size())
    {
        for (size_t i = 0; i < c.in.size(); i++)
            set(i, c.schema.arguments()[i].name().c_str(), c.in[i]);
    }
    Words(const char *name, const Tensor &t) : Words(1) { set(0, name, t); }
    explicit Words(size_t n) : args(n), tensors(n), ints(n) {}
    void set(size_t i, const char *name, const IValue &v)
    {
        args[i].name = name;
        word(v, args[i], tensors[i], ints[i]);
        args[i].tensors = tensors[i].data();
        args[i].ints = ints[i].data();
        args[i].n = (uint32_t)(ints[i].empty() ? tensors[i].size() : ints[i].size());
        if (!strcmp(name, "dtype") && !ints[i].empty())
            ints[i][0] = dtype_of((ScalarType)ints[i][0]);
    }
    void add(const Tensor &t, std::vector<plim_vgpu_tensor> &list)
    {
        given.push_back(t);
        list.push_back(geometry(t));
        ok = ok && (!t.defined() || (list.back().dtype >= 0 && t.dim() <= 8));
    }
    void word(const IValue &v, plim_vgpu_arg &a, std::vector<plim_vgpu_tensor> &list,
              std::vector<int64_t> &numbers)
    {
        if (v.isTensor()) {
            a.kind = PLIM_VGPU_TENSOR;
            add(v.toTensor(), list);
        } else if (v.isBool() || v.isInt() || v.isSymInt()) {
            a.kind = PLIM_VGPU_INT;
            numbers.push_back(v.isBool()  ? v.toBool()
                              : v.isInt() ? v.toInt()
                                          : v.toSymInt().expect_int());
        } else if (v.isDouble()) {
            a.kind = PLIM_VGPU_FLOAT;
            a.number = v.toDouble();
        } else if (v.isList()) {
            for (const IValue &e : v.toListRef()) {
                if (e.isTensor() || (e.isNone() && numbers.empty()))
                    add(e.isTensor() ? e.toTensor() : Tensor(), list);
                else if (e.isBool() || e.isInt() || e.isSymInt())
                    numbers.push_back(e.isBool()  ? e.toBool()
                                      : e.isInt() ? e.toInt()
                                                  : e.toSymInt().expect_int());
            }
            a.kind = list.empty() ? PLIM_VGPU_INTS : PLIM_VGPU_TENSORS;
        }
    }
};

// PyTorch refuses to answer where convolutions and RNNs are set differently.
bool allows_tf32()
{
    try {
        return at::globalContext().allowTF32CuDNN();
    } catch (const c10::Error &) {
        return true;
    }
}

using Results = std::vector<plim_vgpu_result>;

bool run_kernel(const char *name, const Words &w, Results &out)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_tag tag = tag_now();
    plim_vgpu_kernel_call call = {};
    call.args = w.args.data();
    call.n_args = (uint32_t)w.args.size();
    call.stream = (uint16_t)current_stream();
    call.autograd_thread = torch::autograd::get_current_node() != nullptr;
    call.cudnn_benchmark = at::globalContext().benchmarkCuDNN();
    call.cudnn_no_tf32 = !allows_tf32();
    call.tag = &tag;
    out.resize(w.given.size() + 16);
    uint32_t n = 0;
    bool oom = false;
    check(plim_vgpu_kernel(card(), name, &call, out.data(), (uint32_t)out.size(), &n, &oom,
                           &err),
          err);
    if (oom)
        out_of_memory();
    out.resize(n);
    return n > 0;
}

ScalarType type_of(int dtype)
{
    for (int i = 0; i < (int)ScalarType::NumOptions; i++)
        if (dtype_of((ScalarType)i) == dtype)
            return (ScalarType)i;
    return ScalarType::Byte; // not reached: every type that a kernel makes has a name above
}

// The results as tensors.  Several on one storage lie there one after the other.
std::vector<Tensor> tensors_of(const Results &results, const Words &w)
{
    std::vector<Tensor> out;
    std::vector<int64_t> used(results.size(), 0); // elements of each one's storage
    for (size_t i = 0; i < results.size(); i++) {
        const plim_vgpu_result &r = results[i];
        if (r.tensor.dtype < 0) {
            out.emplace_back();
            continue;
        }
        if (r.argument != PLIM_VGPU_NONE) {
            out.push_back(w.given[r.argument]);
            continue;
        }
        IntArrayRef size(r.tensor.dim, (size_t)r.tensor.rank),
            stride(r.tensor.stride, (size_t)r.tensor.rank);
        if (r.shares != PLIM_VGPU_NONE) {
            Tensor t =
                at::native::as_strided_tensorimpl(out[r.shares], size, stride, used[r.shares]);
            used[r.shares] += t.numel();
            out.push_back(t);
            continue;
        }
        caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(type_of(r.tensor.dtype));
        c10::DataPtr data = r.block == PLIM_VGPU_NONE ? allocator.allocate(0)
                                                      : allocator.hold(r.block, r.addr);
        c10::Storage storage(c10::Storage::use_byte_size_t(), r.bytes, std::move(data),
                             &allocator, true);
        Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, type);
        t.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
        used[i] = t.numel();
        out.push_back(t);
    }
    return out;
}

// Results in the order of the op's returns; a list takes what the others leave.
void give_made(const Call &c, const std::vector<Tensor> &made, Stack *stack)
{
    const auto &returns = c.schema.returns();
    size_t singles = 0, next = 0;
    for (const auto &r : returns)
        singles += r.type()->kind() == c10::TypeKind::TensorType;
    for (const auto &r : returns) {
        if (r.type()->kind() == c10::TypeKind::TensorType) {
            Tensor t = next < made.size() ? made[next] : Tensor();
            if (!t.defined() && r.name().compare(0, 6, "philox") == 0)
                t = at::empty({}, at::TensorOptions(ScalarType::Long)); // it stays on the CPU
            stack->push_back(t);
            next++;
        } else if (r.type()->kind() == c10::TypeKind::ListType) {
            size_t n = made.size() > singles ? made.size() - singles : 0;
            stack->push_back(std::vector<Tensor>(made.begin() + (int64_t)next,
                                                 made.begin() + (int64_t)(next + n)));
            next += n;
        } else { // the lengths of attention's sequences
            stack->push_back(c.tensor(r.name() == "max_q" ? "query" : "key").size(2));
        }
    }
}

} // namespace
