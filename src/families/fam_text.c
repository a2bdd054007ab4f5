/* fam_text.c -- see fam_priv.h.  A statement is a line; those that depend on a test are indented by one more space. */
#include "families/fam_priv.h"

typedef struct reader {
    fam_program *p;
    fam_names *x;
    plim_str left; /* of the text */
    fam_line line; /* the current one */
    uint32_t indent;
    bool done;
} reader;

/* ---- lines and words ------------------------------------------------------------------------- */

static void next_line(reader *r)
{
    const char *from = r->left.p, *end = r->left.n ? memchr(from, '\n', r->left.n) : NULL;
    r->done = !r->left.n;
    if (r->done)
        return;
    size_t n = end ? (size_t)(end - from) : r->left.n;
    r->left = (plim_str){from + n + (end != NULL), r->left.n - n - (end != NULL)};
    r->line = (fam_line){from, from + n, r->line.at + 1};
    for (r->indent = 0; r->line.p < r->line.end && *r->line.p == ' '; r->indent++)
        r->line.p++;
}

static void fail_expected(reader *r, const char *what)
{
    plim_fam_fail(r->x, r->line.at, "%s expected at '%.*s'", what,
                  (int)PLIM_MIN(r->line.end - r->line.p, 30), r->line.p);
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.';
}

static plim_str read_name(reader *r)
{
    plim_fam_space(&r->line);
    const char *from = r->line.p;
    while (r->line.p < r->line.end && name_char(*r->line.p))
        r->line.p++;
    if (r->line.p == from)
        fail_expected(r, "a name");
    return (plim_str){from, (size_t)(r->line.p - from)};
}

/* Up to one of the characters in `ends`, or the end of the line. */
static plim_str read_upto(reader *r, const char *ends)
{
    plim_fam_space(&r->line);
    const char *from = r->line.p;
    while (r->line.p < r->line.end && !strchr(ends, *r->line.p))
        r->line.p++;
    return (plim_str){from, (size_t)(r->line.p - from)};
}

static const char *copy_text(reader *r, const char *before, plim_str s, const char *after)
{
    plim_str t =
        plim_fam_concat(r->p->names.arena, plim_str_of(before), s, plim_str_of(after));
    if (!t.p)
        plim_fam_oom(r->x);
    return t.p;
}

static uint32_t read_small(reader *r)
{
    uint32_t n = 0;
    if (r->line.p >= r->line.end || *r->line.p < '0' || *r->line.p > '9')
        fail_expected(r, "a number");
    while (r->line.p < r->line.end && *r->line.p >= '0' && *r->line.p <= '9' && n < 100000)
        n = n * 10 + (uint32_t)(*r->line.p++ - '0');
    return n;
}

/* "layers.{i0}.w": the text with a star for each brace, and their expressions; *index NULL: there is none. */
static plim_str read_starred(reader *r, const char *ends, const fam_expr ***index)
{
    const fam_expr *found[8];
    uint32_t n = 0;
    plim_str text = PLIM_STR("");
    *index = NULL;
    plim_fam_space(&r->line);
    for (;;) {
        const char *from = r->line.p;
        while (r->line.p < r->line.end && *r->line.p != '{' && !strchr(ends, *r->line.p))
            r->line.p++;
        plim_str part = {from, (size_t)(r->line.p - from)};
        bool brace = r->line.p < r->line.end && *r->line.p == '{';
        if (!n && !brace)
            return part; /* as it stands in the text */
        text = plim_fam_concat(r->p->names.arena, text, part,
                               brace ? PLIM_STR("*") : PLIM_STR(""));
        if (!text.p)
            plim_fam_oom(r->x);
        if (!brace || r->x->st)
            break;
        r->line.p++;
        if (n == PLIM_COUNT(found))
            fail_expected(r, "fewer indices");
        else
            found[n++] = plim_fam_parse(r->x, &r->line);
        if (!plim_fam_take(&r->line, "}"))
            fail_expected(r, "'}'");
    }
    *index = PLIM_NEW_N(r->p->names.arena, const fam_expr *, (uint64_t)n + 1);
    if (!*index)
        plim_fam_oom(r->x);
    else
        memcpy(*index, found, n * sizeof *found);
    return text;
}

/* ---- arguments --------------------------------------------------------------------------------- */

static bool at_ref(const reader *r)
{
    return r->line.p < r->line.end && strchr("%./", *r->line.p) != NULL;
}

/* "position_embeddings.0", "arange#1": the name of what a module or a turn is given. */
static plim_str read_label(reader *r)
{
    const char *from = r->line.p;
    while (r->line.p < r->line.end && (name_char(*r->line.p) || strchr("#*-", *r->line.p)))
        r->line.p++;
    return (plim_str){from, (size_t)(r->line.p - from)};
}

/* "[*]", "[i1]": all values of a list, or one of them. */
static void read_at(reader *r, fam_ref *ref)
{
    if (r->line.p == r->line.end || *r->line.p != '[')
        return;
    r->line.p++;
    ref->all = plim_fam_take(&r->line, "*");
    ref->at = ref->all ? NULL : plim_fam_parse(r->x, &r->line);
    if (!plim_fam_take(&r->line, "]"))
        fail_expected(r, "']'");
}

static void read_option(reader *r, fam_ref *ref)
{
    ref->item = read_small(r);
    ref->result = PLIM_STR("0");
    if (r->line.p < r->line.end && *r->line.p == '.') {
        r->line.p++;
        ref->result = read_label(r);
        for (size_t i = 0;
             i < ref->result.n && i < 6 && ref->result.p[i] >= '0' && ref->result.p[i] <= '9';
             i++)
            ref->k = 10 * ref->k + (uint32_t)(ref->result.p[i] - '0');
    }
    read_at(r, ref);
}

static fam_ref read_one(reader *r)
{
    fam_ref ref = {.kind = FAM_ITEM};
    if (plim_fam_take(&r->line, ".") || plim_fam_take(&r->line, "/")) {
        ref.kind = r->line.p[-1] == '.' ? FAM_OWN : FAM_TOP;
        ref.name = read_starred(r, ",)] |", &ref.index);
        return ref;
    }
    plim_fam_take(&r->line, "%"); /* once for all numbers */
    if (plim_fam_take(&r->line, "^") || plim_fam_take(&r->line, "~")) {
        ref.kind = r->line.p[-1] == '^' ? FAM_CAP : FAM_CARRY;
        ref.k = read_small(r);
    } else if (r->line.p < r->line.end && (*r->line.p < '0' || *r->line.p > '9')) {
        ref.kind = FAM_IN;
        ref.name = read_label(r);
        read_at(r, &ref);
    } else {
        read_option(r, &ref);
    }
    return ref;
}

/* "%7|4.1|%mask": the first of them that is there. */
static fam_ref read_ref(reader *r)
{
    plim_fam_space(&r->line);
    fam_ref first = read_one(r), *last = &first;
    while (!r->x->st && r->line.p < r->line.end && *r->line.p == '|') {
        fam_ref *other = PLIM_NEW(r->p->names.arena, fam_ref);
        r->line.p++;
        if (!other) {
            plim_fam_oom(r->x);
            break;
        }
        *other = read_one(r);
        last->otherwise = other;
        last = other;
    }
    return first;
}

static fam_arg read_arg(reader *r, int depth);

/* Arguments up to `end`; "": to the end of the line. */
static const fam_arg *read_args(reader *r, const char *end, bool named, uint32_t *n, int depth)
{
    fam_arg found[96], *kept;
    *n = 0;
    while (!r->x->st && !(*end ? plim_fam_take(&r->line, end) : r->line.p >= r->line.end)) {
        plim_str name = PLIM_STR("");
        plim_fam_space(&r->line);
        if (*n == PLIM_COUNT(found) || r->line.p >= r->line.end) {
            fail_expected(r, end);
            break;
        }
        const char *at = r->line.p;
        if (named && !at_ref(r))
            name = read_upto(r, "=)"); /* "^0=": the first that a call finds elsewhere */
        if (named && name.n && !plim_fam_take(&r->line, "=")) {
            r->line.p = at;
            name = PLIM_STR("");
        }
        found[*n] = read_arg(r, depth);
        found[(*n)++].name = name;
        plim_fam_take(&r->line, ",");
    }
    kept = PLIM_NEW_N(r->p->names.arena, fam_arg, (uint64_t)*n + 1);
    if (!kept)
        plim_fam_oom(r->x);
    else
        memcpy(kept, found, *n * sizeof *found);
    return kept;
}

static bool take_word(reader *r, const char *w)
{
    size_t n = strlen(w);
    plim_fam_space(&r->line);
    bool is = (size_t)(r->line.end - r->line.p) >= n && !memcmp(r->line.p, w, n) &&
              (r->line.p + n == r->line.end || !name_char(r->line.p[n]));
    r->line.p += is ? n : 0;
    return is;
}

static bool take_dtype(reader *r, plim_dtype *t)
{
    const char *from = r->line.p, *p = from;
    while (p < r->line.end && name_char(*p))
        p++;
    bool is = p > from && (p == r->line.end || *p != '(') && /* int(x) is an expression */
              plim_dtype_find((plim_str){from, (size_t)(p - from)}, t);
    r->line.p = is ? p : from;
    return is;
}

/* "$dtype" alone: it may also be compared with a word. */
static bool take_model_dtype(reader *r)
{
    const char *from = r->line.p;
    if (!take_word(r, "$dtype"))
        return false;
    plim_fam_space(&r->line);
    bool alone = r->line.p == r->line.end || strchr(",)]", *r->line.p);
    r->line.p = alone ? r->line.p : from;
    return alone;
}

static fam_arg read_arg(reader *r, int depth)
{
    fam_arg a = {.kind = FAM_A_EXPR};
    plim_fam_space(&r->line);
    if (at_ref(r)) {
        a.kind = FAM_A_REF;
        a.ref = read_ref(r);
    } else if (depth < 4 && plim_fam_take(&r->line, "[")) {
        a.kind = FAM_A_LIST;
        a.items = read_args(r, "]", false, &a.n, depth + 1);
    } else if (take_word(r, "far")) {
        a.kind = FAM_A_FAR;
    } else if (take_word(r, "any")) {
        a.kind = FAM_A_ANY;
    } else if (take_model_dtype(r)) {
        a.kind = FAM_A_MODEL_DTYPE;
    } else if (take_dtype(r, &a.dtype)) {
        a.kind = FAM_A_DTYPE;
    } else if (plim_fam_take(&r->line, "'")) {
        a.kind = FAM_A_TEXT;
        a.text = read_upto(r, "'");
        plim_fam_take(&r->line, "'");
    } else {
        a.expr = plim_fam_parse(r->x, &r->line);
    }
    return a;
}

/* ---- statements ----------------------------------------------------------------------------------- */

static const fam_stmt *read_statements(reader *r, uint32_t indent, uint32_t *items);

/* "-> 3", or a list: "-> [B * $images]"; "-> [*]": as many as there are sizes of parts */
static void read_results(reader *r, fam_stmt *s)
{
    s->outs = 1;
    if (!plim_fam_take(&r->line, "->"))
        return;
    plim_fam_space(&r->line);
    if (!plim_fam_take(&r->line, "[")) {
        s->outs = read_small(r);
        return;
    }
    s->outs = 0;
    s->expr = plim_fam_take(&r->line, "*") ? NULL : plim_fam_parse(r->x, &r->line);
    if (s->what != FAM_OP || !plim_fam_take(&r->line, "]"))
        fail_expected(r, "']'");
}

/* "layers.{i0}#1": the module's path, and how its place is told from that of another call. */
static void read_path(reader *r, fam_stmt *s)
{
    plim_str path = read_starred(r, "(", &s->index);
    const char *nth = path.n ? memchr(path.p, '#', path.n) : NULL;
    s->part = copy_text(r, "/", path, "");
    s->text = copy_text(r, "", (plim_str){path.p, nth ? (size_t)(nth - path.p) : path.n}, "");
}

static void read_item(reader *r, fam_stmt *s, uint32_t *items)
{
    s->at = read_small(r);
    *items = PLIM_MAX(*items, s->at + 1);
    if (plim_fam_take(&r->line, "call/") || plim_fam_take(&r->line, "call ")) {
        s->what = FAM_CALL;
        s->outside = r->line.p[-1] == '/';
        read_path(r, s);
    } else if (plim_fam_take(&r->line, "loop")) {
        s->what = FAM_LOOP;
        r->line.p -= 4;
        s->part = copy_text(r, "/", read_name(r), "");
        s->expr = plim_fam_parse(r->x, &r->line);
    } else {
        plim_str target = read_upto(r, "(");
        bool other = target.n && *target.p == ':',
             overload = target.n && memchr(target.p + other, '.', target.n - other);
        s->what = FAM_OP;
        target.p += other;
        target.n -= other;
        s->text = copy_text(r, other ? "" : "aten.", target, overload ? "" : ".default");
    }
    if (!plim_fam_take(&r->line, "("))
        fail_expected(r, "'('");
    s->args = read_args(r, ")", true, &s->n, 0);
    read_results(r, s);
}

/* "weight [hidden_size] $dtype" */
static void read_leaf(reader *r, fam_stmt *s)
{
    s->what = s->what ? s->what : FAM_LEAF;
    s->text = copy_text(r, "", read_name(r), "");
    if (!plim_fam_take(&r->line, "["))
        fail_expected(r, "'['");
    const fam_arg *dims = read_args(r, "]", false, &s->n, 0);
    fam_arg *all = PLIM_NEW_N(r->p->names.arena, fam_arg, (uint64_t)s->n + 1);
    if (!all) {
        plim_fam_oom(r->x);
        return;
    }
    memcpy(all, dims, s->n * sizeof *dims);
    all[s->n] = read_arg(r, 0); /* its type */
    s->args = all;
}

static void read_tie(reader *r, fam_stmt *s)
{
    fam_arg *to = PLIM_NEW(r->p->names.arena, fam_arg);
    s->what = FAM_TIE;
    s->text = copy_text(r, "", read_name(r), "");
    if (!to) {
        plim_fam_oom(r->x);
        return;
    }
    to->kind = FAM_A_TEXT;
    to->text = read_name(r);
    s->args = to;
}

/* The words that begin a statement, other than the number of an item. */
static bool read_worded(reader *r, fam_stmt *s)
{
    static const struct {
        const char *word;
        fam_what what;
        enum { WORD, REFS, NAMED_REFS, COUNT } then;
    } words[] = {{"held", FAM_HELD, REFS},     {"return", FAM_RETURN, NAMED_REFS},
                 {"next", FAM_NEXT, REFS},     {"keep", FAM_KEEP, REFS},
                 {"type", FAM_TYPE, WORD},     {"child", FAM_CHILD, WORD},
                 {"list", FAM_CHILDREN, COUNT}};
    for (size_t i = 0; i < PLIM_COUNT(words); i++) {
        if (!take_word(r, words[i].word))
            continue;
        s->what = words[i].what;
        if (words[i].then == WORD)
            s->text = copy_text(r, "", read_name(r), "");
        else if (words[i].then == COUNT)
            s->expr = plim_fam_parse(r->x, &r->line);
        else
            s->args = read_args(r, "", words[i].then == NAMED_REFS, &s->n, 0);
        return true;
    }
    s->frozen = take_word(r, "frozen");
    s->param = s->frozen || take_word(r, "param");
    s->persistent = s->param || take_word(r, "buffer");
    if (s->persistent || take_word(r, "temporary")) {
        read_leaf(r, s);
        return true;
    }
    if (!take_word(r, "tie"))
        return false;
    read_tie(r, s);
    return true;
}

/* "%12 and TEST": if item 12 ran, and the test passes; either may be missing. */
static void read_test(reader *r, fam_stmt *s, uint32_t *items)
{
    s->what = FAM_IF;
    if (plim_fam_take(&r->line, "%")) {
        s->at = read_small(r);
        s->n = 1;
        *items = PLIM_MAX(*items, s->at + 1);
    }
    if (!s->n || take_word(r, "and"))
        s->expr = plim_fam_parse(r->x, &r->line);
}

/* One statement; the reader is then at the next line. */
static void read_statement(reader *r, fam_stmt *s, uint32_t indent, uint32_t *items)
{
    bool test = take_word(r, "if");
    if (test) {
        read_test(r, s, items);
    } else if (!read_worded(r, s)) {
        read_item(r, s, items);
    }
    plim_fam_space(&r->line);
    if (r->line.p < r->line.end)
        fail_expected(r, "the end of the line");
    next_line(r);
    if (test)
        s->body = read_statements(r, indent + 1, items);
}

static const fam_stmt *read_statements(reader *r, uint32_t indent, uint32_t *items)
{
    fam_stmt *first = NULL, **end = &first;
    while (!r->x->st && !r->done && r->indent == indent) {
        fam_stmt *s = PLIM_NEW(r->p->names.arena, fam_stmt);
        if (!s) {
            plim_fam_oom(r->x);
            return NULL;
        }
        *end = s;
        end = &s->next;
        read_statement(r, s, indent, items);
    }
    return first;
}

/* ---- the whole text ----------------------------------------------------------------------------- */

const fam_block *plim_fam_block(const fam_program *p, plim_str place)
{
    uint32_t at;
    return plim_map_get(&p->places, place.n ? place : PLIM_STR("/"), &at) ? &p->blocks[at - 1]
                                                                          : NULL;
}

/* "at /model/norm, /model/layers.*: what happens there" */
static void read_block(reader *r)
{
    fam_program *p = r->p;
    fam_block block = {0};
    do {
        if (!plim_map_put(p->names.arena, &p->places, read_upto(r, ","), p->n_blocks + 1))
            plim_fam_oom(r->x);
    } while (plim_fam_take(&r->line, ","));
    next_line(r);
    block.first = read_statements(r, 1, &block.items);
    if (!PLIM_PUSH_ROOM(p->names.arena, p->blocks, p->n_blocks, p->cap_blocks))
        plim_fam_oom(r->x);
    else
        p->blocks[p->n_blocks++] = block;
}

/* "rope_parameters.rope_type" is in an object of the configuration. */
static plim_str note_objects(reader *r, plim_str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] == '.' &&
            !plim_map_put(r->p->names.arena, &r->p->objects, (plim_str){name.p, i}, 1))
            plim_fam_oom(r->x);
    return name;
}

/* "layer_types?: list = [num_hidden_layers] 'full_attention'"; without a default the file must have it */
static void read_key(reader *r)
{
    fam_program *p = r->p;
    fam_key k = {.text = note_objects(r, read_name(r))};
    k.name = plim_fam_name(r->x, k.text);
    k.optional = plim_fam_take(&r->line, "?");
    if (!plim_fam_take(&r->line, ":"))
        fail_expected(r, "':'");
    k.domain = read_upto(r, "=");
    while (k.domain.n && k.domain.p[k.domain.n - 1] == ' ')
        k.domain.n--;
    bool fallback = plim_fam_take(&r->line, "=");
    fam_line from = r->line;
    if (fallback)
        k.fallback = plim_fam_parse(r->x, &r->line);
    plim_fam_space(&r->line);
    if (r->line.p < r->line.end) { /* a length before its items */
        r->line = from;
        plim_fam_take(&r->line, "[");
        k.length = plim_fam_parse(r->x, &r->line);
        if (!plim_fam_take(&r->line, "]"))
            fail_expected(r, "']'");
        k.fallback = plim_fam_parse(r->x, &r->line);
    }
    if (!PLIM_PUSH_ROOM(p->names.arena, p->keys, p->n_keys, p->cap_keys))
        plim_fam_oom(r->x);
    else
        p->keys[p->n_keys++] = k;
}

static void read_names(reader *r, plim_map *into)
{
    plim_fam_space(&r->line);
    while (!r->x->st && r->line.p < r->line.end)
        if (!plim_map_put(r->p->names.arena, into, note_objects(r, read_name(r)), 1))
            plim_fam_oom(r->x);
        else
            plim_fam_space(&r->line);
}

/* "alias n_embd hidden_size" */
static void read_alias(reader *r)
{
    fam_program *p = r->p;
    plim_str other = read_name(r), key = read_name(r);
    if (!plim_map_put(p->names.arena, &p->aliases, other, p->n_aliases + 1) ||
        !PLIM_PUSH_ROOM(p->names.arena, p->alias, p->n_aliases, p->cap_aliases))
        plim_fam_oom(r->x);
    else
        p->alias[p->n_aliases++] = key;
}

/* "letters layers_block_type M=linear_attention E=moe" */
static void read_letters(reader *r)
{
    const plim_str name = read_name(r);
    plim_fam_space(&r->line);
    for (uint32_t i = 0; i < r->p->n_keys; i++)
        if (r->p->keys[i].name == plim_fam_name(r->x, name))
            r->p->keys[i].letters = (plim_str){r->line.p, (size_t)(r->line.end - r->line.p)};
}

static fam_stmt *read_input(reader *r, fam_what what, fam_stmt *last)
{
    fam_stmt *s = PLIM_NEW(r->p->names.arena, fam_stmt);
    if (!s) {
        plim_fam_oom(r->x);
        return last;
    }
    s->what = what;
    read_leaf(r, s);
    if (last)
        last->next = s;
    else
        r->p->inputs = s;
    return s;
}

/* "image image_size, image_size fixed" */
static void read_image(reader *r)
{
    fam_program *p = r->p;
    p->image[0] = plim_fam_parse(r->x, &r->line);
    if (!plim_fam_take(&r->line, ","))
        fail_expected(r, "','");
    p->image[1] = plim_fam_parse(r->x, &r->line);
    p->fixed = plim_fam_take(&r->line, "fixed");
}

/* "size $patches = $height // 16 * ($width // 16)" */
static void read_size(reader *r)
{
    fam_program *p = r->p;
    fam_size size = {.name = read_upto(r, " =")};
    if (!plim_fam_take(&r->line, "="))
        fail_expected(r, "'='");
    size.expr = plim_fam_parse(r->x, &r->line);
    if (!PLIM_PUSH_ROOM(p->names.arena, p->sizes, p->n_sizes, p->cap_sizes))
        plim_fam_oom(r->x);
    else
        p->sizes[p->n_sizes++] = size;
}

/* "requires depth > 3" */
static void read_required(reader *r)
{
    plim_fam_space(&r->line);
    r->p->requires = (plim_str){r->line.p, (size_t)(r->line.end - r->line.p)};
    r->p->required = plim_fam_parse(r->x, &r->line);
}

/* "class Qwen3ForCausalLM" */
static void read_head(reader *r)
{
    fam_program *p = r->p;
    const struct {
        const char *word;
        plim_str *value;
    } words[] = {{"family", &p->family},       {"class", &p->class},    {"task", &p->task},
                 {"attention", &p->attention}, {"flat", &p->flat},      {"made", &p->made},
                 {"kernels", &p->kernels},     {"without", &p->without}};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (take_word(r, words[i].word)) {
            const char *value = copy_text(r, "", read_upto(r, ""), "");
            *words[i].value = value ? plim_str_of(value) : PLIM_STR("");
            return;
        }
}

plim_status plim_fam_read(fam_program *p, plim_arena *a, plim_str text, plim_err *err)
{
    *p = (fam_program){.names = {.arena = a, .err = err}};
    plim_buf_init(&p->unread, a);
    reader r = {.p = p, .x = &p->names, .left = text};
    fam_stmt *inputs = NULL;
    next_line(&r);
    while (!p->names.st && !r.done) {
        if (take_word(&r, "at")) {
            read_block(&r);
            continue;
        }
        if (take_word(&r, "key"))
            read_key(&r);
        else if (take_word(&r, "ignored"))
            read_names(&r, &p->ignored);
        else if (take_word(&r, "read"))
            read_names(&r, &p->read);
        else if (take_word(&r, "ropes"))
            read_names(&r, &p->ropes);
        else if (take_word(&r, "alias"))
            read_alias(&r);
        else if (take_word(&r, "letters"))
            read_letters(&r);
        else if (take_word(&r, "input"))
            inputs = read_input(&r, FAM_INPUT, inputs);
        else if (take_word(&r, "kept")) {
            inputs = read_input(&r, FAM_INPUT, inputs);
            if (inputs)
                inputs->kept = true;
        } else if (take_word(&r, "positions"))
            p->positions = plim_fam_parse(r.x, &r.line);
        else if (take_word(&r, "image"))
            read_image(&r);
        else if (take_word(&r, "seq"))
            p->seq = plim_fam_parse(r.x, &r.line);
        else if (take_word(&r, "frames"))
            p->frames = plim_fam_parse(r.x, &r.line);
        else if (take_word(&r, "requires"))
            read_required(&r);
        else if (take_word(&r, "multiple"))
            p->multiple = plim_fam_parse(r.x, &r.line);
        else if (take_word(&r, "size"))
            read_size(&r);
        else if (take_word(&r, "labels"))
            inputs = read_input(&r, FAM_LABELS, inputs);
        else
            read_head(&r);
        next_line(&r);
    }
    return p->names.st;
}
