/* test_kineto.c -- traces of torch.profiler: those that PyTorch wrote (tests/golden/traces) have
 * the counters of torch.cuda.memory_stats, and the simulated allocator has them after every
 * event; those of other versions and layouts (tests/data/traces) are read; damaged ones are
 * refused, or end early. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fmt.h"
#include "trace/recording.h"
#include "unit.h"

#define GOLDEN PLIM_SOURCE_DIR "/tests/golden/traces/"
#define DATA PLIM_SOURCE_DIR "/tests/data/traces/"
#define MIB (1ull << 20)

static plim_bytes map_file(const char *folder, const char *name)
{
    char path[512];
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    snprintf(path, sizeof path, "%s%s", folder, name);
    CHECK(path, plim_file_read(&b, path, &err) == PLIM_OK);
    return b;
}

/* ---- recorded ones ------------------------------------------------------------- */

typedef struct peaks {
    unsigned long long allocated, reserved, end_allocated, end_reserved;
} peaks;

/* The line of peaks.txt about a trace. */
static peaks read_peaks(const char *name)
{
    char line[200], of[40];
    peaks p = {0};
    FILE *f = fopen(GOLDEN "peaks.txt", "r");
    CHECK(name, f != NULL);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%39s %llu %llu %llu %llu", of, &p.allocated, &p.reserved,
                   &p.end_allocated, &p.end_reserved) == 5 &&
            strcmp(of, name) == 0)
            break;
    CHECK(name, strcmp(of, name) == 0);
    fclose(f);
    return p;
}

static void test_golden(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
        uint32_t events;
        bool oom;
        const char *conf;
    } rows[] = {{"cuda", "cuda.json", 38, false, ""},
                {"expandable", "expandable.json", 38, false, "expandable_segments:True"},
                {"random", "random.json", 106, false, ""},
                {"oom", "oom.json", 14, true, ""}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_follow f;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = map_file(GOLDEN, rows[i].file);
        const peaks p = read_peaks(rows[i].name);
        uint64_t allocated = 0, reserved = 0;
        CHECK(rows[i].name, plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK(rows[i].name, r.n_events == rows[i].events && !r.host && !r.ends_at);
        CHECK(rows[i].name, plim_recording_from_start(&r));
        CHECK(rows[i].name, plim_recording_guess_conf(&r, 213, &err) == PLIM_OK);
        CHECK(rows[i].name, plim_str_is(r.conf, rows[i].conf));
        for (uint32_t k = 0; k < r.n_counters; k++) {
            allocated = PLIM_MAX(allocated, r.counters[k].allocated);
            reserved = PLIM_MAX(reserved, r.counters[k].reserved);
        }
        CHECK(rows[i].name, allocated == p.allocated && reserved == p.reserved);
        CHECK(rows[i].name, r.counters[r.n_counters - 1].allocated == p.end_allocated);
        CHECK(rows[i].name, r.counters[r.n_counters - 1].reserved == p.end_reserved);
        CHECK(rows[i].name, plim_recording_follow(&r, 213, &f, &err) == PLIM_OK);
        CHECK_STR(rows[i].name, f.why.n ? f.why.p : "", "");
        CHECK(rows[i].name, f.followed && f.agrees && f.oom == rows[i].oom);
        CHECK(rows[i].name, f.n_checked == rows[i].events - rows[i].oom);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

/* The label of the last request that was made. */
static plim_str last_label(const plim_recording *r)
{
    for (uint32_t i = r->n_actions; i-- > 0;)
        if (r->actions[i].kind == PLIM_TRACE_ALLOC) {
            uint32_t label = r->stacks[r->actions[i].stack].label;
            return label == PLIM_NONE ? (plim_str){NULL, 0}
                                      : plim_recording_frame_text(r, label);
        }
    return (plim_str){NULL, 0};
}

/* ---- versions and layouts -------------------------------------------------------- */

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        const char *why, *folder, *file;
        uint32_t events, before, gaps;
        uint64_t before_bytes;
        bool from_start, host;
        const char *label; /* of the last request; NULL: no stack */
    } rows[] = {
        {"the CPU's memory", GOLDEN, "cpu.json", 36, 0, 0, 0, false, true,
         "aten::clone in Optimizer.step#SGD.step"},
        {"gzip, from the middle of a run", GOLDEN, "steps.pt.trace.json.gz", 28, 4, 0,
         35266048, false, false, "AddmmBackward0"},
        {"without counters", DATA, "no_counters.json", 2, 0, 0, 0, false, false,
         "aten::empty"},
        {"the busiest GPU of the busiest process", DATA, "several.json", 3, 0, 0, 0, true,
         false, "aten::relu in my \"part\" \xc3\xa9"},
        {"in use before, in part named", DATA, "mid_run.json", 2, 3, 0, 15 * MIB, false, false,
         NULL},
        {"cached before", DATA, "cached.json", 1, 0, 0, 0, false, false, NULL},
        {"an event is missing", DATA, "gap.json", 2, 0, 1, 0, false, false, NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_recording r;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = map_file(rows[i].folder, rows[i].file);
        CHECK(rows[i].why, plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK(rows[i].why, r.n_events == rows[i].events && r.n_gaps == rows[i].gaps);
        CHECK(rows[i].why, r.n_before == rows[i].before);
        CHECK(rows[i].why, r.before_bytes == rows[i].before_bytes);
        CHECK(rows[i].why, plim_recording_from_start(&r) == rows[i].from_start);
        CHECK(rows[i].why, r.host == rows[i].host);
        plim_str label = last_label(&r);
        CHECK(rows[i].why, rows[i].label ? plim_str_is(label, rows[i].label) : !label.p);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

static void test_difference(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_follow f;
    plim_bytes b = map_file(DATA, "different.json");
    CHECK("is read", plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
    CHECK("is followed", plim_recording_follow(&r, 213, &f, NULL) == PLIM_OK);
    CHECK("and differs", f.followed && !f.agrees && f.n_checked == 1);
    CHECK_STR("named", f.why.p,
              "after event 1, a block of 1048576 bytes: recorded are 6291456 bytes allocated "
              "and 20971520 reserved, simulated 6291456 and 23068672");
    plim_file_close(&b);
    plim_arena_free(&a);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_recording r;
    plim_follow f;
    plim_bytes b = map_file(DATA, "oom.json");
    CHECK("is read", plim_recording_read(&r, &a, b, NULL) == PLIM_OK);
    CHECK("is followed", plim_recording_follow(&r, 213, &f, NULL) == PLIM_OK);
    CHECK("with a release and a new segment at once", f.agrees && f.n_checked == 4);
    CHECK("the request", f.oom && f.oom_action == 4 && f.oom_bytes == 4096 * MIB);
    CHECK("what was reserved", f.oom_reserved == 22 * MIB);
    CHECK("what was free is unknown", f.oom_device_free == UINT64_MAX);
    plim_file_close(&b);
    plim_arena_free(&a);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message;
    } rows[] = {
        {"torch_1_8.json", "the memory event at byte 110 has no address, as in PyTorch 1.8: "
                           "its frees cannot be matched"},
        {"bare_list.json", "none of the 1 events of the trace is about memory: "
                           "torch.profiler.profile records it with profile_memory=True"},
        {"other.json", "JSON, but not a trace of torch.profiler: it has no 'traceEvents'"},
        {"huge.json", "'Bytes' of a memory event is 1152921504606846976, not from "
                      "-1152921504606846975 to 1152921504606846975 at byte 192"},
        {"beyond.json", "'123456789012345678901234' is not a 64-bit integer at byte 197"},
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

/* ---- gzip and its window --------------------------------------------------------- */

/* Stored deflate blocks in a gzip frame: any text, without a compressor. */
static plim_str store_gzip(plim_arena *a, plim_str text)
{
    static const uint8_t head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
    enum { BLOCK = 60000 };
    uint64_t blocks = text.n / BLOCK + 1;
    uint8_t *out = PLIM_NEW_N(a, uint8_t, sizeof head + blocks * 5 + text.n + 8), *o = out;
    uint32_t crc = 0xffffffff;
    memcpy(o, head, sizeof head);
    o += sizeof head;
    for (size_t at = 0; at <= text.n; at += BLOCK) {
        uint32_t n = (uint32_t)PLIM_MIN(text.n - at, (size_t)BLOCK);
        *o++ = text.n - at <= BLOCK;
        for (int k = 0; k < 2; k++, n ^= 0xffff) {
            *o++ = (uint8_t)n;
            *o++ = (uint8_t)(n >> 8);
        }
        memcpy(o, text.p + at, n);
        o += n;
        if (text.n - at <= BLOCK)
            break;
    }
    for (size_t i = 0; i < text.n; i++) {
        crc ^= (uint8_t)text.p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    crc = ~crc;
    for (int k = 0; k < 4; k++)
        *o++ = (uint8_t)(crc >> 8 * k);
    for (int k = 0; k < 4; k++)
        *o++ = (uint8_t)(text.n >> 8 * k);
    return (plim_str){(const char *)out, (size_t)(o - out)};
}

/* A trace of many events, in which some names do not fit the window, read plain and in gzip. */
static void test_window(void **state)
{
    (void)state;
    enum { EVENTS = 9000, LONG = 3 << 20 };
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf text;
    plim_buf_init(&text, &a);
    plim_buf_puts(&text, "{\"more\": {\"a\": [1, 2]}, \"traceEvents\": [\n");
    for (uint64_t i = 0; i < EVENTS; i++) {
        plim_buf_printf(
            &text,
            "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":%" PRIu64
            ".5,\"args\":{\"Addr\":%" PRIu64 ",\"Bytes\":%s512,\"Device Type\":1,"
            "\"Device Id\":0,\"Total Allocated\":%d,\"Total Reserved\":2097152}},\n",
            i, i / 2 * 512 + 4096, i % 2 ? "-" : "", i % 2 ? 0 : 512);
        if (i == EVENTS / 2) {
            plim_buf_puts(&text, "{\"ph\":\"X\",\"name\":\"");
            for (int k = 0; k < LONG; k++)
                plim_buf_puts(&text, "x");
            plim_buf_puts(&text, "\"},\n");
        }
    }
    plim_buf_puts(&text, "{}], \"end\": \"\\u00e9\"}  \n");
    plim_str plain = plim_buf_str(&text), packed = store_gzip(&a, plain);
    for (int gz = 0; gz < 2; gz++) {
        plim_recording r;
        plim_follow f;
        plim_err err = PLIM_ERR_INIT;
        plim_str s = gz ? packed : plain;
        plim_bytes b = {.p = (const uint8_t *)s.p, .n = s.n};
        CHECK("is read", plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK("all of it", r.n_events == EVENTS && !r.n_gaps && !r.ends_at);
        CHECK("is followed", plim_recording_follow(&r, 213, &f, &err) == PLIM_OK);
        CHECK("and agrees", f.agrees && f.n_checked == EVENTS);
        b.n -= 3;
        CHECK("a part", plim_recording_read(&r, &a, b, &err) == PLIM_OK);
        CHECK("plain, white space is missing; of gzip, its sum", !r.ends_at == !gz);
    }
    uint8_t *bad = PLIM_NEW_N(&a, uint8_t, packed.n);
    memcpy(bad, packed.p, packed.n);
    bad[packed.n - 7] ^= 1;
    plim_recording r;
    plim_err err = PLIM_ERR_INIT;
    CHECK("another sum", plim_recording_read(&r, &a, (plim_bytes){.p = bad, .n = packed.n},
                                             &err) == PLIM_EFORMAT);
    CHECK("is named", strstr(err.msg, "gzip data is damaged at byte"));
    plim_arena_free(&a);
}

static void write_file(char *path, plim_str text)
{
    int fd = mkstemp(path);
    CHECK("a file of our own", fd >= 0);
    for (size_t at = 0; at < text.n;) {
        ssize_t n = write(fd, text.p + at, text.n - at);
        CHECK("written", n > 0);
        at += (size_t)n;
    }
    close(fd);
}

/* A file is read piece by piece, in less memory than it has bytes, wherever a number is cut in two. */
static void test_large(void **state)
{
    (void)state;
    enum { NUMBERS = 1500000 };
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf text;
    plim_buf_init(&text, &a);
    plim_buf_puts(&text, "[");
    for (uint64_t i = 0; i < NUMBERS; i++)
        plim_buf_printf(&text, "%" PRIu64 ",\n", i * i);
    plim_buf_puts(&text,
                  "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":1,\"args\":"
                  "{\"Addr\":1,\"Bytes\":512,\"Device Type\":1,\"Device Id\":0}}]");
    plim_str plain = plim_buf_str(&text), packed = store_gzip(&a, plain);
    for (int gz = 0; gz < 2; gz++) {
        char path[] = "/tmp/plimsoll-trace-XXXXXX";
        plim_arena kept = PLIM_ARENA_INIT;
        plim_recording r;
        plim_bytes b;
        plim_err err = PLIM_ERR_INIT;
        write_file(path, gz ? packed : plain);
        CHECK("opened", plim_file_open(&b, path, true, &err) == PLIM_OK && b.n > (16 << 20));
        plim_limit_memory(plim_memory_held() + (8 << 20));
        plim_status st = plim_recording_read(&r, &kept, b, &err);
        plim_limit_memory(0);
        CHECK_STR("is read", err.msg, "");
        CHECK("to its end", st == PLIM_OK && r.n_events == 1);
        plim_file_close(&b);
        plim_arena_free(&kept);
        remove(path);
    }
    plim_arena_free(&a);
}

/* ---- damage ------------------------------------------------------------------------ */

/* Reads it and, if it can be read, uses all of it; *early: it says that it ends early. */
static plim_status use_bytes(const uint8_t *p, uint64_t n, bool *early)
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
    *early = !st && r.ends_at;
    if (!st && !r.given) {
        CHECK("followed", plim_recording_follow(&r, 0, &f, &err) == PLIM_OK);
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
        uint64_t end; /* bytes after the last that matters */
    } rows[] = {{DATA, "several.json", 1},
                {DATA, "oom.json", 1},
                {GOLDEN, "steps.pt.trace.json.gz", 0}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_bytes b = map_file(rows[i].folder, rows[i].name);
        uint8_t *copy = test_malloc((size_t)b.n);
        bool early;
        for (uint64_t n = 0; n < b.n; n++) {
            memcpy(copy, b.p, (size_t)b.n);
            if (n + rows[i].end < b.n)
                CHECK("a part is not the whole", use_bytes(copy, n, &early) || early);
            for (int bit = 0; bit<8; bit += b.n> 2000 ? 7 : 1) {
                copy[n] ^= (uint8_t)(1 << bit);
                use_bytes(copy, b.n, &early);
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
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_versions),
        cmocka_unit_test(test_difference), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_window),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
