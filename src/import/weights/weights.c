/* weights.c -- see weights.h. */
#include "import/weights/weights.h"

#include "base/json.h"

/* ---- packed --------------------------------------------------------------------- */

/* src: AutoGPTQ and AutoAWQ qlinear modules; bitsandbytes nn/modules.py and
 * functional.py QuantState.as_dict; compressed-tensors compressors/pack_quantized;
 * transformers integrations/mxfp4.py; hqq core/quantize.py */
static const struct {
    const char *tail, *type, *method;
} packings[] = {
    {".qweight", "int32", "GPTQ or AWQ"},
    {".weight_packed", "int32", "compressed-tensors"},
    {".weight_packed", "uint8", "compressed-tensors"},
    {".weight.quant_state.bitsandbytes__nf4", "uint8", "bitsandbytes NF4"},
    {".weight.quant_state.bitsandbytes__fp4", "uint8", "bitsandbytes FP4"},
    {"_proj_blocks", "uint8", "MXFP4"},
    {".W_q", "uint8", "HQQ"},
    {".W_q", "int32", "HQQ"},
};

plim_status plim_weights_packed(plim_inventory *v, uint32_t first, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (size_t k = 0; k < PLIM_COUNT(packings) && !st; k++)
        for (uint32_t i = first; i < v->n_items; i++)
            if (plim_str_ends(v->items[i].name, plim_str_of(packings[k].tail)) &&
                plim_str_is(v->items[i].type, packings[k].type)) {
                st = plim_inventory_note(v, err,
                                         "weights are packed (%s, as in '*%s'): each element "
                                         "holds several parameters",
                                         packings[k].method, packings[k].tail);
                break;
            }
    return st;
}

/* ---- adapters -------------------------------------------------------------------- */

static const char config_name[] = "adapter_config.json";

/* src: peft LoraConfig */
static const char *const adapter_keys[] = {
    "peft_type", "base_model_name_or_path", "r", "lora_alpha", "target_modules",
};

/* A value on one line: a string without its quotes, a list of strings with commas. */
static void add_value(plim_buf *out, plim_json *j, plim_arena *a)
{
    bool more = false;
    switch (plim_json_peek(j)) {
    case PLIM_JSON_STRING: plim_buf_add(out, plim_json_unescape(a, plim_json_str(j))); break;
    case PLIM_JSON_ARRAY:
        plim_json_array(j);
        for (; plim_json_item(j); more = true) {
            plim_buf_puts(out, more ? ", " : "");
            plim_buf_add(out, plim_json_peek(j) == PLIM_JSON_STRING
                                  ? plim_json_unescape(a, plim_json_str(j))
                                  : plim_json_raw(j));
        }
        break;
    default: plim_buf_add(out, plim_json_raw(j)); break;
    }
}

static plim_status read_config(plim_inventory *v, plim_bytes b, plim_err *why, plim_err *err)
{
    plim_json j;
    plim_str key;
    plim_status st = PLIM_OK;
    plim_json_init(&j, (plim_str){(const char *)b.p, (size_t)b.n}, why);
    j.lax = true;
    plim_json_object(&j);
    while (!st && plim_json_member(&j, &key)) {
        size_t i = 0;
        while (i < PLIM_COUNT(adapter_keys) && !plim_str_is(key, adapter_keys[i]))
            i++;
        if (i == PLIM_COUNT(adapter_keys)) {
            plim_json_skip(&j);
            continue;
        }
        plim_buf text;
        plim_buf_init(&text, v->arena);
        add_value(&text, &j, v->arena);
        plim_str s = plim_buf_str(&text);
        if (text.bad)
            return plim_oom(err);
        if (!j.bad)
            st = plim_inventory_fact(v, err, adapter_keys[i], PLIM_STR_FMT, PLIM_STR_ARG(s));
    }
    return st;
}

plim_status plim_weights_adapter(plim_inventory *v, uint32_t first, const plim_source *s,
                                 plim_err *err)
{
    uint32_t i = first;
    while (i < v->n_items && !plim_str_has(v->items[i].name, ".lora_A."))
        i++;
    if (i == v->n_items)
        return PLIM_OK;
    plim_source config;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = PLIM_OK;
    if (!plim_source_beside(s, plim_str_of(config_name), v->arena, &config, &why) &&
        !plim_bytes_need(config.bytes, 0, config.bytes.n, &why))
        st = read_config(v, config.bytes, &why, err);
    plim_source_close(&config);
    if (!st && why.code == PLIM_ENOMEM)
        st = plim_oom(err);
    else if (!st && why.code)
        st = plim_inventory_note(v, err, "an adapter (LoRA) without a readable %s: %s",
                                 config_name, why.msg);
    return st;
}
