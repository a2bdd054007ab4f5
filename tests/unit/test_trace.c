/* test_trace.c -- memory snapshots: those that PyTorch's own allocator wrote
 * (tests/golden/snapshots) end, replayed, with the recorded segments and blocks; those of other
 * versions (tests/data/snapshots) are read; damaged ones are refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "trace/recording.h"
#include "unit.h"

#define GOLDEN PLIM_SOURCE_DIR "/tests/golden/snapshots/"
#define DATA PLIM_SOURCE_DIR "/tests/data/snapshots/"
#define MIB (1ull << 20)

static plim_bytes map_file(const char *folder, const char *name)
{
    char path[512];
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    snprintf(path, sizeof path, "%s%s.pickle", folder, name);
    CHECK(path, plim_file_read(&b, path, &err) == PLIM_OK);
    return b;
}

/* ---- recorded ones ------------------------------------------------------------- */

/* Their names end with the version that wrote them. */
static int version_of(const char *name)
{
    int major = 0, minor = 0;
    const char *at = strrchr(name, '-');
    CHECK(name, at && sscanf(at, "-%d.%d", &major, &minor) == 2);
    return 100 * major + minor;
}

static void test_golden(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t allocs; /* requests that were served: alloc actions of the file */
        uint32_t pools;
        bool oom;
    } rows[] = {
        {"downward-2.11", 52, 1, false},
        {"downward-2.15", 52, 1, false},
        {"expandable-2.6", 52, 1, false},
        {"graphs-2.13", 22, 3, false},
        {"graphs-2.4", 18, 2, false},
        {"graphs-expandable-2.5", 18, 2, false},
        {"mempool-2.7", 10, 2, false},
        {"native-2.12", 52, 1, false},
        {"oom-2.13", 81, 1, true},
        {"oom-expandable-2.9", 90, 1, true},
        {"random-2.13", 86, 1, false},
        {"random-downward-2.14", 86, 1, false},
        {"random-expandable-2.15", 86, 1, false},
        {"rounded-2.8", 52, 1, false},
        {"streams-2.4", 21, 1, false},
        {"streams-expandable-2.10", 21, 1, false},
        {"train-2.13", 106, 1, false},
        {"train-kept-2.13", 106, 1, false},
    };
    DIR *d = opendir(GOLDEN);
    uint32_t files = 0;
    CHECK("the folder is there", d != NULL);
    for (const struct dirent *e; d && (e = readdir(d));)
        files += plim_str_ends(plim_str_of(e->d_name), PLIM_STR(".pickle"));
    if (d)
        closedir(d);
    CHECK("there is a row for each", files == PLIM_COUNT(rows));
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_follow f;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = map_file(GOLDEN, rows[i].name);
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK(rows[i].name, plim_recording_from_start(&r));
        CHECK(rows[i].name, r.n_pools == rows[i].pools);
        CHECK(rows[i].name,
              plim_recording_follow(&r, version_of(rows[i].name), &f, &err) == PLIM_OK);
        CHECK_STR(rows[i].name, f.why.n ? f.why.p : "", "");
        CHECK(rows[i].name, f.followed && f.agrees && f.n_checked == rows[i].allocs);
        CHECK(rows[i].name, f.oom == rows[i].oom);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* The recording without its first actions, as a ring of entries loses them. */
static void forget_first(plim_recording *r, uint32_t n)
{
    r->actions += n;
    r->n_actions -= n;
    r->n_before = 1; /* or more: it does not begin at the start */
}

/* From any action on, the memory that the program had by then follows from the end.  Versions that take the
 * oldest of equal blocks may part where those are equal that nobody saw being made. */
static void test_middle(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool sure;
    } rows[] = {
        {"downward-2.11", true},
        {"expandable-2.6", true},
        {"graphs-2.4", true},
        {"graphs-expandable-2.5", true},
        {"mempool-2.7", true},
        {"oom-expandable-2.9", true},
        {"rounded-2.8", true},
        {"streams-2.4", true},
        {"streams-expandable-2.10", true},
        {"native-2.12", false},
        {"random-2.13", false},
        {"random-downward-2.14", false},
        {"random-expandable-2.15", false},
        {"train-2.13", false},
        {"train-kept-2.13", false},
        {"oom-2.13", false},
        {"graphs-2.13", false},
    };
    uint32_t parted = 0, all = 0;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_follow whole, f;
        plim_bytes b = map_file(GOLDEN, rows[i].name);
        const int torch = version_of(rows[i].name);
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
        CHECK(rows[i].name, plim_recording_follow(&r, torch, &whole, NULL) == PLIM_OK);
        for (forget_first(&r, 1); r.n_actions > 1; forget_first(&r, 1), all++) {
            CHECK(rows[i].name, plim_recording_follow(&r, torch, &f, NULL) == PLIM_OK);
            parted += !f.agrees;
            if (!f.agrees && (rows[i].sure || f.followed))
                fail_msg("%s, the last %u actions: %s", rows[i].name, r.n_actions, f.why.p);
            if (!f.agrees)
                continue;
            CHECK(rows[i].name,
                  f.stats.reserved_bytes.current == whole.stats.reserved_bytes.current &&
                      f.stats.allocated_bytes.current == whole.stats.allocated_bytes.current &&
                      f.stats.active.current == whole.stats.active.current &&
                      f.stats.segment.current == whole.stats.segment.current &&
                      f.stats.inactive_split.current == whole.stats.inactive_split.current &&
                      f.stats.inactive_split_bytes.current ==
                          whole.stats.inactive_split_bytes.current &&
                      f.stats.reserved_bytes.peak <= whole.stats.reserved_bytes.peak);
        }
        plim_file_close(&b);
        plim_arena_free(&a);
    }
    CHECK("few part", all > 2000 && parted < all / 10);
}

/* A version that orders free blocks otherwise is told apart. */
static void test_other_version(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int torch;
    } rows[] = {{"native-2.12", 213}, {"downward-2.11", 213}, {"downward-2.15", 211}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_follow f;
        plim_bytes b = map_file(GOLDEN, rows[i].name);
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
        CHECK(rows[i].name, plim_recording_follow(&r, rows[i].torch, &f, NULL) == PLIM_OK);
        CHECK(rows[i].name, f.followed && !f.agrees && f.why.n);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* The out-of-memory of the recording, by the script that made it: blocks of 6 MiB, three
 * in each segment of 20 MiB. */
static void test_out_of_memory(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_follow f;
    plim_bytes b = map_file(GOLDEN, "oom-2.13");
    CHECK("is read", plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
    CHECK("is followed", plim_recording_follow(&r, 213, &f, NULL) == PLIM_OK);
    CHECK("the request", f.oom_bytes == 6 * MIB);
    CHECK("less than a segment is left", f.oom_device_free < 20 * MIB);
    CHECK("whole segments", f.oom_reserved % (20 * MIB) == 0);
    uint64_t segments = f.oom_reserved / (20 * MIB);
    CHECK("2 MiB of each are free", f.oom_free[1].bytes == segments * 2 * MIB);
    CHECK("in a piece each",
          f.oom_free[1].blocks == segments && f.oom_free[1].largest == 2 * MIB);
    CHECK("where", plim_str_ends(plim_recording_frame_text(&r, r.stacks[f.oom_stack].label),
                                 PLIM_STR(" block")));
    plim_file_close(&b);
    plim_arena_free(&a);
}

/* A tape of a recording is sound, in both forms, and a request that failed is on one. */
static void test_tapes(void **state)
{
    (void)state;
    static const char *const names[] = {"native-2.12", "expandable-2.6", "streams-2.4",
                                        "graphs-2.13", "random-2.13",    "oom-2.13"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_tape was, other;
        uint32_t *stacks, failed = 0;
        plim_bytes b = map_file(GOLDEN, names[i]);
        plim_tape_init(&was, &a);
        plim_tape_init(&other, &a);
        CHECK(names[i], plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
        CHECK(names[i], plim_recording_tape(&r, true, &was, &stacks, NULL) == PLIM_OK);
        CHECK(names[i], plim_recording_tape(&r, false, &other, &stacks, NULL) == PLIM_OK);
        CHECK(names[i], plim_tape_check(&was) == NULL && plim_tape_check(&other) == NULL);
        for (uint32_t k = 0; k < r.n_actions; k++)
            failed += r.actions[k].kind == PLIM_TRACE_OOM;
        CHECK(names[i], other.n_storages == was.n_storages + failed);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* ---- other versions -------------------------------------------------------------- */

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        const char *why, *name;
        uint32_t actions, segments, blocks, before;
        bool from_start;
        uint64_t before_bytes;
        const char *label; /* of the first block in use; NULL: no stack */
    } rows[] = {
        {"a list, no history", "list_1_10", 0, 2, 4, 1, false, 5 * MIB, NULL},
        {"blocks with history", "history_1_13", 0, 1, 2, 1, false, 5 * MIB - 100,
         "train.py:21 step"},
        {"history and actions", "history_2_0", 2, 1, 2, 0, true, 0, "train.py:21 step"},
        {"from the middle of a run", "mid_run", 3, 1, 3, 2, false, 10 * MIB, NULL},
        {"the busier of two devices", "two", 2, 1, 2, 0, true, 0, NULL},
        {"blocks that we would not cut so", "different", 3, 1, 3, 0, true, 0, NULL},
        {"one object in many places", "shared", 5, 1, 2, 1, false, MIB, "train.py:21 step"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = map_file(DATA, rows[i].name);
        CHECK(rows[i].why, plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK(rows[i].why, r.n_actions == rows[i].actions);
        CHECK(rows[i].why, r.n_gaps == (strcmp(rows[i].name, "shared") ? 0u : 3u));
        CHECK(rows[i].why, r.n_segments == rows[i].segments && r.n_blocks == rows[i].blocks);
        CHECK(rows[i].why, r.n_before == rows[i].before);
        CHECK(rows[i].why, r.before_bytes == rows[i].before_bytes);
        CHECK(rows[i].why, plim_recording_from_start(&r) == rows[i].from_start);
        const plim_stack *s = &r.stacks[r.blocks[0].stack];
        if (rows[i].label)
            CHECK(rows[i].why,
                  s->n && plim_str_is(plim_recording_frame_text(&r, s->label), rows[i].label));
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* What is in many places of a file is once in the recording. */
static void test_shared(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_bytes b = map_file(DATA, "shared");
    CHECK("is read", plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
    CHECK("two frames", r.n_frames == 2 && r.n_stacks == 2 && r.stacks[1].n == 2);
    for (uint32_t i = 0; i < r.n_actions; i++)
        CHECK("a list of lists is not a stack", r.actions[i].stack == (i < 4));
    CHECK("blocks, too", r.blocks[0].stack == 1 && r.blocks[1].stack == 1);
    CHECK("at two addresses", r.blocks[1].addr == r.blocks[0].addr + MIB);
    plim_file_close(&b);
    plim_arena_free(&a);
}

static void put_text(FILE *f, const char *text)
{
    fprintf(f, "X%c%c%c%c%s", (int)strlen(text), 0, 0, 0, text);
}

/* A snapshot of 28 MB with as many actions, each with a text of its own. */
static void write_large(const char *path, uint32_t actions)
{
    FILE *f = fopen(path, "wb");
    CHECK("a file of our own", f != NULL);
    fprintf(f, "%c%c}(", 0x80, 4);
    put_text(f, "device_traces");
    fprintf(f, "](](");
    for (uint32_t i = 0; i < actions; i++) {
        char text[251];
        snprintf(text, sizeof text, "%0250u", i % 100);
        fprintf(f, "}(");
        put_text(f, "action");
        put_text(f, i % 2 ? "free_completed" : "alloc");
        put_text(f, "user_metadata");
        put_text(f, text);
        put_text(f, "addr");
        fprintf(f, "J%c%c%c%c", 1, (int)(i / 2 % 256), 1, 1);
        put_text(f, "size");
        fprintf(f, "K%cu%s", 100, i % 1000 == 999 ? "e(" : "");
    }
    fprintf(f, "eeu.");
    CHECK("written", !fclose(f));
}

/* A file is read piece by piece, in less memory than it has bytes. */
static void test_large(void **state)
{
    (void)state;
    enum { ACTIONS = 80000 };
    char path[] = "/tmp/plimsoll-snapshot-XXXXXX";
    int fd = mkstemp(path);
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    CHECK("a place for it", fd >= 0 && !close(fd));
    write_large(path, ACTIONS);
    CHECK("is opened", plim_file_open(&b, path, true, &err) == PLIM_OK && b.n > (24 << 20));
    plim_limit_memory(plim_memory_held() + (12 << 20));
    plim_status st = plim_recording_read(&r, &a, b, &err);
    plim_limit_memory(0);
    CHECK_STR("is read", err.msg, "");
    CHECK("all of it", st == PLIM_OK && r.n_actions == ACTIONS);
    CHECK("in order", r.actions[1].kind == PLIM_TRACE_FREE_COMPLETED &&
                          r.actions[ACTIONS - 1].addr == (0x01010001u | 63 << 8));
    plim_file_close(&b);
    plim_arena_free(&a);
    remove(path);
}

static void test_difference(void **state)
{
    (void)state;
    static const struct {
        const char *name, *why;
    } rows[] = {{"different", "action 2, a request for 1048576 bytes: recorded are 0 bytes "
                              "taken from the device, simulated 2097152"},
                {"crossed", "at the end: recorded is a block of 20971520 bytes at "
                            "0x7f0000000000, free; simulated one of 5242880 at "
                            "0x7f0000000000, in use"}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_follow f;
        plim_bytes b = map_file(DATA, rows[i].name);
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
        CHECK(rows[i].name, plim_recording_follow(&r, 213, &f, NULL) == PLIM_OK);
        CHECK(rows[i].name, f.followed && !f.agrees && f.n_checked == 1);
        CHECK_STR(rows[i].name, f.why.p, rows[i].why);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message;
    } rows[] = {
        {"code",
         "pickle names code, 'builtins.print' at byte 45: here only plain data is read"},
        {"other", "a pickle, but not a CUDA memory snapshot: it has neither 'segments' nor "
                  "'device_traces'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = map_file(DATA, rows[i].name);
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, &err) != PLIM_OK);
        CHECK_STR(rows[i].name, err.msg, rows[i].message);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* ---- damage ------------------------------------------------------------------------ */

/* Reads it and, if it can be read, uses all of it. */
static plim_status use_bytes(const uint8_t *p, uint64_t n)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_follow f;
    plim_tape t;
    uint32_t *stacks;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(&t, &a);
    plim_status st = plim_recording_read(&r, &a, (plim_bytes){.p = p, .n = n}, &err);
    CHECK("an error has a message", !st || err.msg[0]);
    if (!st && !r.given) {
        CHECK("followed", plim_recording_follow(&r, 0, &f, &err) == PLIM_OK);
        CHECK("by address", plim_recording_follow(&r, 211, &f, &err) == PLIM_OK);
        CHECK("told", plim_recording_tape(&r, false, &t, &stacks, &err) == PLIM_OK);
        CHECK("soundly", plim_tape_check(&t) == NULL);
    }
    plim_arena_free(&a);
    return st;
}

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *name;
    } files[] = {
        {DATA, "mid_run"}, {DATA, "history_1_13"}, {DATA, "two"}, {GOLDEN, "mempool-2.7"}};
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        plim_bytes b = map_file(files[i].folder, files[i].name);
        uint8_t *copy = test_malloc((size_t)b.n);
        for (uint64_t n = 0; n < b.n; n++) {
            memcpy(copy, b.p, (size_t)b.n);
            CHECK("a part of a snapshot is none", use_bytes(copy, n) != PLIM_OK);
            for (int bit = 0; bit < 8; bit++) {
                copy[n] ^= (uint8_t)(1 << bit);
                use_bytes(copy, b.n);
                copy[n] ^= (uint8_t)(1 << bit);
            }
        }
        test_free(copy);
        plim_file_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_other_version), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_tapes),         cmocka_unit_test(test_versions),
        cmocka_unit_test(test_difference),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
