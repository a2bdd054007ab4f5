/* mutate.c -- see mutate.h. */
#include "mutate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive.h"
#include "tree.h"

/* ---- random numbers: SplitMix64 --------------------------------------------------- */

uint64_t torture_next(torture_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t torture_below(torture_random *r, uint32_t n)
{
    return (uint32_t)((torture_next(r) >> 32) * n >> 32);
}

bool torture_once_in(torture_random *r, uint32_t n) { return torture_below(r, n) == 0; }

uint64_t torture_hash(const uint8_t *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* ---- formats ----------------------------------------------------------------------- */

const char *torture_format_name(torture_format f)
{
    static const char *const names[] = {
#define X(id, name) name,
        TORTURE_FORMATS(X)
#undef X
    };
    return f < TORTURE_FORMAT_COUNT ? names[f] : "?";
}

static bool begins_with(const uint8_t *p, size_t n, const char *with, size_t m)
{
    return n >= m && memcmp(p, with, m) == 0;
}

static bool is_plain_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n && i < 4096; i++)
        if (p[i] < 9 || (p[i] > 13 && p[i] < 27))
            return false;
    return true;
}

torture_format torture_format_of(const uint8_t *p, size_t n)
{
    if (begins_with(p, n, "PK\3\4", 4))
        return TORTURE_ZIP;
    if (begins_with(p, n, "\x1f\x8b", 2))
        return TORTURE_GZIP;
    if (begins_with(p, n, "GGUF", 4))
        return TORTURE_GGUF;
    if (begins_with(p, n, "PLREC", 5))
        return TORTURE_RECORDING;
    if (n > 2 && p[0] == 0x80 && p[1] < 6)
        return TORTURE_PICKLE;
    if (n > 9 && p[8] == '{' && !p[6] && !p[7])
        return TORTURE_SAFETENSORS;
    if (is_plain_text(p, n)) {
        size_t i = 0;
        while (i < n && strchr(" \t\r\n", p[i]) && p[i])
            i++;
        return i < n && (p[i] == '{' || p[i] == '[') ? TORTURE_JSON : TORTURE_TEXT;
    }
    tree_arena a = {NULL};
    torture_format f = tree_parse(&a, TORTURE_PROTOBUF, (tree_span){p, n})->what == TREE_LIST
                           ? TORTURE_PROTOBUF
                           : TORTURE_BYTES;
    tree_free(&a);
    return f;
}

/* ---- one mutant ---------------------------------------------------------------------- */

typedef struct place {
    tree_node *parent; /* NULL: the root */
    uint32_t i;        /* of the parent's children */
} place;

typedef struct mutation {
    tree_arena *a;
    torture_random *r;
    const torture_seed *others;
    size_t n_others;
    tree_node *root;
    place *at; /* of each node but the root */
    uint32_t n, cap;
} mutation;

static void list_places(mutation *m, tree_node *node, int depth)
{
    for (uint32_t i = 0; i < node->n && depth < 400; i++) {
        if (m->n == m->cap) {
            uint32_t cap = m->cap ? m->cap * 2 : 256;
            place *more = tree_new(m->a, cap * sizeof *more);
            if (m->n)
                memcpy(more, m->at, m->n * sizeof *more);
            m->at = more;
            m->cap = cap;
        }
        m->at[m->n++] = (place){node, i};
        list_places(m, node->child[i], depth + 1);
    }
}

static void find_places(mutation *m)
{
    m->n = 0;
    list_places(m, m->root, 0);
}

static tree_node *node_at(place p) { return p.parent->child[p.i]; }
static place pick_place(mutation *m) { return m->at[torture_below(m->r, m->n)]; }

/* Of this kind, if a few tries find one. */
static place pick_kind(mutation *m, tree_what what)
{
    place p = pick_place(m);
    for (int i = 0; i < 30 && node_at(p)->what != what; i++)
        p = pick_place(m);
    return p;
}

/* A copy that shares only text; what it counts is counted there. */
static tree_node *copy_node(tree_arena *a, const tree_node *node)
{
    tree_node *n = tree_new(a, sizeof *n);
    *n = *node;
    n->child = node->n ? tree_new(a, node->n * sizeof *n->child) : NULL;
    n->cap = node->n;
    for (uint32_t i = 0; i < node->n; i++)
        n->child[i] = copy_node(a, node->child[i]);
    return n;
}

static void remove_child(tree_node *list, uint32_t i)
{
    memmove(&list->child[i], &list->child[i + 1], (list->n - i - 1) * sizeof *list->child);
    list->n--;
}

static void insert_child(tree_arena *a, tree_node *list, uint32_t i, tree_node *child)
{
    tree_append(a, list, child);
    memmove(&list->child[i + 1], &list->child[i], (list->n - 1 - i) * sizeof *list->child);
    list->child[i] = child;
}

static bool holds_node(const tree_node *outer, const tree_node *inner)
{
    bool found = outer == inner;
    for (uint32_t i = 0; i < outer->n && !found; i++)
        found = holds_node(outer->child[i], inner);
    return found;
}

/* ---- values ---- */

static const char *const numbers[] = {"0",
                                      "1",
                                      "-1",
                                      "2",
                                      "7",
                                      "127",
                                      "128",
                                      "255",
                                      "256",
                                      "65535",
                                      "65536",
                                      "2147483647",
                                      "2147483648",
                                      "-2147483648",
                                      "4294967295",
                                      "4294967296",
                                      "9007199254740992",
                                      "9007199254740993",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "-9223372036854775808",
                                      "18446744073709551615",
                                      "18446744073709551616",
                                      "340282366920938463463374607431768211456",
                                      "1e308",
                                      "1e400",
                                      "-1e308",
                                      "1e-320",
                                      "0.5",
                                      "-0",
                                      "-0.0",
                                      "1.0",
                                      "00",
                                      "0x7f",
                                      "NaN",
                                      "nan",
                                      "Infinity",
                                      "-Infinity",
                                      "1_000",
                                      "",
                                      "3000000000",
                                      "1099511627776",
                                      "99999999",
                                      "1000003"};
static const uint64_t interesting[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       127,
                                       128,
                                       255,
                                       256,
                                       65535,
                                       65536,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       0x100000000,
                                       0x20000000000000,
                                       0x7fffffffffffffff,
                                       0x8000000000000000,
                                       0xfffffffffffffffe,
                                       0xffffffffffffffff,
                                       0x7ff0000000000000, /* infinity */
                                       0x7ff8000000000000, /* NaN */
                                       0x7f800000,
                                       0x7fc00000,
                                       99999999,
                                       1000003};

static uint64_t read_number(const tree_node *n)
{
    char text[24] = "";
    uint64_t v = 0;
    if (n->number == TREE_NONE || n->number == TREE_DECIMAL) {
        memcpy(text, n->text.p, n->text.n < sizeof text ? n->text.n : sizeof text - 1);
        return strtoull(text, NULL, 10);
    }
    for (size_t i = 0; i < n->text.n && i < 8; i++)
        v = n->number == TREE_VARINT   ? v | (uint64_t)(n->text.p[i] & 0x7f) << 7 * i
            : n->number >= TREE_U32_BE ? v << 8 | n->text.p[i]
                                       : v | (uint64_t)n->text.p[i] << 8 * i;
    return v;
}

static void change_number(mutation *m, tree_node *n)
{
    torture_random *r = m->r;
    uint64_t was = read_number(n), is;
    bool text = n->number == TREE_NONE || n->number == TREE_DECIMAL;
    if (text && torture_once_in(r, 2)) {
        n->text = tree_text(numbers[torture_below(r, sizeof numbers / sizeof *numbers)]);
        return;
    }
    switch (torture_below(r, 8)) {
    case 0: is = was + 1; break;
    case 1: is = was - 1; break;
    case 2: is = was * 2; break;
    case 3: is = was / 2; break;
    case 4: is = 0 - was; break;
    case 5: is = torture_below(r, 20); break;
    default: is = interesting[torture_below(r, sizeof interesting / sizeof *interesting)];
    }
    n->counts = n->sizes = NULL;
    n->text = tree_number(m->a, text ? TREE_DECIMAL : n->number, is);
}

static const char *const strings[] = {"",
                                      "\x1b[31mred\x1b[0m",
                                      "\x01\x02\x07\x08\x7f",
                                      "\xff\xfe\x80",
                                      "\xc3",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xe2\x80\xae"
                                      "abc",
                                      "../../../../etc/passwd",
                                      "/dev/zero",
                                      "a/b/c",
                                      "%s%n%x",
                                      "a,b\"c'd",
                                      "line\nline",
                                      "tab\ttab",
                                      "\\u0000",
                                      "\\ud800",
                                      "\\u001b[2J",
                                      "\\n",
                                      "\xf0\x9f\x98\x80\xe6\xbc\xa2",
                                      "e\xcc\x81\xcc\x81\xcc\x81",
                                      "<script>&amp;",
                                      "=1+1",
                                      "-1",
                                      "*",
                                      ".",
                                      "..",
                                      "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p",
                                      "\xc2\x9b"
                                      "31m"};

static void change_string(mutation *m, tree_node *n)
{
    torture_random *r = m->r;
    uint32_t size;
    uint8_t *p;
    switch (torture_below(r, 5)) {
    case 0: /* very long */
        size = 1u << torture_below(r, 17);
        p = tree_new(m->a, size + 1);
        memset(p, "aA.x_0/ "[torture_below(r, 8)], size);
        n->text = (tree_span){p, size};
        break;
    case 1: n->text = node_at(pick_kind(m, TREE_STRING))->text; break;
    case 2: /* one byte of it */
        n->text = tree_copy(m->a, n->text.p, n->text.n);
        if (n->text.n) {
            p = (uint8_t *)(uintptr_t)n->text.p;
            p[torture_below(r, (uint32_t)n->text.n)] = (uint8_t)torture_next(r);
        }
        break;
    case 3: n->text.n = n->text.n ? torture_below(r, (uint32_t)n->text.n) : 0; break;
    default: n->text = tree_text(strings[torture_below(r, sizeof strings / sizeof *strings)]);
    }
}

/* ---- nodes ---- */

static tree_node *borrow_node(mutation *m, const tree_node *like)
{
    for (int i = 0; i < 20 && m->n_others; i++) {
        const torture_seed *s = &m->others[torture_below(m->r, (uint32_t)m->n_others)];
        if (s->format != like->format || s->bytes.n > 100000)
            continue;
        mutation other = {.a = m->a, .r = m->r};
        other.root = tree_parse(m->a, s->format, (tree_span){s->bytes.p, s->bytes.n});
        find_places(&other);
        if (other.n)
            return node_at(pick_kind(&other, like->what));
    }
    return tree_invent(m->a, like->format, m->r);
}

static void replace_node(place p, tree_node *with) { p.parent->child[p.i] = with; }

static void swap_nodes(mutation *m, place p)
{
    place q = torture_once_in(m->r, 2) ? (place){p.parent, torture_below(m->r, p.parent->n)}
                                       : pick_kind(m, node_at(p)->what);
    tree_node *a = node_at(p), *b = node_at(q);
    if (holds_node(a, b) || holds_node(b, a))
        return;
    replace_node(p, b);
    replace_node(q, a);
}

static void move_node(mutation *m, place p)
{
    tree_node *node = node_at(p);
    place to = pick_place(m);
    if (holds_node(node, to.parent))
        return;
    remove_child(p.parent, p.i);
    insert_child(m->a, to.parent, to.i <= to.parent->n ? to.i : to.parent->n, node);
}

static size_t weigh_node(const tree_node *node)
{
    size_t w = 1 + node->text.n / 100;
    for (uint32_t i = 0; i < node->n; i++)
        w += weigh_node(node->child[i]);
    return w;
}

static void repeat_node(mutation *m, place p)
{
    uint32_t times = torture_once_in(m->r, 4) ? 1 + torture_below(m->r, 300) : 1;
    size_t most = 5000 / weigh_node(node_at(p)) + 1;
    for (uint32_t i = 0; i < times && i < most; i++)
        insert_child(m->a, p.parent, p.i, copy_node(m->a, node_at(p)));
}

static void change_node(mutation *m, place p)
{
    tree_node *node = node_at(p);
    if (node->what == TREE_NUMBER)
        change_number(m, node);
    else if (node->what == TREE_STRING)
        change_string(m, node);
    else
        replace_node(p, tree_invent(m->a, node->format, m->r));
}

static void change_tree(mutation *m)
{
    find_places(m);
    if (!m->n)
        return;
    place p = pick_place(m);
    tree_node *new;
    switch (torture_below(m->r, 16)) {
    case 0: remove_child(p.parent, p.i); break;
    case 1: repeat_node(m, p); break;
    case 2: swap_nodes(m, p); break;
    case 3: move_node(m, p); break;
    case 4:
    case 5:
    case 6: change_node(m, pick_kind(m, TREE_NUMBER)); break;
    case 7:
    case 8: change_node(m, pick_kind(m, TREE_STRING)); break;
    case 9: /* another type; what comes in front stays, and says another thing now */
        new = tree_invent(m->a, node_at(p)->format, m->r);
        if (torture_once_in(m->r, 2) && node_at(p)->format == TORTURE_PROTOBUF)
            new->head = node_at(p)->head;
        replace_node(p, new);
        break;
    case 10:
        insert_child(m->a, p.parent, p.i, tree_invent(m->a, node_at(p)->format, m->r));
        break;
    case 11:
        replace_node(p, tree_nest(m->a, node_at(p), 1u << torture_below(m->r, 13), m->r));
        break;
    case 12: replace_node(p, copy_node(m->a, borrow_node(m, node_at(p)))); break;
    case 13:
        insert_child(m->a, p.parent, p.i, copy_node(m->a, borrow_node(m, node_at(p))));
        break;
    case 14: /* a member of one in the place of another */
        new = copy_node(m->a, node_at(pick_kind(m, node_at(p)->what)));
        replace_node(p, new);
        break;
    default: change_node(m, p);
    }
}

/* ---- bytes ---- */

static void change_bytes(tree_buf *b, torture_random *r)
{
    if (!b->n)
        return;
    uint32_t at = torture_below(r, (uint32_t)b->n), n;
    switch (torture_below(r, 5)) {
    case 0: b->p[at] ^= (uint8_t)(1u << torture_below(r, 8)); break;
    case 1: b->p[at] = (uint8_t)torture_next(r); break;
    case 2: b->n = at; break;
    case 3: /* takes some out */
        n = torture_below(r, 16);
        n = n > b->n - at ? (uint32_t)(b->n - at) : n;
        memmove(b->p + at, b->p + at + n, b->n - at - n);
        b->n -= n;
        break;
    default: /* an interesting number of four or eight bytes */
        n = torture_once_in(r, 2) ? 4 : 8;
        for (uint32_t i = 0; i < n && at + i < b->n; i++)
            b->p[at + i] = (uint8_t)(interesting[torture_below(r, 20)] >> 8 * i);
    }
}

/* ---- archives ---- */

static void write_mutant(tree_arena *a, torture_random *r, torture_format f, tree_span file,
                         const torture_seed *others, size_t n_others, tree_buf *out);

static torture_format format_of_member(const archive_member *m)
{
    if (m->name.n > 4 && memcmp(m->name.p + m->name.n - 4, ".pkl", 4) == 0)
        return TORTURE_PICKLE;
    return torture_format_of(m->data.p, m->data.n);
}

/* One that is more than bytes, if a few tries find one: weights say nothing. */
static uint32_t pick_member(const archive *z, torture_random *r)
{
    uint32_t i = torture_below(r, z->n);
    for (int tries = 0; tries < 20; tries++) {
        torture_format f = format_of_member(&z->member[i]);
        if ((f == TORTURE_JSON || f == TORTURE_PICKLE) && z->member[i].data.n > 20)
            break;
        i = torture_below(r, z->n);
    }
    return i;
}

static void change_archive(tree_arena *a, torture_random *r, archive *z,
                           const torture_seed *others, size_t n_others)
{
    uint32_t i = pick_member(z, r), j = torture_below(r, z->n);
    tree_buf b = {NULL, 0, 0};
    archive_member was = z->member[i];
    switch (torture_below(r, 24)) {
    case 0: /* taken out */ z->member[i] = z->member[--z->n]; break;
    case 1: /* there twice */ z->member[z->n++] = was; break;
    case 2:
        z->member[i].data = z->member[j].data;
        z->member[j].data = was.data;
        break;
    case 3: z->member[i].name = tree_text(strings[torture_below(r, 29)]); break;
    case 4: z->member[i].name.n = torture_below(r, (uint32_t)was.name.n + 1); break;
    default:
        write_mutant(a, r, format_of_member(&was), was.data, others, n_others, &b);
        z->member[i].data = tree_copy(a, b.p, b.n);
        free(b.p);
    }
}

static bool write_archive(tree_arena *a, torture_random *r, tree_span file,
                          const torture_seed *others, size_t n_others, tree_buf *out)
{
    archive z;
    if (!archive_read(a, file, &z) || !z.n)
        return false;
    archive_member *room = tree_new(a, (z.n + 8) * sizeof *room);
    memcpy(room, z.member, z.n * sizeof *room);
    z.member = room;
    uint32_t changes = torture_once_in(r, 4) ? 2 + torture_below(r, 3) : 1;
    for (uint32_t i = 0; i < changes && z.n; i++)
        change_archive(a, r, &z, others, n_others);
    archive_write(&z, out);
    return true;
}

static void write_mutant(tree_arena *a, torture_random *r, torture_format f, tree_span file,
                         const torture_seed *others, size_t n_others, tree_buf *out)
{
    tree_span inner;
    if (f == TORTURE_ZIP && write_archive(a, r, file, others, n_others, out))
        return;
    if (f == TORTURE_GZIP && gzip_read(a, file, &inner)) {
        tree_buf b = {NULL, 0, 0};
        write_mutant(a, r, torture_format_of(inner.p, inner.n), inner, others, n_others, &b);
        gzip_write((tree_span){b.p, b.n}, out);
        free(b.p);
        return;
    }
    mutation m = {.a = a, .r = r, .others = others, .n_others = n_others};
    m.root = tree_parse(a, f, file);
    bool bytes = m.root->what == TREE_OTHER;
    uint32_t changes = 1;
    while (changes < 12 && torture_once_in(r, changes == 1 ? 3 : 2))
        changes++;
    for (uint32_t i = 0; i < changes && !bytes; i++)
        change_tree(&m);
    tree_write(m.root, out);
    for (uint32_t i = 0; i < changes && bytes; i++)
        change_bytes(out, r);
}

torture_bytes torture_mutate(const torture_seed *seed, uint64_t number,
                             const torture_seed *others, size_t n_others)
{
    tree_arena a = {NULL};
    tree_buf out = {NULL, 0, 0};
    torture_random r = {torture_hash(seed->bytes.p, seed->bytes.n) ^
                        number * 0x9e3779b97f4a7c15u};
    write_mutant(&a, &r, seed->format, (tree_span){seed->bytes.p, seed->bytes.n}, others,
                 n_others, &out);
    if (torture_once_in(&r, 8))
        change_bytes(&out, &r);
    tree_free(&a);
    tree_add(&out, "", 0);
    return (torture_bytes){out.p, out.n};
}

torture_bytes torture_complete(torture_format f, torture_bytes seed)
{
    tree_arena a = {NULL};
    tree_buf out = {NULL, 0, 0};
    tree_span file = {seed.p, seed.n};
    if (f == TORTURE_RECORDING)
        tree_write(tree_parse(&a, f, file), &out);
    else
        tree_add(&out, seed.p, seed.n);
    tree_free(&a);
    return (torture_bytes){out.p, out.n};
}

/* ---- padding --------------------------------------------------------------------------- */

/* Spaces after the JSON of a safetensors file. */
static void pad_header(tree_arena *a, torture_bytes file, size_t more, tree_buf *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < 8 && i < file.n; i++)
        n |= (uint64_t)file.p[i] << 8 * i;
    if (file.n < 8 || n > file.n - 8)
        return;
    uint8_t *spaces = tree_new(a, more);
    memset(spaces, ' ', more);
    tree_span head = tree_number(a, TREE_U64, n + more);
    tree_add(out, head.p, head.n);
    tree_add(out, file.p + 8, (size_t)n);
    tree_add(out, spaces, more);
    tree_add(out, file.p + 8 + n, file.n - 8 - (size_t)n);
}

torture_bytes torture_pad(const torture_seed *seed, torture_bytes mutant, size_t more)
{
    tree_arena a = {NULL};
    tree_buf out = {NULL, 0, 0};
    archive z;
    uint8_t *zeros = tree_new(&a, more);
    switch (seed->format) {
    case TORTURE_ZIP:
        if (!archive_read(&a, (tree_span){mutant.p, mutant.n}, &z))
            break;
        archive_member *room = tree_new(&a, (z.n + 1) * sizeof *room);
        room[0] =
            (archive_member){z.n ? z.member[0].name : tree_text("a/data/77"), {zeros, more}};
        /* in the folder of the others */
        room[0].name = tree_copy(&a, room[0].name.p, room[0].name.n);
        for (size_t i = 1; i < room[0].name.n; i++)
            if (room[0].name.p[i - 1] == '/')
                ((uint8_t *)(uintptr_t)room[0].name.p)[i] = '~';
        for (uint32_t i = 0; i < z.n; i++)
            room[i + 1] = z.member[i];
        z.member = room;
        z.n++;
        archive_write(&z, &out);
        break;
    case TORTURE_JSON:
    case TORTURE_TEXT:
        memset(zeros, seed->format == TORTURE_JSON ? ' ' : '\n', more); /* fall through */
    case TORTURE_GGUF:
    case TORTURE_PICKLE:
    case TORTURE_RECORDING:
        tree_add(&out, mutant.p, mutant.n);
        tree_add(&out, zeros, more);
        break;
    case TORTURE_SAFETENSORS: pad_header(&a, mutant, more, &out); break;
    case TORTURE_PROTOBUF: { /* a field that nobody knows */
        tree_node *field =
            tree_leaf(&a, TORTURE_PROTOBUF, TREE_STRING, (tree_span){zeros, more});
        field->head = tree_number(&a, TREE_VARINT, 1000 << 3 | 2);
        field->length = TREE_VARINT;
        tree_write(field, &out);
        tree_add(&out, mutant.p, mutant.n);
        break;
    }
    default: break;
    }
    tree_free(&a);
    return (torture_bytes){out.p, out.n};
}
