/* fam_config.c -- the keys of a config.json as a family knows them. */
#include "base/items.h"
#include "families/fam_priv.h"

/* Keys that every configuration may have and that change no size.
 * src: transformers 5.24 configuration_utils.py */
static const char generic[] =
    "model_type architectures transformers_version dtype torch_dtype id2label label2id num_labels auto_map "
    "_name_or_path bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id initializer_range "
    "use_cache return_dict output_hidden_states output_attentions chunk_size_feed_forward problem_type "
    "quantization_config attn_implementation _attn_implementation is_encoder_decoder torchscript use_bfloat16 "
    "pruned_heads finetuning_task task_specific_params out_features out_indices stage_names "
    "_class_name _diffusers_version";

/* Factors of rotary embeddings, which change values only.
 * src: transformers 5.24 modeling_rope_utils.py */
static const char factors[] =
    "attention_factor beta_fast beta_slow mscale mscale_all_dim truncate";

typedef struct reading {
    fam_program *p;
    plim_json *j;
    bool *given; /* by the index of the key */
} reading;

/* What JSON has no number for, as transformers 5 writes it: {"__float__": "Infinity"}. */
static fam_value read_special(plim_json *j)
{
    fam_value v = {.kind = FAM_NONE};
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        double x;
        if (plim_str_is(key, "__float__") && plim_json_peek(j) == PLIM_JSON_STRING &&
            plim_parse_double(plim_json_str(j), &x))
            v = (fam_value){.kind = FAM_FLOAT, .f = x};
        else
            plim_json_skip(j);
    }
    return v;
}

static fam_value read_value(reading *r, int depth)
{
    plim_json *j = r->j;
    plim_arena *a = r->p->names.arena;
    fam_value v = {.kind = FAM_NONE};
    switch (plim_json_peek(j)) {
    case PLIM_JSON_BOOL: v = (fam_value){.kind = FAM_BOOL, .i = plim_json_bool(j)}; break;
    case PLIM_JSON_STRING: v = (fam_value){.kind = FAM_WORD, .s = plim_json_str(j)}; break;
    case PLIM_JSON_NUMBER: {
        plim_json again = *j;
        again.err = NULL;
        v = (fam_value){.kind = FAM_INT, .i = plim_json_i64(&again)};
        if (again.bad)
            v = (fam_value){.kind = FAM_FLOAT, .f = plim_json_f64(j)};
        else
            *j = (again.err = j->err, again);
        break;
    }
    case PLIM_JSON_ARRAY: {
        fam_value *items = NULL;
        uint32_t n = 0, cap = 0;
        plim_json_array(j);
        while (plim_json_item(j)) {
            if (depth > 3 || !PLIM_PUSH_ROOM(a, items, n, cap))
                plim_json_skip(j);
            else
                items[n++] = read_value(r, depth + 1);
        }
        v = (fam_value){.kind = FAM_LIST, .items = items, .n = n};
        break;
    }
    case PLIM_JSON_OBJECT: v = read_special(j); break;
    default: plim_json_skip(j); break;
    }
    return v;
}

static bool is_known(fam_program *p, plim_str name)
{
    uint32_t at;
    return plim_map_get(&p->names.ids, name, &at) || plim_map_get(&p->ignored, name, &at);
}

/* Where the configuration in this one that has a key ends: "text_config." */
static size_t part_of(plim_str name)
{
    static const char end[] = "_config.";
    const char *dot = name.n ? memchr(name.p, '.', name.n) : NULL;
    size_t n = dot ? (size_t)(dot - name.p) + 1 : 0, is = sizeof end - 1;
    return n >= is && !memcmp(name.p + n - is, end, is) ? n : 0;
}

/* The name of a key of this release: the class has other names for some, and older files have others for rotary
 * embeddings.  Layers of several types have parameters of their own; older files give those of full attention.
 * src: transformers 5.24 modeling_rope_utils.py, standardize_rope_params; Gemma3TextConfig, convert_rope_params_to_dict */
static plim_str name_now(fam_program *p, plim_str name)
{
    static const char old[] = "rope_scaling.", now[] = "rope_parameters.";
    plim_arena *a = p->names.arena;
    uint32_t at;
    if (plim_map_get(&p->aliases, name, &at))
        return p->alias[at - 1];
    const plim_str part = {name.p, part_of(name)};
    plim_str rest = {name.p + part.n, name.n - part.n};
    if (rest.n > sizeof old - 1 && !memcmp(rest.p, old, sizeof old - 1))
        rest = (plim_str){rest.p + sizeof old - 1, rest.n - (sizeof old - 1)};
    else if (!plim_str_is(rest, "rope_theta") && !plim_str_is(rest, "partial_rotary_factor"))
        return name;
    if (plim_str_is(rest, "type"))
        rest = PLIM_STR("rope_type");
    plim_str full = plim_arena_printf(a, PLIM_STR_FMT "%s" PLIM_STR_FMT, PLIM_STR_ARG(part),
                                      now, PLIM_STR_ARG(rest));
    if (full.p && !is_known(p, full)) {
        plim_str of_type = plim_arena_printf(a, PLIM_STR_FMT "%sfull_attention." PLIM_STR_FMT,
                                             PLIM_STR_ARG(part), now, PLIM_STR_ARG(rest));
        full = of_type.p && is_known(p, of_type) ? of_type : full;
    }
    return full;
}

static fam_key *find_key(fam_program *p, plim_str name, uint32_t *at)
{
    uint32_t id;
    if (!plim_map_get(&p->names.ids, name, &id))
        return NULL;
    for (*at = 0; *at < p->n_keys; ++*at)
        if (p->keys[*at].name == id - 1)
            return &p->keys[*at];
    return NULL;
}

static bool is_number(fam_value v, double x)
{
    double is = v.kind == FAM_FLOAT ? v.f : (double)v.i;
    return (v.kind == FAM_INT || v.kind == FAM_FLOAT) && !(is < x) && !(is > x);
}

/* Whether the family was made with such a value. */
static bool in_domain(fam_program *p, const fam_key *k, fam_value v)
{
    plim_str left = k->domain;
    fam_line l = {left.p, left.p + left.n, 0};
    while (l.p < l.end) {
        if (plim_fam_take(&l, "any"))
            return true;
        if (plim_fam_take(&l, "int")) {
            if (v.kind == FAM_INT)
                return true;
        } else if (plim_fam_take(&l, "float")) {
            if (v.kind == FAM_FLOAT || v.kind == FAM_INT)
                return true;
        } else if (plim_fam_take(&l, "bool")) {
            if (v.kind == FAM_BOOL)
                return true;
        } else if (plim_fam_take(&l, "list")) {
            if (v.kind == FAM_LIST)
                return true;
        } else if (plim_fam_take(&l, "None")) {
            if (v.kind == FAM_NONE)
                return true;
        } else if (plim_fam_take(&l, "True") || plim_fam_take(&l, "False")) {
            if (v.kind == FAM_BOOL && v.i == (l.p[-1] == 'e' && l.p[-2] == 'u'))
                return true;
        } else if (l.p < l.end && *l.p == '[') {
            const fam_expr *list = plim_fam_parse(&p->names, &l);
            if (list && plim_fam_equal(v, plim_fam_eval(&p->names, list)))
                return true;
            if (p->names.st)
                return false;
        } else if (plim_fam_take(&l, "'")) {
            const char *from = l.p;
            while (l.p < l.end && *l.p != '\'')
                l.p++;
            if (v.kind == FAM_WORD && plim_str_eq(v.s, (plim_str){from, (size_t)(l.p - from)}))
                return true;
            l.p += l.p < l.end;
        } else {
            const char *from = l.p;
            double only;
            while (l.p < l.end && *l.p != ' ' && *l.p != '|')
                l.p++;
            if (plim_parse_double((plim_str){from, (size_t)(l.p - from)}, &only) &&
                is_number(v, only))
                return true;
            l.p += l.p == from;
        }
    }
    return false;
}

static void refuse_key(fam_program *p, plim_str key, const fam_key *k)
{
    if (k)
        plim_fam_fail(&p->names, 0,
                      "'" PLIM_STR_FMT
                      "' has a value that is not known for model_type '" PLIM_STR_FMT
                      "': it was learnt with " PLIM_STR_FMT,
                      (int)PLIM_MIN(key.n, (size_t)60), key.p, PLIM_STR_ARG(p->family),
                      (int)PLIM_MIN(k->domain.n, (size_t)80), k->domain.p);
    else
        plim_fam_fail(&p->names, 0,
                      "key '" PLIM_STR_FMT "' is not known for model_type '" PLIM_STR_FMT "'",
                      (int)PLIM_MIN(key.n, (size_t)60), key.p, PLIM_STR_ARG(p->family));
}

/* Whether it is a parameter of rotary embeddings that changes no memory, or which code does not ask for. */
static bool is_idle(fam_program *p, plim_str key)
{
    uint32_t at;
    size_t dot = key.n;
    while (dot && key.p[dot - 1] != '.')
        dot--;
    const plim_str name = {key.p + dot, key.n - dot};
    return dot && plim_str_has((plim_str){key.p, dot}, "rope_") &&
           (plim_item_has(factors, name) ||
            (p->ropes.n && !plim_map_get(&p->ropes, name, &at)));
}

/* A key that the family does not have: nothing, unless code of the class reads it. */
static void meet_unknown(fam_program *p, plim_str key)
{
    uint32_t at;
    if (is_idle(p, key))
        return;
    const size_t part = part_of(key);
    const char *dot = memchr(key.p + part, '.', key.n - part);
    plim_str first = {key.p + part, (dot ? (size_t)(dot - key.p) : key.n) - part};
    if (dot || plim_map_get(&p->read, first, &at))
        refuse_key(p, key, NULL);
    else
        plim_buf_printf(&p->unread, "%s'" PLIM_STR_FMT "'", p->unread.n ? ", " : "",
                        (int)PLIM_MIN(key.n, (size_t)60), key.p);
}

/* Whether the family knows keys of this object. */
static bool known_object(fam_program *p, plim_str key)
{
    uint32_t at;
    const size_t part = part_of(key);
    const plim_str name = {key.p + part, key.n - part};
    return plim_map_get(&p->objects, key, &at) || plim_str_is(name, "rope_scaling") ||
           plim_str_is(name, "rope_parameters");
}

static void read_object(reading *r, plim_str prefix, int depth);

/* The names of the classes, of which there are num_labels. */
static void read_labels(reading *r)
{
    uint32_t at;
    int64_t n = 0;
    plim_str key;
    plim_json_object(r->j);
    for (; plim_json_member(r->j, &key); n++)
        plim_json_skip(r->j);
    fam_key *k = find_key(r->p, PLIM_STR("num_labels"), &at);
    if (k && !r->given[at]) {
        r->p->names.values[k->name] = (fam_value){.kind = FAM_INT, .i = n};
        r->given[at] = true;
    }
}

/* "gradient_checkpointing": false, which says nothing. */
static bool is_off(const plim_json *j, plim_str key)
{
    plim_json again = *j;
    again.err = NULL;
    return plim_str_is(key, "gradient_checkpointing") &&
           plim_json_peek(&again) == PLIM_JSON_BOOL && !plim_json_bool(&again);
}

/* A word whose letters stand for the items of a list: "ME*". */
static fam_value spell_out(fam_program *p, const fam_key *k, fam_value word)
{
    const plim_str known = k->letters;
    fam_value *items = plim_fam_items(&p->names, (int64_t)word.s.n);
    for (size_t i = 0; items && i < word.s.n; i++) {
        size_t at = 0, end;
        while (at + 1 < known.n && !(known.p[at] == word.s.p[i] && known.p[at + 1] == '=' &&
                                     (!at || known.p[at - 1] == ' ')))
            at++;
        if (at + 1 >= known.n)
            return word; /* which is not known */
        for (end = at += 2; end < known.n && known.p[end] != ' ';)
            end++;
        items[i] = (fam_value){.kind = FAM_WORD, .s = {known.p + at, end - at}};
    }
    return items ? (fam_value){.kind = FAM_LIST, .items = items, .n = (uint32_t)word.s.n}
                 : word;
}

/* Types of layers by the names of this release.
 * src: transformers 5.24 configuration_utils.py, remap_legacy_layer_types */
static fam_value rename_layers(fam_program *p, plim_str key, fam_value v)
{
    static const char *const names[][2] = {
        {"mamba", "linear_attention"},
        {"attention", "full_attention"},
        {"deepseek_sparse_attention", "indexed_attention"},
        {"qwen_sparse_attention", "indexed_attention"},
    };
    if (v.kind != FAM_LIST ||
        !(plim_str_is(key, "layer_types") || plim_str_is(key, "layers_block_type")))
        return v;
    fam_value *items = PLIM_NEW_N(p->names.arena, fam_value, (uint64_t)v.n + 1);
    if (!items) {
        plim_fam_oom(&p->names);
        return v;
    }
    for (uint32_t i = 0; i < v.n; i++) {
        items[i] = v.items[i];
        for (size_t k = 0; k < PLIM_COUNT(names); k++)
            if (v.items[i].kind == FAM_WORD && plim_str_is(v.items[i].s, names[k][0]))
                items[i].s = plim_str_of(names[k][1]);
    }
    v.items = items;
    return v;
}

static void read_member(reading *r, plim_str full, plim_str key, int depth)
{
    fam_program *p = r->p;
    uint32_t at;
    if (plim_json_peek(r->j) == PLIM_JSON_OBJECT && depth < 6 && known_object(p, full)) {
        read_object(r, full, depth + 1);
        return;
    }
    if (plim_map_get(&p->objects, full, &at) && plim_json_peek(r->j) != PLIM_JSON_NULL) {
        plim_fam_fail(&p->names, 0, "'" PLIM_STR_FMT "' is no object",
                      (int)PLIM_MIN(full.n, (size_t)60), full.p);
        plim_json_skip(r->j);
        return;
    }
    if (plim_str_is(full, "id2label") && plim_json_peek(r->j) == PLIM_JSON_OBJECT) {
        read_labels(r);
        return;
    }
    plim_str now = is_known(p, full) ? full : name_now(p, full);
    fam_key *k = now.p ? find_key(p, now, &at) : NULL;
    bool null = plim_json_peek(r->j) == PLIM_JSON_NULL || is_off(r->j, key);
    if (!k && now.p && !is_known(p, now) && !plim_item_has(generic, key) && !null)
        meet_unknown(p, full);
    fam_value v = read_value(r, 0);
    if (!k || (null && k->optional))
        return;
    if (k->letters.n && v.kind == FAM_WORD)
        v = spell_out(p, k, v);
    v = rename_layers(p, key, v);
    if (!in_domain(p, k, v))
        refuse_key(p, now, k);
    p->names.values[k->name] = v;
    r->given[at] = true;
}

/* Whether the keys of a part stand in the file itself. */
static bool is_flat(const reading *r)
{
    plim_json again = *r->j;
    plim_str key;
    if (!r->p->flat.n)
        return false;
    again.err = NULL;
    plim_json_object(&again);
    while (plim_json_member(&again, &key)) {
        if (plim_str_eq(key, r->p->flat) && plim_json_peek(&again) == PLIM_JSON_OBJECT)
            return false;
        plim_json_skip(&again);
    }
    return true;
}

static void read_object(reading *r, plim_str prefix, int depth)
{
    plim_arena *a = r->p->names.arena;
    const bool flat = !prefix.n && is_flat(r);
    uint32_t at;
    plim_str key;
    plim_json_object(r->j);
    while (plim_json_member(r->j, &key)) {
        plim_str full = prefix.n ? plim_fam_concat(a, prefix, PLIM_STR("."), key) : key;
        if (flat && !is_known(r->p, key) && !plim_map_get(&r->p->objects, key, &at) &&
            !plim_item_has(generic, key))
            full = plim_fam_concat(a, r->p->flat, PLIM_STR("."), key);
        if (full.p)
            read_member(r, full, key, depth);
    }
}

static fam_value default_of(fam_program *p, const fam_key *k)
{
    if (!k->fallback) {
        plim_fam_fail(&p->names, 0,
                      "key '" PLIM_STR_FMT "' is missing, and model_type '" PLIM_STR_FMT
                      "' has no default for it",
                      PLIM_STR_ARG(k->text), PLIM_STR_ARG(p->family));
        return (fam_value){.kind = FAM_NONE};
    }
    if (!k->length)
        return plim_fam_eval(&p->names, k->fallback);
    int64_t n = plim_fam_int(&p->names, k->length);
    uint32_t i0 = plim_fam_name(&p->names, PLIM_STR("i0"));
    fam_value *items = plim_fam_items(&p->names, n);
    if (!items)
        return (fam_value){.kind = FAM_NONE};
    for (int64_t i = 0; i < n; i++) {
        if (!p->names.st)
            p->names.values[i0] = (fam_value){.kind = FAM_INT, .i = i};
        items[i] = plim_fam_eval(&p->names, k->fallback);
    }
    return (fam_value){.kind = FAM_LIST, .items = items, .n = (uint32_t)n};
}

plim_status plim_fam_config(fam_program *p, plim_str config, plim_err *err)
{
    plim_json j;
    reading r = {
        .p = p, .j = &j, .given = PLIM_NEW_N(p->names.arena, bool, (uint64_t)p->n_keys + 1)};
    if (!r.given)
        return plim_oom(err);
    plim_json_init(&j, config, err);
    j.lax = true;
    read_object(&r, PLIM_STR(""), 0);
    if (j.bad)
        return j.bad;
    for (uint32_t i = 0; i < p->n_keys && !p->names.st;
         i++) /* each names only keys before it */
        if (!r.given[i])
            p->names.values[p->keys[i].name] = default_of(p, &p->keys[i]);
    if (p->required && !p->names.st && !plim_fam_true(&p->names, p->required))
        plim_fam_fail(&p->names, 0,
                      "model_type '" PLIM_STR_FMT "' is known where " PLIM_STR_FMT,
                      PLIM_STR_ARG(p->family), PLIM_STR_ARG(p->requires));
    return p->names.st;
}
