/* torchfile.c -- files written by torch.save: checkpoints (.pt, .pth, .bin), including those
 * from before 1.6, TorchScript archives, and the index of sharded ones.
 *
 * Tensors are found by reading the pickle as data (base/pickle.h); their bytes are never read.
 * docs/formats/torch.md says what is read. */
#include "base/zip.h"
#include "import/weights/torchfile_priv.h"

#define SMALL_LIMIT 64u

/* ---- zip ---------------------------------------------------------------------------- */

typedef struct archive {
    plim_zip zip;
    plim_zip_entry data; /* "stem/data.pkl" */
    plim_str stem;       /* "stem/" */
    bool script;
    plim_map members; /* the archive's, by name */
    uint64_t *sizes;
    uint32_t n, cap;
} archive;

static plim_status open_archive(archive *z, plim_bytes b, plim_err *err)
{
    plim_zip_entry e;
    PLIM_TRY(plim_zip_open(&z->zip, b, err));
    if (!plim_zip_find(&z->zip, "data.pkl", &z->data))
        return plim_fail(err, PLIM_EFORMAT, 0, "an archive without 'data.pkl'");
    z->stem = (plim_str){z->data.name.p, z->data.name.n - (sizeof "data.pkl" - 1)};
    z->script = plim_zip_find(&z->zip, "constants.pkl", &e);
    return PLIM_OK;
}

/* Rejects duplicate names: different readers would take different members. */
static plim_status index_members(torchfile *f, archive *z)
{
    plim_zip_entry e;
    uint32_t at;
    for (uint64_t cursor = 0; plim_zip_next(&z->zip, &cursor, &e);) {
        if (plim_map_get(&z->members, e.name, &at))
            return plim_fail(f->err, PLIM_EFORMAT, e.header,
                             "zip archive has two members '%.*s'",
                             (int)PLIM_MIN(e.name.n, (size_t)80), e.name.p);
        if (!PLIM_PUSH_ROOM(f->a, z->sizes, z->n, z->cap) ||
            !plim_map_put(f->a, &z->members, e.name, z->n))
            return plim_oom(f->err);
        z->sizes[z->n++] = e.size;
    }
    return PLIM_OK;
}

/* The storages of one pickle: maps "0" to "stem/data/0". */
static plim_status index_storages(torchfile *f, const archive *z, const char *folder,
                                  plim_map *out)
{
    plim_zip_entry e;
    size_t n = strlen(folder);
    uint32_t at = 0;
    for (uint64_t cursor = 0; plim_zip_next(&z->zip, &cursor, &e); at++) {
        plim_str rest = {e.name.p + z->stem.n, e.name.n - z->stem.n};
        if (e.name.n < z->stem.n || memcmp(e.name.p, z->stem.p, z->stem.n) != 0 ||
            !plim_str_starts(rest, folder))
            continue;
        if (!plim_map_put(f->a, out, (plim_str){rest.p + n, rest.n - n}, at))
            return plim_oom(f->err);
    }
    return PLIM_OK;
}

static plim_status walk_member(torchfile *f, const archive *z, const plim_zip_entry *e,
                               const char *folder, plim_item_kind kind)
{
    plim_bytes bytes;
    plim_pickle p;
    plim_map records = {0};
    plim_status st = plim_zip_read(&z->zip, e, f->a, PLIM_PICKLE_MAX_BYTES, &bytes, f->err);
    uint64_t base = st || e->method ? 0 : (uint64_t)(bytes.p - z->zip.file.p);
    if (!st)
        st = plim_pickle_read(&p, f->a, bytes, 0, base, f->err);
    if (!st)
        st = plim_torch_check_names(f, &p);
    if (!st)
        st = index_storages(f, z, folder, &records);
    f->records = &records;
    f->record_bytes = z->sizes;
    f->storage_ids = (plim_map){0};
    if (!st)
        st = plim_torch_walk_root(f, &p, kind);
    f->records = NULL;
    return st;
}

/* A small text member: "little"; "" if there is none. */
static plim_str read_text(torchfile *f, const archive *z, const char *name)
{
    plim_zip_entry e;
    plim_bytes b;
    plim_str path = plim_arena_printf(f->a, PLIM_STR_FMT "%s", PLIM_STR_ARG(z->stem), name);
    if (!path.p || !plim_zip_find(&z->zip, path.p, &e) ||
        plim_zip_read(&z->zip, &e, f->a, SMALL_LIMIT, &b, NULL))
        return (plim_str){"", 0};
    return (plim_str){(const char *)b.p, (size_t)b.n};
}

static plim_status list_archive(torchfile *f, plim_bytes b)
{
    archive z = {.script = false};
    plim_zip_entry e;
    plim_status st = open_archive(&z, b, f->err);
    f->script = z.script;
    if (!st)
        st = index_members(f, &z);
    if (!st)
        st = walk_member(f, &z, &z.data, "data/", PLIM_ITEM_PARAMETER);
    if (!st && z.script && plim_zip_find(&z.zip, "constants.pkl", &e)) {
        (void)plim_torch_enter(f, plim_torch_key("constants"), 0);
        st = walk_member(f, &z, &e, "constants/", PLIM_ITEM_CONSTANT);
    }
    if (st)
        return st;
    f->v->format = plim_str_of(z.script ? "TorchScript archive" : "PyTorch checkpoint");
    plim_str order = read_text(f, &z, "byteorder");
    return order.n && !plim_str_is(order, "little") && !f->part
               ? plim_inventory_fact(f->v, f->err, "byte order", PLIM_STR_FMT,
                                     PLIM_STR_ARG(order))
               : PLIM_OK;
}

/* ---- legacy: pickles one after another, then the storages ----------------------------- */

/* src: torch/serialization.py, MAGIC_NUMBER 0x1950a86a20f9469cfc6c */
static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

enum { CHECKPOINT_PROTOCOL = 1001 }; /* src: the same, PROTOCOL_VERSION */

static bool is_magic(plim_pickle_value v)
{
    return v.kind == PLIM_PICKLE_LONG && v.n == sizeof magic - 1 &&
           memcmp(v.p, magic, v.n) == 0;
}

static bool is_legacy(plim_bytes b)
{
    enum { FAR = 64 }; /* protocol and frame come before it */
    for (uint64_t i = 0; b.n >= sizeof magic && i < PLIM_MIN(b.n - sizeof magic, FAR); i++)
        if (memcmp(b.p + i, magic, sizeof magic - 1) == 0)
            return true;
    return false;
}

/* Whether a pickle begins as a memory snapshot: a dict or a list of dicts with such a first key.  It may have
 * gigabytes, so that no more is read of it.
 * src: torch/csrc/cuda/Module.cpp, 1.10 to 2.13; Lib/pickletools.py of CPython 3.14 */
static bool is_snapshot(plim_bytes b)
{
    enum { PROTO = 0x80, FRAME = 0x95, MEMOIZE = 0x94, SHORT_BINUNICODE = 0x8c, FAR = 64 };
    static const char *const keys[] = {"segments", "device_traces", "device", "address"};
    plim_str text = {NULL, 0};
    for (uint64_t i = 0; i + 2 * FAR < b.n && i < FAR && !text.p;) {
        switch (b.p[i]) {
        case '(':
        case ']':
        case '}':
        case MEMOIZE: i++; break;
        case PROTO:
        case 'q': i += 2; break; /* BINPUT */
        case 'r': i += 5; break; /* LONG_BINPUT */
        case FRAME: i += 9; break;
        case SHORT_BINUNICODE: text = (plim_str){(const char *)b.p + i + 2, b.p[i + 1]}; break;
        case 'X':
            if (b.p[i + 2] | b.p[i + 3] | b.p[i + 4]) /* of its length */
                return false;
            text = (plim_str){(const char *)b.p + i + 5, b.p[i + 1]};
            break;
        default: return false;
        }
    }
    for (size_t k = 0; k < PLIM_COUNT(keys); k++)
        if (text.p && text.n < FAR / 2 && plim_str_is(text, keys[k]))
            return true;
    return false;
}

/* After the keys each storage begins with its length in 8 bytes. */
static plim_status check_storages(torchfile *f, plim_pickle_value keys, plim_bytes b,
                                  uint64_t at)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < plim_pickle_count(keys); i++) {
        plim_str key = plim_pickle_text(keys.node->items[i]);
        uint32_t id;
        if (!key.p || !plim_map_get(&f->storage_ids, key, &id))
            return plim_fail(
                f->err, PLIM_EFORMAT, at,
                "storage '%.*s' is in the file, but the pickle does not describe it",
                (int)PLIM_MIN(key.n, (size_t)40), key.p ? key.p : "");
        need = plim_sat_add(need, plim_sat_add(f->storages[id].bytes, 8));
    }
    if (need > b.n - at)
        return plim_fail(f->err, PLIM_EFORMAT, at,
                         "the storages take %" PRIu64 " bytes, %" PRIu64
                         " are left: the file is truncated",
                         need, b.n - at);
    return PLIM_OK;
}

static plim_status not_of_torch(const torchfile *f)
{
    return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                     "a pickle that was not written by torch.save");
}

static plim_status list_legacy(torchfile *f, plim_bytes b)
{
    enum { MAGIC, PROTOCOL, SYSTEM, OBJECT, KEYS, PICKLES };
    plim_pickle p = {.end = 0};
    plim_status st = PLIM_OK;
    if (is_snapshot(b))
        return not_of_torch(f);
    for (int i = 0; i < PICKLES && !st; i++) {
        uint64_t start = p.end;
        st = plim_pickle_read(&p, f->a, b, start, 0, f->err);
        if (!st)
            st = plim_torch_check_names(f, &p);
        if (st)
            break;
        if (i == MAGIC && !is_magic(p.root))
            return not_of_torch(f);
        if (i == PROTOCOL && p.root.kind != PLIM_PICKLE_INT)
            return plim_fail(f->err, PLIM_EUNSUPPORTED, start,
                             "the checkpoint protocol is not an integer");
        if (i == PROTOCOL && p.root.i != CHECKPOINT_PROTOCOL)
            return plim_fail(f->err, PLIM_EUNSUPPORTED, start,
                             "unsupported checkpoint protocol %" PRId64 " (expected %d)",
                             p.root.i, CHECKPOINT_PROTOCOL);
        if (i == OBJECT)
            st = plim_torch_walk_root(f, &p, PLIM_ITEM_PARAMETER);
        if (i == KEYS)
            st = check_storages(f, p.root, b, p.end);
    }
    f->v->format = PLIM_STR("PyTorch checkpoint, legacy");
    return st;
}

/* ---- tar: what PyTorch 0.1 wrote --------------------------------------------------------- */

/* src: torch/serialization.py, legacy_load */
static bool is_tar(plim_bytes b)
{
    static const char *const names[] = {"sys_info", "pickle", "tensors", "storages"};
    bool found = false;
    if (b.n < 512 || memcmp(b.p + 257, "ustar", 5) != 0)
        return false;
    for (size_t i = 0; i < PLIM_COUNT(names); i++)
        found |= memcmp(b.p, names[i], strlen(names[i]) + 1) == 0;
    return found;
}

/* ---- the format ------------------------------------------------------------------------------ */

static plim_status list_file(torchfile *f, plim_bytes b)
{
    if (is_tar(b))
        return plim_fail(f->err, PLIM_EUNSUPPORTED, 0,
                         "a tar archive of PyTorch 0.1: load it with "
                         "torch.load(weights_only=False) and save it again with "
                         "torch.save");
    PLIM_TRY(plim_zip_is(b) ? list_archive(f, b) : list_legacy(f, b));
    return plim_torch_sum_up(f);
}

static plim_status torch_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    torchfile f = {.v = v, .a = v->arena, .err = err, .part = s->part};
    return list_file(&f, s->bytes);
}

/* A pickle of any object: begins with its protocol, or (old and malicious ones) with the name
 * of a module and of an object in it, one per line. */
static bool is_pickle(plim_bytes b)
{
    enum { OP_PROTO = 0x80, TEXT = ' ', OP_GLOBAL = 'c' }; /* whatever the protocol */
    uint64_t i = 1;
    int lines = 0;
    if (b.n < 3 || b.p[0] != OP_GLOBAL)
        return b.n > 3 && b.p[0] == OP_PROTO && b.p[1] >= 1 && b.p[1] < TEXT;
    for (; i < PLIM_MIN(b.n, 256) && lines < 2; i++) {
        uint8_t c = b.p[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
                    (c >= '0' && c <= '9');
        if (c == '\n' && i > 1 && b.p[i - 1] != '\n')
            lines++;
        else if (!word)
            return false;
    }
    return lines == 2;
}

static int torch_probe(plim_bytes b)
{
    archive z = {.script = false};
    if (plim_zip_is(b))
        return open_archive(&z, b, NULL) ? 0 : 80;
    if (is_legacy(b))
        return 95;
    return is_tar(b) ? 90 : is_pickle(b) ? PLIM_UNSURE : 0;
}

const plim_importer plim_importer_torch = {
    .name = "torch",
    .doc = "PyTorch checkpoint (.pt, .pth, .bin) of any version; TorchScript",
    .src = "torch/serialization.py, torch/_utils.py of 2.13",
    .gives = "parameters, optimizer state",
    .probe = torch_probe,
    .asks = true,
    .without = "it holds weights, not the model that uses them: export "
               "the model with torch.export.save, or give the folder "
               "with its config.json",
    .list = torch_list,
};
