/* settings.c -- see settings.h, and plimsoll.h for the public functions. */
#include "settings/settings.h"

#include <stdio.h>

#include "base/fmt.h"

/* Words that have a description, too, each after a space: 'plimsoll loops', 'plimsoll losses'. */
static const char loop_words[] =
#define PLIM_LOOP(name, doc, src) " " #name
#include "settings/loops.def"
#undef PLIM_LOOP
    ;
static const char loss_words[] =
#define PLIM_LOSS(name, doc, src) " " #name
#include "settings/losses.def"
#undef PLIM_LOSS
    ;

const plim_setting_row plim_setting_rows[PLIM_SETTING_COUNT] = {
#define SETTING(name, KIND, ...)                                                              \
    [PLIM_SET_##name] = {.key = #name, .kind = PLIM_SETTING_##KIND, __VA_ARGS__},
#include "settings/settings.def"
#undef SETTING
};

/* The offset of each setting's field. */
static const size_t field_at[PLIM_SETTING_COUNT] = {
#define SETTING(name, KIND, ...) [PLIM_SET_##name] = offsetof(struct plim_settings, name),
#include "settings/settings.def"
#undef SETTING
};

enum {
    TEXT_LIMIT = 1 << 16, /* characters of one value */
    NEAR_LETTERS = 2,     /* letters in which a suggested name may differ */
};

/* ---- rows ------------------------------------------------------------------------ */

/* The position of a word in a list such as "train infer", from 1; 0: it is not there. */
static int find_word(const char *words, plim_str word)
{
    for (int i = 1; words && *words; i++) {
        size_t n = strcspn(words, " ");
        if (plim_str_eq(word, (plim_str){words, n}))
            return i;
        words += n + strspn(words + n, " ");
    }
    return 0;
}

/* Word n of such a list, counted from 1; {NULL, 0}: there is no such word. */
static plim_str word_at(const char *word, int n)
{
    for (int i = 1; word && *word && i < n; i++) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    return n < 1 || !word || !*word ? (plim_str){NULL, 0}
                                    : (plim_str){word, strcspn(word, " ")};
}

plim_str plim_setting_word(plim_setting_id id, int n)
{
    plim_assert((unsigned)id < PLIM_SETTING_COUNT);
    return word_at(plim_setting_rows[id].words, n);
}

bool plim_setting_is(const plim_settings *s, plim_setting_id id, const char *word)
{
    plim_assert(find_word(plim_setting_rows[id].words, plim_str_of(word)) > 0);
    return s->text[id].p && plim_str_is(plim_str_of(s->text[id].p), word);
}

/* Does this command ("estimate") take the setting? */
static bool is_taken(const plim_setting_row *row, const char *command)
{
    return find_word(row->commands, plim_str_of(command)) > 0;
}

/* "zero_grad", "zero-grad" and "--zero-grad" name the same key. */
static bool same_key(const char *key, const char *name)
{
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    for (; *key && *name; key++, name++)
        if (*key != (*name == '-' ? '_' : *name))
            return false;
    return !*key && !*name;
}

static plim_status find_setting(const char *name, plim_setting_id *id, plim_err *err)
{
    const char *near = NULL;
    uint32_t best = NEAR_LETTERS + 1;
    for (int i = 0; i < PLIM_SETTING_COUNT; i++) {
        const char *key = plim_setting_rows[i].key;
        uint32_t distance = plim_edit_distance(plim_str_of(name), plim_str_of(key));
        if (same_key(key, name)) {
            *id = (plim_setting_id)i;
            return PLIM_OK;
        }
        if (distance >= strlen(key)) /* of a short key nothing is left */
            continue;
        near = distance < best ? key : near;
        best = PLIM_MIN(best, distance);
    }
    return plim_fail(err, PLIM_EUSAGE, 0, "unknown setting '%.80s'%s%s%s", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool plim_setting_at(uint32_t i, plim_setting_info *out)
{
    if (!out || i >= PLIM_SETTING_COUNT)
        return false;
    const plim_setting_row *r = &plim_setting_rows[i];
    const plim_setting_info info = {.size = sizeof info,
                                    .key = r->key,
                                    .kind = r->kind,
                                    .arg = r->arg,
                                    .words = r->words,
                                    .least = r->least,
                                    .most = r->most,
                                    .preset = r->preset,
                                    .group = r->group,
                                    .commands = r->commands,
                                    .doc = r->doc,
                                    .list = r->list};
    plim_copy_out(out, &info, sizeof info);
    return true;
}

/* ---- settings -------------------------------------------------------------------- */

plim_settings *plim_settings_in(plim_arena *a, const plim_settings *from)
{
    plim_settings *s = PLIM_NEW(a, plim_settings);
    if (!s)
        return NULL;
    s->arena = a;
    if (!from)
        return s;
    s->progress = from->progress;
    s->progress_ud = from->progress_ud;
    for (int i = 0; i < PLIM_SETTING_COUNT; i++)
        if (from->text[i].p && plim_settings_put(s, (plim_setting_id)i, from->text[i].p, NULL))
            return NULL;
    return s;
}

plim_status plim_settings_new(plim_settings **out, plim_err *err)
{
    PLIM_REQUIRE(out, err);
    return plim_settings_copy(NULL, out, err);
}

plim_status plim_settings_copy(const plim_settings *from, plim_settings **out, plim_err *err)
{
    PLIM_REQUIRE(out, err);
    plim_arena a = PLIM_ARENA_INIT;
    plim_settings *s = plim_settings_in(&a, from);
    if (!s) {
        plim_arena_free(&a);
        return plim_oom(err);
    }
    s->own = a; /* the arena now lives in its own memory */
    s->arena = &s->own;
    *out = s;
    return PLIM_OK;
}

void plim_settings_free(plim_settings *s)
{
    if (!s)
        return;
    plim_arena a = s->own; /* a copy, because freeing the arena frees *s */
    plim_arena_free(&a);
}

void plim_settings_on_progress(plim_settings *s, plim_progress progress, void *ud)
{
    if (!s)
        return;
    s->progress = progress;
    s->progress_ud = ud;
}

/* ---- values from text ------------------------------------------------------------ */

/* A parsed value and its normal form. */
typedef struct setting_value {
    union {
        bool flag;
        int64_t i;
        uint64_t size;
        double fraction;
        int word;
    };
    plim_str text;
    char room[32];
} setting_value;

static plim_status read_flag(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    (void)r;
    if (find_word("true 1 yes on", v->text))
        v->flag = true;
    else if (!find_word("false 0 no off", v->text))
        return plim_fail(err, PLIM_EUSAGE, 0, "expected true or false, got '" PLIM_STR_FMT "'",
                         PLIM_STR_CUT(v->text));
    v->text = v->flag ? PLIM_STR("true") : PLIM_STR("false");
    return PLIM_OK;
}

static plim_status read_int(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    bool minus = v->text.n && v->text.p[0] == '-';
    int64_t n = 0;
    bool large = false;
    for (size_t i = minus; i < v->text.n; i++) {
        int digit = v->text.p[i] - '0';
        if (digit < 0 || digit > 9)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "expected an integer, got '" PLIM_STR_FMT "'",
                             PLIM_STR_CUT(v->text));
        large |= n > (INT64_MAX - digit) / 10;
        n = large ? n : n * 10 + digit;
    }
    if (v->text.n == minus)
        return plim_fail(err, PLIM_EUSAGE, 0, "expected an integer, got '" PLIM_STR_FMT "'",
                         PLIM_STR_CUT(v->text));
    if (large || minus || n < r->least || n > r->most)
        return plim_fail(err, PLIM_EUSAGE, 0, PLIM_STR_FMT " is not in %" PRId64 "..%" PRId64,
                         PLIM_STR_CUT(v->text), r->least, r->most);
    v->i = n;
    snprintf(v->room, sizeof v->room, "%" PRId64, n);
    v->text = plim_str_of(v->room);
    return PLIM_OK;
}

static plim_status read_size(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    plim_err why = PLIM_ERR_INIT;
    if (plim_parse_size(v->text, &v->size, &why))
        return plim_fail(err, PLIM_EUSAGE, why.at, "%s", why.msg);
    if (v->size < (uint64_t)r->least)
        return plim_fail(err, PLIM_EUSAGE, 0, "%s is less than %s: add a unit, as in 24GiB",
                         plim_fmt_bytes(v->size, false).s,
                         plim_fmt_bytes((uint64_t)r->least, false).s);
    snprintf(v->room, sizeof v->room, "%" PRIu64, v->size);
    v->text = plim_str_of(v->room);
    return PLIM_OK;
}

static plim_status read_fraction(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    (void)r;
    if (!plim_parse_double(v->text, &v->fraction) || !(v->fraction > 0 && v->fraction <= 1))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "expected a number above 0 and up to 1, got '" PLIM_STR_FMT "'",
                         PLIM_STR_CUT(v->text));
    snprintf(v->room, sizeof v->room, "%s", plim_fmt_double(v->fraction).s);
    v->text = plim_str_of(v->room);
    return PLIM_OK;
}

/* find_word for what PyTorch calls the same: "torch.float16" is fp16; upper and lower case,
 * '-' and '_' do not matter. */
static int find_synonym(const char *words, plim_str word)
{
    static const char *const torch[] = {"float fp32",   "float32 fp32",  "half fp16",
                                        "float16 fp16", "bfloat16 bf16", "double fp64",
                                        "float64 fp64"};
    char room[32];
    if (plim_str_starts(word, "torch."))
        word = (plim_str){word.p + 6, word.n - 6};
    if (word.n > sizeof room)
        return 0;
    for (size_t i = 0; i < word.n; i++) {
        char c = word.p[i];
        room[i] = c == '-' ? '_' : plim_lower(c);
    }
    word.p = room;
    for (size_t i = 0; i < PLIM_COUNT(torch); i++)
        if (plim_str_eq(word, word_at(torch[i], 1)))
            return find_word(words, word_at(torch[i], 2));
    return find_word(words, word);
}

static plim_status read_word(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    plim_buf known;
    plim_arena a = PLIM_ARENA_INIT;
    v->word = find_word(r->words, v->text);
    if (!v->word)
        v->word = find_synonym(r->words, v->text);
    if (v->word) {
        v->text = word_at(r->words, v->word);
        return PLIM_OK;
    }
    plim_buf_init(&known, &a);
    for (const char *w = r->words; *w; w++)
        plim_buf_add(&known, *w == ' ' ? PLIM_STR(", ") : (plim_str){w, 1});
    plim_fail(err, PLIM_EUSAGE, 0,
              "unknown value '" PLIM_STR_FMT "' (expected one of " PLIM_STR_FMT ")",
              PLIM_STR_CUT(v->text), PLIM_STR_ARG(plim_buf_str(&known)));
    plim_arena_free(&a);
    return PLIM_EUSAGE;
}

static plim_status read_text(const plim_setting_row *r, setting_value *v, plim_err *err)
{
    bool may_be_empty = r->preset && !*r->preset;
    return v->text.n || may_be_empty ? PLIM_OK
                                     : plim_fail(err, PLIM_EUSAGE, 0, "the value is empty");
}

typedef plim_status read_fn(const plim_setting_row *r, setting_value *v, plim_err *err);
static read_fn *const readers[] = {
    [PLIM_SETTING_FLAG] = read_flag, [PLIM_SETTING_INT] = read_int,
    [PLIM_SETTING_SIZE] = read_size, [PLIM_SETTING_FRACTION] = read_fraction,
    [PLIM_SETTING_WORD] = read_word, [PLIM_SETTING_TEXT] = read_text,
    [PLIM_SETTING_LIST] = read_text,
};

/* ---- values into fields ---------------------------------------------------------- */

static void set_field(plim_settings *s, plim_setting_id id, const setting_value *v)
{
    void *field = (char *)s + field_at[id];
    const char *text = s->text[id].p;
    switch (plim_setting_rows[id].kind) {
    case PLIM_SETTING_FLAG: *(bool *)field = v->flag; break;
    case PLIM_SETTING_INT: *(int64_t *)field = v->i; break;
    case PLIM_SETTING_SIZE: *(uint64_t *)field = v->size; break;
    case PLIM_SETTING_FRACTION: *(double *)field = v->fraction; break;
    case PLIM_SETTING_WORD: *(int *)field = v->word; break;
    case PLIM_SETTING_TEXT:
    case PLIM_SETTING_LIST: *(const char **)field = text; break;
    }
}

/* Keeps a copy of the text.  The buffer is reused, so that setting a value many times takes
 * memory for its longest text only. */
static plim_status keep_text(plim_settings *s, plim_setting_id id, plim_str text,
                             plim_err *err)
{
    plim_setting_text *t = &s->text[id];
    if (t->p == text.p && t->p)
        return PLIM_OK;
    if (!t->p || t->room <= text.n) {
        size_t room = PLIM_MAX(t->p ? 2 * t->room : 0, text.n + 1);
        char *p = PLIM_NEW_N(s->arena, char, room);
        if (!p)
            return plim_oom(err);
        *t = (plim_setting_text){p, room};
    }
    if (text.p)
        memmove(t->p, text.p, text.n);
    t->p[text.n] = '\0';
    return PLIM_OK;
}

plim_status plim_settings_put(plim_settings *s, plim_setting_id id, const char *value,
                              plim_err *err)
{
    const plim_setting_row *r = &plim_setting_rows[id];
    setting_value v = {.i = 0, .text = plim_str_of(value)};
    plim_status st = PLIM_OK;
    if (v.text.n > TEXT_LIMIT)
        return plim_fail(err, PLIM_EUSAGE, 0, "the value has %zu characters, the limit is %d",
                         v.text.n, TEXT_LIMIT);
    if (value && !(st = readers[r->kind](r, &v, err)))
        st = keep_text(s, id, v.text, err);
    if (st)
        return st;
    if (!value)
        s->text[id].p = NULL;
    set_field(s, id, &v);
    return PLIM_OK;
}

/* As plim_settings_put; errors name the setting as the caller spelled it. */
static plim_status put_named(plim_settings *s, plim_setting_id id, const char *key,
                             const char *value, plim_err *err)
{
    plim_status st = plim_settings_put(s, id, value, err);
    if (st)
        plim_err_prefix(err, "'%s': ", key);
    return st;
}

plim_status plim_settings_set(plim_settings *s, const char *key, const char *value,
                              plim_err *err)
{
    plim_setting_id id;
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(key, err);
    PLIM_TRY(find_setting(key, &id, err));
    return put_named(s, id, key, value, err);
}

plim_status plim_settings_add(plim_settings *s, const char *key, const char *value,
                              plim_err *err)
{
    plim_setting_id id;
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(key, err);
    PLIM_TRY(find_setting(key, &id, err));
    const char *have = s->text[id].p;
    if (plim_setting_rows[id].kind != PLIM_SETTING_LIST || !have || !value || !*value)
        return put_named(s, id, key, value, err);
    plim_arena a = PLIM_ARENA_INIT;
    plim_str both = plim_arena_printf(&a, "%s;%s", have, value);
    plim_status st = both.p ? put_named(s, id, key, both.p, err) : plim_oom(err);
    plim_arena_free(&a);
    return st;
}

const char *plim_settings_get(const plim_settings *s, const char *key)
{
    plim_setting_id id;
    return s && key && !find_setting(key, &id, NULL) ? s->text[id].p : NULL;
}

plim_status plim_settings_preset(plim_settings *s, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (int i = 0; i < PLIM_SETTING_COUNT && !st; i++)
        if (!s->text[i].p && plim_setting_rows[i].preset)
            st = plim_settings_put(s, (plim_setting_id)i, plim_setting_rows[i].preset, err);
    return st;
}

plim_status plim_settings_drop_training(plim_settings *s, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (int i = 0; i < PLIM_SETTING_COUNT && !st; i++)
        if (plim_setting_rows[i].training)
            st = plim_settings_put(s, (plim_setting_id)i, NULL, err);
    return st;
}

/* ---- JSON ------------------------------------------------------------------------ */

/* A value may be a JSON string, number or bool, whatever the kind of the setting. */
static plim_status read_member(plim_settings *s, plim_json *j, plim_str key, plim_arena *a,
                               plim_err *err)
{
    plim_str name = plim_json_unescape(a, key), value = {NULL, 0};
    plim_json_kind kind = plim_json_peek(j);
    if (!name.p)
        return plim_oom(err);
    if (kind == PLIM_JSON_ARRAY || kind == PLIM_JSON_OBJECT)
        return plim_fail(err, PLIM_EUSAGE, 0, "setting '%.80s' is not a single value", name.p);
    if (kind == PLIM_JSON_NULL) {
        plim_json_null(j);
        return plim_settings_set(s, name.p, NULL, err);
    }
    if (kind == PLIM_JSON_STRING)
        value = plim_json_unescape(a, plim_json_str(j));
    else
        value = plim_arena_str(a, plim_json_raw(j));
    if (!value.p)
        return plim_oom(err);
    if (memchr(value.p, '\0', value.n))
        return plim_fail(err, PLIM_EUSAGE, 0, "setting '%.80s' has a NUL character", name.p);
    return plim_settings_set(s, name.p, value.p, err);
}

/* Moves `j` to the settings: the object itself or, in a report, its member "settings".  Checks
 * that the whole text is JSON. */
static plim_status find_settings(plim_json *j)
{
    plim_str key;
    plim_json whole = *j;
    for (plim_json_object(&whole); plim_json_member(&whole, &key); plim_json_skip(&whole))
        if (plim_str_is(key, "settings") && plim_json_peek(&whole) == PLIM_JSON_OBJECT)
            *j = whole;
    return plim_json_end(&whole);
}

plim_status plim_settings_set_json(plim_settings *s, const char *json, size_t n, plim_err *err)
{
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(json, err);
    plim_arena a = PLIM_ARENA_INIT;
    plim_json j;
    plim_str key;
    plim_json_init(&j, (plim_str){json, n}, err);
    plim_status st = find_settings(&j);
    plim_json_object(&j);
    while (!st && plim_json_member(&j, &key))
        st = read_member(s, &j, key, &a, err);
    plim_arena_free(&a);
    return st ? st : j.bad;
}

plim_status plim_settings_load(plim_settings *s, const char *path, plim_err *err)
{
    plim_bytes file = {0};
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(path, err);
    PLIM_TRY(plim_file_read(&file, path, err));
    plim_status st =
        plim_settings_set_json(s, file.n ? (const char *)file.p : "", (size_t)file.n, err);
    if (st)
        plim_err_prefix(err, "'%s': ", path);
    plim_file_close(&file);
    return st;
}

static void write_value(plim_jw *w, const plim_settings *s, plim_setting_id id)
{
    const char *text = s->text[id].p;
    const void *field = (const char *)s + field_at[id];
    if (!text) {
        plim_jw_null(w);
        return;
    }
    switch (plim_setting_rows[id].kind) {
    case PLIM_SETTING_FLAG: plim_jw_bool(w, *(const bool *)field); break;
    case PLIM_SETTING_INT: plim_jw_i64(w, *(const int64_t *)field); break;
    case PLIM_SETTING_SIZE: plim_jw_u64(w, *(const uint64_t *)field); break;
    case PLIM_SETTING_FRACTION: plim_jw_f64(w, *(const double *)field); break;
    default: plim_jw_cstr(w, text); break;
    }
}

void plim_settings_write(plim_jw *w, const plim_settings *s, const char *command)
{
    plim_jw_object(w);
    for (int i = 0; i < PLIM_SETTING_COUNT; i++) {
        if (command && !is_taken(&plim_setting_rows[i], command))
            continue;
        plim_jw_key(w, plim_setting_rows[i].key);
        write_value(w, s, (plim_setting_id)i);
    }
    plim_jw_end(w);
}

plim_status plim_settings_json(const plim_settings *s, plim_put put, void *ud, plim_err *err)
{
    PLIM_REQUIRE(s, err);
    PLIM_REQUIRE(put, err);
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    plim_jw w;
    plim_buf_init(&b, &a);
    plim_jw_init(&w, &b);
    plim_settings_write(&w, s, NULL);
    plim_buf_puts(&b, "\n");
    plim_status st = b.bad ? plim_oom(err) : plim_put_out(put, ud, plim_buf_str(&b), err);
    plim_arena_free(&a);
    return st;
}
