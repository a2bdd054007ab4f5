/* tree_formats.c -- how files of each format are taken apart, and what may stand in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree.h"

enum { DEEPEST = 100 };

/* Bytes that are gone through; past the end there are zeros, and `bad` says so. */
typedef struct cursor {
    tree_arena *a;
    const uint8_t *p;
    size_t n, at;
    bool bad, big; /* big: numbers are big-endian */
} cursor;

static tree_span take_span(cursor *c, uint64_t n)
{
    if (n > c->n - c->at) {
        c->bad = true;
        n = c->n - c->at;
    }
    tree_span s = {c->p + c->at, (size_t)n};
    c->at += (size_t)n;
    return s;
}

static uint64_t take_number(cursor *c, size_t n)
{
    tree_span s = take_span(c, n);
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++)
        v |= (uint64_t)s.p[c->big ? s.n - 1 - i : i] << 8 * i;
    return v;
}

static tree_span rest_of(cursor *c) { return take_span(c, c->n - c->at); }

static tree_node *wrap_rest(cursor *c, torture_format f)
{
    return tree_leaf(c->a, f, TREE_OTHER, rest_of(c));
}

/* ---- JSON ----------------------------------------------------------------------- */

static void skip_space(cursor *c)
{
    while (c->at < c->n && strchr(" \t\r\n", c->p[c->at]) && c->p[c->at])
        c->at++;
}

static bool take_byte(cursor *c, char byte)
{
    skip_space(c);
    if (c->at == c->n || c->p[c->at] != (uint8_t)byte)
        return false;
    c->at++;
    return true;
}

static tree_node *quote_text(tree_arena *a, tree_span text)
{
    tree_node *n = tree_leaf(a, TORTURE_JSON, TREE_STRING, text);
    n->head = n->tail = tree_text("\"");
    return n;
}

static tree_node *parse_json_string(cursor *c)
{
    size_t from = ++c->at;
    while (c->at < c->n && c->p[c->at] != '"')
        c->at += c->p[c->at] == '\\' && c->at + 1 < c->n ? 2 : 1;
    tree_node *n = quote_text(c->a, (tree_span){c->p + from, c->at - from});
    c->bad |= c->at == c->n;
    c->at += c->at < c->n;
    return n;
}

static tree_node *parse_json(cursor *c, int depth);

static tree_node *parse_json_list(cursor *c, char open, char close, int depth)
{
    tree_node *list = tree_list(c->a, TORTURE_JSON);
    list->head = tree_text(open == '{' ? "{" : "[");
    list->tail = tree_text(open == '{' ? "}" : "]");
    list->separator = tree_text(",");
    c->at++;
    while (!c->bad && !take_byte(c, close)) {
        tree_node *item = parse_json(c, depth + 1);
        if (open == '{' && take_byte(c, ':')) {
            tree_node *member = tree_list(c->a, TORTURE_JSON);
            member->separator = tree_text(":");
            tree_append(c->a, member, item);
            tree_append(c->a, member, parse_json(c, depth + 1));
            item = member;
        }
        tree_append(c->a, list, item);
        if (!take_byte(c, ',') && (c->at == c->n || c->p[c->at] != (uint8_t)close))
            c->bad = true;
    }
    return list;
}

static tree_node *parse_json(cursor *c, int depth)
{
    skip_space(c);
    if (c->at == c->n || c->bad || depth > DEEPEST) {
        c->bad = true;
        return wrap_rest(c, TORTURE_JSON);
    }
    char first = (char)c->p[c->at];
    if (first == '{' || first == '[')
        return parse_json_list(c, first, first == '{' ? '}' : ']', depth);
    if (first == '"')
        return parse_json_string(c);
    size_t from = c->at;
    while (c->at < c->n && !strchr(",:]} \t\r\n", c->p[c->at]))
        c->at++;
    c->bad |= c->at == from;
    return tree_leaf(c->a, TORTURE_JSON,
                     first == '-' || (first >= '0' && first <= '9') ? TREE_NUMBER : TREE_OTHER,
                     (tree_span){c->p + from, c->at - from});
}

static tree_node *parse_json_file(cursor *c)
{
    tree_node *file = tree_list(c->a, TORTURE_JSON);
    tree_append(c->a, file, parse_json(c, 0));
    skip_space(c);
    if (c->at < c->n)
        tree_append(c->a, file, wrap_rest(c, TORTURE_JSON));
    return file;
}

static tree_node *parse_safetensors(cursor *c)
{
    tree_node *file = tree_list(c->a, TORTURE_SAFETENSORS);
    tree_span json = take_span(c, take_number(c, 8));
    cursor inner = {.a = c->a, .p = json.p, .n = json.n};
    tree_node *head = parse_json_file(&inner);
    head->length = TREE_U64;
    tree_append(c->a, file, head);
    tree_append(c->a, file, wrap_rest(c, TORTURE_BYTES));
    return file;
}

/* ---- protobuf -------------------------------------------------------------------- */

static uint64_t take_varint(cursor *c)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && !c->bad; shift += 7) {
        uint64_t byte = take_number(c, 1);
        v |= (byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
    c->bad = true;
    return v;
}

static bool looks_like_text(tree_span s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((s.p[i] < 0x20 && !strchr("\t\r\n", s.p[i])) || s.p[i] >= 0x7f || !s.p[i])
            return false;
    return true;
}

/* All of it as fields; NULL: it is none. */
static tree_node *parse_fields(tree_arena *a, tree_span s, int depth)
{
    cursor c = {.a = a, .p = s.p, .n = s.n};
    tree_node *message = tree_list(a, TORTURE_PROTOBUF);
    while (c.at < c.n && !c.bad && depth < DEEPEST) {
        size_t from = c.at;
        uint64_t tag = take_varint(&c);
        tree_span head = {s.p + from, c.at - from}, body;
        tree_node *field = NULL;
        if (tag < 8 || tag >> 32)
            return NULL;
        from = c.at;
        switch (tag & 7) {
        case 0:
            (void)take_varint(&c);
            field = tree_leaf(a, TORTURE_PROTOBUF, TREE_NUMBER,
                              (tree_span){s.p + from, c.at - from});
            field->number = TREE_VARINT;
            break;
        case 1:
        case 5:
            field = tree_leaf(a, TORTURE_PROTOBUF, TREE_NUMBER,
                              take_span(&c, (tag & 7) == 1 ? 8 : 4));
            field->number = (tag & 7) == 1 ? TREE_U64 : TREE_U32;
            break;
        case 2:
            body = take_span(&c, take_varint(&c));
            if (body.n && !looks_like_text(body) && !c.bad)
                field = parse_fields(a, body, depth + 1);
            if (!field)
                field = tree_leaf(a, TORTURE_PROTOBUF, TREE_STRING, body);
            field->length = TREE_VARINT;
            break;
        default: return NULL;
        }
        field->head = head;
        tree_append(a, message, field);
    }
    return c.bad || depth >= DEEPEST ? NULL : message;
}

/* ---- pickle ---------------------------------------------------------------------- */

static tree_node *take_line(cursor *c)
{
    size_t from = c->at;
    while (c->at < c->n && c->p[c->at] != '\n')
        c->at++;
    tree_node *n =
        tree_leaf(c->a, TORTURE_PICKLE, TREE_STRING, (tree_span){c->p + from, c->at - from});
    n->tail = tree_text("\n");
    c->bad |= c->at == c->n;
    c->at += c->at < c->n;
    return n;
}

/* An argument with its length in front. */
static tree_node *take_sized(cursor *c, tree_form length, size_t bytes)
{
    tree_node *n =
        tree_leaf(c->a, TORTURE_PICKLE, TREE_STRING, take_span(c, take_number(c, bytes)));
    n->length = length;
    return n;
}

static tree_node *take_fixed(cursor *c, tree_form form, size_t bytes)
{
    tree_node *n = tree_leaf(c->a, TORTURE_PICKLE, TREE_NUMBER, take_span(c, bytes));
    n->number = form;
    return n;
}

/* src: Lib/pickletools.py of Python 3.12 */
static tree_node *take_opcode(cursor *c)
{
    tree_span head = take_span(c, 1);
    tree_node *n;
    switch (head.p[0]) {
    case 'I':
    case 'L':
    case 'F':
        n = take_line(c);
        n->what = TREE_NUMBER;
        break;
    case 'S':
    case 'V':
    case 'P':
    case 'g':
    case 'p': n = take_line(c); break;
    case 'c':
    case 'i':
        n = tree_list(c->a, TORTURE_PICKLE);
        tree_append(c->a, n, take_line(c));
        tree_append(c->a, n, take_line(c));
        break;
    case 'K':
    case 'h':
    case 'q':
    case 0x80:
    case 0x82: n = take_fixed(c, TREE_U8, 1); break;
    case 'M':
    case 0x83: n = take_fixed(c, TREE_U16, 2); break;
    case 'J':
    case 'j':
    case 'r':
    case 0x84: n = take_fixed(c, TREE_U32, 4); break;
    case 'G': n = take_fixed(c, TREE_U64_BE, 8); break;
    case 0x95: n = take_fixed(c, TREE_U64, 8); break;
    case 'U':
    case 'C':
    case 0x8a:
    case 0x8c: n = take_sized(c, TREE_U8, 1); break;
    case 'T':
    case 'X':
    case 'B':
    case 0x8b: n = take_sized(c, TREE_U32, 4); break;
    case 0x8d:
    case 0x8e:
    case 0x96: n = take_sized(c, TREE_U64, 8); break;
    default: n = tree_leaf(c->a, TORTURE_PICKLE, TREE_OTHER, take_span(c, 0));
    }
    n->head = head;
    return n;
}

/* Old checkpoints are several pickles and then bytes. */
static tree_node *parse_pickles(cursor *c)
{
    tree_node *file = tree_list(c->a, TORTURE_PICKLE);
    bool more = true;
    while (more && c->at < c->n) {
        tree_node *pickle = tree_list(c->a, TORTURE_PICKLE);
        while (c->at < c->n && !c->bad) {
            tree_append(c->a, pickle, take_opcode(c));
            if (pickle->child[pickle->n - 1]->head.p[0] == '.')
                break;
        }
        tree_append(c->a, file, pickle);
        more = !c->bad && c->at < c->n && c->p[c->at] == 0x80;
    }
    if (c->at < c->n)
        tree_append(c->a, file, wrap_rest(c, TORTURE_BYTES));
    return file;
}

/* ---- GGUF ------------------------------------------------------------------------ */

static tree_form form_of(const cursor *c, size_t bytes)
{
    if (bytes == 8)
        return c->big ? TREE_U64_BE : TREE_U64;
    if (bytes == 4)
        return c->big ? TREE_U32_BE : TREE_U32;
    return bytes == 2 ? TREE_U16 : TREE_U8;
}

static tree_node *take_figure(cursor *c, size_t bytes)
{
    tree_node *n = tree_leaf(c->a, TORTURE_GGUF, TREE_NUMBER, take_span(c, bytes));
    n->number = form_of(c, bytes);
    return n;
}

static tree_node *take_name(cursor *c)
{
    tree_node *n = tree_leaf(c->a, TORTURE_GGUF, TREE_STRING, take_span(c, take_number(c, 8)));
    n->length = form_of(c, 8);
    return n;
}

enum { GGUF_STRING = 8, GGUF_ARRAY = 9 };
static const uint8_t gguf_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static tree_node *take_value(cursor *c, uint64_t type, int depth)
{
    if (type == GGUF_STRING)
        return take_name(c);
    if (type != GGUF_ARRAY) {
        c->bad |= type >= sizeof gguf_bytes;
        return take_figure(c, c->bad ? 0 : gguf_bytes[type]);
    }
    tree_node *array = tree_list(c->a, TORTURE_GGUF), *items = tree_list(c->a, TORTURE_GGUF);
    uint64_t of = take_number(c, 4), n = take_number(c, 8);
    tree_append(c->a, array, tree_number_leaf(c->a, TORTURE_GGUF, form_of(c, 4), of));
    tree_append(c->a, array, tree_number_leaf(c->a, TORTURE_GGUF, form_of(c, 8), n));
    array->child[1]->counts = items;
    for (uint64_t i = 0; i < n && !c->bad && depth < DEEPEST; i++)
        tree_append(c->a, items, take_value(c, of, depth + 1));
    tree_append(c->a, array, items);
    return array;
}

static tree_node *parse_gguf(cursor *c)
{
    tree_arena *a = c->a;
    tree_node *file = tree_list(a, TORTURE_GGUF), *head = tree_list(a, TORTURE_GGUF),
              *pairs = tree_list(a, TORTURE_GGUF), *tensors = tree_list(a, TORTURE_GGUF);
    tree_append(a, head, tree_leaf(a, TORTURE_GGUF, TREE_OTHER, take_span(c, 4)));
    c->big = c->n > 8 && !c->p[4] && c->p[7];
    tree_append(a, head, take_figure(c, 4));
    uint64_t n_tensors = take_number(c, 8), n_pairs = take_number(c, 8);
    for (int i = 0; i < 2; i++) {
        tree_node *count = tree_number_leaf(a, TORTURE_GGUF, form_of(c, 8), 0);
        count->counts = i ? pairs : tensors;
        tree_append(a, head, count);
    }
    for (uint64_t i = 0; i < n_pairs && !c->bad; i++) {
        tree_node *pair = tree_list(a, TORTURE_GGUF);
        tree_append(a, pair, take_name(c));
        uint64_t type = take_number(c, 4);
        tree_append(a, pair, tree_number_leaf(a, TORTURE_GGUF, form_of(c, 4), type));
        tree_append(a, pair, take_value(c, type, 0));
        tree_append(a, pairs, pair);
    }
    for (uint64_t i = 0; i < n_tensors && !c->bad; i++) {
        tree_node *tensor = tree_list(a, TORTURE_GGUF), *dims = tree_list(a, TORTURE_GGUF);
        tree_append(a, tensor, take_name(c));
        uint64_t rank = take_number(c, 4);
        tree_node *count = tree_number_leaf(a, TORTURE_GGUF, form_of(c, 4), rank);
        count->counts = dims;
        tree_append(a, tensor, count);
        for (uint64_t j = 0; j < rank && j < 8; j++)
            tree_append(a, dims, take_figure(c, 8));
        tree_append(a, tensor, dims);
        tree_append(a, tensor, take_figure(c, 4));
        tree_append(a, tensor, take_figure(c, 8));
        tree_append(a, tensors, tensor);
    }
    tree_append(a, head, pairs);
    tree_append(a, head, tensors);
    head->length = TREE_ALIGN;
    if (c->n - c->at >= 31)
        (void)take_span(c, (32 - c->at % 32) % 32);
    tree_append(a, file, head);
    tree_append(a, file, wrap_rest(c, TORTURE_BYTES));
    return file;
}

/* ---- recordings of CUDA's driver --------------------------------------------------- */

enum { CHUNK = 1 << 16, PIECE = 640, SLOT = 64, CHUNK_HEAD = 64, FILE_HEAD = 64 };

static void take_figures(cursor *c, tree_node *list, const char *bytes)
{
    for (; *bytes; bytes++) {
        size_t n = (size_t)(*bytes - '0');
        tree_node *leaf = tree_leaf(c->a, TORTURE_RECORDING, TREE_NUMBER, take_span(c, n));
        leaf->number = form_of(c, n);
        tree_append(c->a, list, leaf);
    }
}

static tree_node *parse_driver_chunk(cursor *c)
{
    tree_node *chunk = tree_list(c->a, TORTURE_RECORDING),
              *slots = tree_list(c->a, TORTURE_RECORDING);
    take_figures(c, chunk, "44844444444444");
    uint64_t used = chunk->child[1]->text.n == 4
                        ? chunk->child[1]->text.p[0] | (uint64_t)chunk->child[1]->text.p[1]
                                                           << 8
                        : 0;
    chunk->child[1]->sizes = slots;
    while (used >= SLOT && c->n - c->at >= SLOT) {
        tree_node *slot = tree_list(c->a, TORTURE_RECORDING);
        take_figures(c, slot, "888844442248");
        tree_append(c->a, slots, slot);
        used -= SLOT;
    }
    tree_append(c->a, chunk, slots);
    chunk->length = TREE_CHUNK;
    return chunk;
}

/* Seeds are such files, or the beginnings of chunks, PIECE bytes of each. */
static tree_node *parse_recording(cursor *c)
{
    tree_arena *a = c->a;
    tree_node *file = tree_list(a, TORTURE_RECORDING), *head = tree_list(a, TORTURE_RECORDING);
    bool whole = c->n >= CHUNK && memcmp(c->p, "PLREC", 5) == 0;
    static const char magic[8] = "PLREC\r\n\x1a", command[] = "python3 train.py";
    uint8_t bytes[FILE_HEAD] = {0};
    memcpy(bytes, magic, sizeof magic);
    bytes[8] = 1;
    bytes[14] = 1;
    bytes[60] = sizeof command - 1;
    tree_span made = tree_copy(a, bytes, sizeof bytes);
    cursor at = {.a = a, .p = whole ? c->p : made.p, .n = FILE_HEAD};
    take_figures(&at, head, "8448888844");
    tree_append(a, head, tree_leaf(a, TORTURE_RECORDING, TREE_STRING, tree_text(command)));
    head->length = TREE_CHUNK;
    tree_append(a, file, head);
    size_t step = whole ? CHUNK : PIECE;
    for (size_t from = whole ? CHUNK : 0; from < c->n; from += step) {
        cursor chunk = {.a = a, .p = c->p + from};
        chunk.n = c->n - from < step ? c->n - from : step;
        tree_append(a, file, parse_driver_chunk(&chunk));
    }
    return file;
}

/* ---- text ------------------------------------------------------------------------- */

static int class_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return 1;
    return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z' ? 2 : byte == '_' ? 2 : 3;
}

static tree_node *parse_text(cursor *c)
{
    tree_node *file = tree_list(c->a, TORTURE_TEXT), *line = NULL;
    while (c->at < c->n) {
        size_t from = c->at;
        int class = class_of(c->p[from]);
        if (!line) {
            line = tree_list(c->a, TORTURE_TEXT);
            tree_append(c->a, file, line);
        }
        c->at++;
        if (c->p[from] == '\n') {
            line->tail = tree_text("\n");
            line = NULL;
            continue;
        }
        while (c->at < c->n && class < 3 && class_of(c->p[c->at]) == class)
            c->at++;
        tree_append(c->a, line,
                    tree_leaf(c->a, TORTURE_TEXT,
                              class == 1   ? TREE_NUMBER
                              : class == 2 ? TREE_STRING
                                           : TREE_OTHER,
                              (tree_span){c->p + from, c->at - from}));
    }
    return file;
}

/* ---- all of them ------------------------------------------------------------------- */

tree_node *tree_parse(tree_arena *a, torture_format f, tree_span file)
{
    cursor c = {.a = a, .p = file.p, .n = file.n};
    tree_node *message;
    switch (f) {
    case TORTURE_JSON: return parse_json_file(&c);
    case TORTURE_SAFETENSORS: return parse_safetensors(&c);
    case TORTURE_PICKLE: return parse_pickles(&c);
    case TORTURE_GGUF: return parse_gguf(&c);
    case TORTURE_RECORDING: return parse_recording(&c);
    case TORTURE_TEXT: return parse_text(&c);
    case TORTURE_PROTOBUF:
        if ((message = parse_fields(a, file, 0)))
            return message;
        break;
    default: break;
    }
    return wrap_rest(&c, TORTURE_BYTES);
}

static const char *const json_values[] = {
    "null",  "true",      "false", "[]",  "{}",  "\"x\"",  "0",   "-1",
    "[1,2]", "{\"a\":1}", "\"\"",  "NaN", "1e5", "[null]", "3.5", "[[]]"};
/* Whole opcodes, with arguments.  The lengths include zeros within. */
static const struct {
    const char *p;
    size_t n;
} pickle_values[] = {{"N", 1},
                     {"\x88", 1},
                     {"\x89", 1},
                     {"]", 1},
                     {"}", 1},
                     {")", 1},
                     {"(", 1},
                     {"t", 1},
                     {"s", 1},
                     {"u", 1},
                     {"e", 1},
                     {"a", 1},
                     {"R", 1},
                     {"b", 1},
                     {"\x85", 1},
                     {"\x86", 1},
                     {"\x87", 1},
                     {"Q", 1},
                     {"0", 1},
                     {"2", 1},
                     {"d", 1},
                     {"l", 1},
                     {"o", 1},
                     {"\x81", 1},
                     {"\x92", 1},
                     {"\x8f", 1},
                     {"\x90", 1},
                     {"\x91", 1},
                     {"\x93", 1},
                     {"\x94", 1},
                     {"\x97", 1},
                     {"\x98", 1},
                     {".", 1},
                     {"1", 1},
                     {"K\x05", 2},
                     {"M\xff\xff", 3},
                     {"h\0", 2},
                     {"q\1", 2},
                     {"J\xff\xff\xff\x7f", 5},
                     {"J\0\0\0\x80", 5},
                     {"X\1\0\0\0x", 6},
                     {"I5\n", 3},
                     {"L99999999999999999999L\n", 23},
                     {"\x8a\0", 2},
                     {"g0\n", 3},
                     {"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11},
                     {"F1e999\n", 7}};
static const char *const text_values[] = {
    "{}",   "[",    "]",    "\t",   "  ",  "-",   "+",   "GiB",     "MiB", "KiB",
    "\"",   "'",    "--",   "=",    ":",   "nan", "inf", "1e400",   "#",   "%s%n",
    "\r\n", "\n\n", "0x10", "$(x)", "\\n", "@",   "!",   "1234567", ",",   "."};

tree_node *tree_invent(tree_arena *a, torture_format f, torture_random *r)
{
    uint8_t bytes[16];
    uint32_t i;
    tree_node *n;
    switch (f) {
    case TORTURE_JSON:
    case TORTURE_SAFETENSORS:
        i = torture_below(r, sizeof json_values / sizeof *json_values);
        return tree_leaf(a, TORTURE_JSON, TREE_OTHER, tree_text(json_values[i]));
    case TORTURE_PICKLE:
        i = torture_below(r, sizeof pickle_values / sizeof *pickle_values);
        return tree_leaf(a, f, TREE_OTHER,
                         tree_copy(a, pickle_values[i].p, pickle_values[i].n));
    case TORTURE_TEXT:
        i = torture_below(r, sizeof text_values / sizeof *text_values);
        return tree_leaf(a, f, TREE_STRING, tree_text(text_values[i]));
    case TORTURE_PROTOBUF: /* a field of another type, or another one */
        n = tree_leaf(a, f, TREE_STRING, tree_text(torture_once_in(r, 2) ? "" : "x"));
        n->head = tree_number(a, TREE_VARINT, (1 + torture_below(r, 24)) << 3 | 2);
        n->length = TREE_VARINT;
        if (torture_once_in(r, 2)) {
            n = tree_number_leaf(a, f, TREE_VARINT, torture_next(r) >> torture_below(r, 64));
            n->head = tree_number(a, TREE_VARINT, (1 + torture_below(r, 24)) << 3);
        }
        return n;
    case TORTURE_GGUF:
        return tree_number_leaf(a, f, torture_once_in(r, 2) ? TREE_U32 : TREE_U64,
                                torture_below(r, 14));
    default:
        for (i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)torture_next(r);
        return tree_leaf(a, f, TREE_OTHER,
                         tree_copy(a, bytes, torture_below(r, sizeof bytes + 1)));
    }
}

static tree_span repeat_span(tree_arena *a, tree_span one, uint32_t times)
{
    uint8_t *p = tree_new(a, one.n * times + 1);
    for (uint32_t i = 0; i < times; i++)
        memcpy(p + i * one.n, one.p, one.n);
    return (tree_span){p, one.n * times};
}

static tree_span repeat_text(tree_arena *a, const char *text, uint32_t times)
{
    return repeat_span(a, tree_text(text), times);
}

tree_node *tree_nest(tree_arena *a, tree_node *node, uint32_t depth, torture_random *r)
{
    tree_node *outer = tree_list(a, node->format);
    static const char *const open[] = {"[", "{\"a\":", "{\"metadata\":", "[1,"},
                             *const close[] = {"]", "}", "}", "]"},
                             *const marks[] = {"(", "]", "}(", "(K\1", ")", "]("};
    uint32_t i;
    tree_append(a, outer, node);
    switch (node->format) {
    case TORTURE_JSON:
        i = torture_below(r, 4);
        outer->head = repeat_text(a, open[i], depth);
        outer->tail = repeat_text(a, close[i], depth);
        break;
    case TORTURE_PROTOBUF:
        for (i = 0; i < depth && i < 200; i++) {
            tree_node *field = tree_list(a, TORTURE_PROTOBUF);
            field->head = node->head.n ? node->head
                                       : tree_number(a, TREE_VARINT,
                                                     (1 + torture_below(r, 24)) << 3 | 2);
            if ((field->head.p[field->head.n - 1] & 7) != 2)
                field->head = tree_number(a, TREE_VARINT, 7 << 3 | 2);
            field->length = TREE_VARINT;
            tree_append(a, field, outer);
            outer = field;
        }
        break;
    case TORTURE_PICKLE:
        outer->head = repeat_text(a, marks[torture_below(r, 6)], depth);
        outer->tail = repeat_text(a, torture_once_in(r, 2) ? "t" : "\x85", depth);
        break;
    case TORTURE_GGUF: /* arrays of one array */
        outer->head = repeat_span(a, tree_copy(a, "\x09\0\0\0\1\0\0\0\0\0\0\0", 12), depth);
        break;
    default:
        outer->head = repeat_text(a, torture_once_in(r, 2) ? "(" : "[", depth);
        outer->tail = repeat_text(a, ")", torture_below(r, depth + 1));
    }
    return outer;
}
