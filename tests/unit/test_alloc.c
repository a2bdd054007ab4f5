/* test_alloc.c -- allocators against the text cases of tests/cases/alloc (their
 * format is explained at the top of vectors.txt). */
#include "alloc/alloc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fmt.h"
#include "unit.h"

/* ---- one case ------------------------------------------------------------ */

typedef struct bench_case {
    plim_arena arena;
    char where[160]; /* file, line and case, for failures */
    plim_alloc_options options;
    plim_alloc *h;
    plim_buf tape; /* the lines so far */
    uint32_t events;
    uint32_t *block; /* by storage */
    uint32_t last;
    /* state of the generator */
    uint64_t x;
    uint32_t live[4096], n_live, steps;
} bench_case;

static void case_end(bench_case *c)
{
    plim_arena_free(&c->arena);
    free(c->block);
    memset(c, 0, sizeof *c);
    c->last = PLIM_NONE;
    c->x = 12345;
}

static void case_open(bench_case *c)
{
    plim_err err = PLIM_ERR_INIT;
    if (c->h)
        return;
    c->options.placement = &plim_placement_upward; /* the cases are written for that order */
    if (plim_alloc_new(&c->arena, &c->options, &c->h, &err))
        fail_msg("%s: %s", c->where, err.msg);
    c->block = calloc(4096, sizeof *c->block);
}

static void case_option(bench_case *c, const char *key, plim_str value)
{
    plim_err err = PLIM_ERR_INIT;
    char text[256];
    int major = 0, minor = 0;
    snprintf(text, sizeof text, "%.*s", (int)value.n, value.p);
    if (strcmp(key, "torch") == 0 && sscanf(text, "%d.%d", &major, &minor) == 2)
        c->options.torch = major * 100 + minor;
    else if (strcmp(key, "allocator") == 0)
        CHECK(c->where, plim_allocator_find(value, &c->options.allocator, NULL) == PLIM_OK);
    else if (strcmp(key, "conf") == 0)
        c->options.conf = plim_arena_str(&c->arena, value);
    else if (strcmp(key, "fraction") == 0)
        c->options.fraction = strtod(text, NULL);
    else if (plim_parse_size(
                 value, strcmp(key, "total") == 0 ? &c->options.total : &c->options.capacity,
                 &err))
        fail_msg("%s: %s", c->where, err.msg);
}

/* ---- tape lines ---------------------------------------------------------- */

static void case_event(bench_case *c, const plim_tape *t, const plim_event *e)
{
    plim_err err = PLIM_ERR_INIT;
    plim_status st = PLIM_OK;
    switch ((plim_event_kind)e->kind) {
    case PLIM_EVENT_ALLOC:
        st = plim_alloc_malloc(c->h, t->storages[e->id].bytes, e->stream, &c->block[e->id],
                               &err);
        c->last = c->block[e->id];
        break;
    case PLIM_EVENT_FREE: st = plim_alloc_free(c->h, c->block[e->id], &err); break;
    case PLIM_EVENT_RECORD_STREAM:
        st = plim_alloc_record_stream(c->h, c->block[e->id], e->stream, &err);
        break;
    case PLIM_EVENT_STREAM_DONE: plim_alloc_stream_done(c->h, e->stream); break;
    case PLIM_EVENT_EMPTY_CACHE: st = plim_alloc_empty_cache(c->h, &err); break;
    case PLIM_EVENT_RESET_PEAK: plim_alloc_reset_peak(c->h); break;
    case PLIM_EVENT_CONFIG: st = plim_alloc_config(c->h, t->configs[e->id], &err); break;
    case PLIM_EVENT_FRACTION:
        st = plim_alloc_set_fraction(c->h, (double)e->id / PLIM_FRACTION_ONE, &err);
        break;
    }
    if (st)
        fail_msg("%s: %s", c->where, err.msg);
}

/* The whole tape is parsed again with each line; only new events are run. */
static void case_line(bench_case *c, plim_str line)
{
    plim_tape t;
    plim_err err = PLIM_ERR_INIT;
    case_open(c);
    if (!c->tape.arena) {
        plim_buf_init(&c->tape, &c->arena);
        plim_buf_puts(&c->tape, "plimsoll-tape 1\n");
    }
    plim_buf_add(&c->tape, line);
    plim_buf_puts(&c->tape, "\n");
    plim_tape_init(&t, &c->arena);
    if (plim_tape_parse(&t, (plim_bytes){.p = (const uint8_t *)c->tape.p, .n = c->tape.n},
                        &err))
        fail_msg("%s: %s", c->where, err.msg);
    for (; c->events < t.n_events; c->events++)
        case_event(c, &t, &t.events[c->events]);
}

/* ---- the generator ------------------------------------------------------- */

static uint64_t draw(bench_case *c)
{
    c->x = c->x * 6364136223846793005u + 1442695040888963407u;
    return c->x >> 33;
}

static void random_step(bench_case *c, uint64_t streams)
{
    static const uint64_t ranges[] = {4096, 1048576, 12582912, 67108864};
    uint32_t block = PLIM_NONE;
    if (c->n_live && draw(c) % 100 < 45) {
        uint32_t k = (uint32_t)(draw(c) % c->n_live);
        assert_int_equal(plim_alloc_free(c->h, c->live[k], NULL), PLIM_OK);
        c->live[k] = c->live[--c->n_live];
        return;
    }
    uint64_t range = ranges[draw(c) % 4], bytes = 1 + draw(c) % range;
    uint16_t stream = (uint16_t)(streams > 1 ? draw(c) % streams : 0);
    assert_int_equal(plim_alloc_malloc(c->h, bytes, stream, &block, NULL), PLIM_OK);
    if (block != PLIM_NONE)
        c->live[c->n_live++] = block;
}

static void case_random(bench_case *c, const char *args)
{
    unsigned steps = 0, streams = 1, every = 0;
    sscanf(args, "%u streams=%u empty=%u", &steps, &streams, &every);
    CHECK(c->where, steps > 0 && steps < PLIM_COUNT(c->live));
    case_open(c);
    for (unsigned i = 0; i < steps; i++) {
        random_step(c, streams);
        if (every && ++c->steps % every == 0)
            plim_alloc_empty_cache(c->h, NULL);
    }
}

/* ---- what is expected ---------------------------------------------------- */

enum { BLOCKS = 4096 };
static plim_alloc_block blocks[BLOCKS];

static uint64_t last_block(const bench_case *c)
{
    uint32_t n = plim_alloc_blocks(c->h, blocks, BLOCKS);
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i].block == c->last && blocks[i].state == PLIM_BLOCK_ALLOCATED)
            return blocks[i].bytes;
    return 0;
}

static uint64_t counter(const bench_case *c, const char *key)
{
    plim_alloc_stats s;
    plim_alloc_get_stats(c->h, &s);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {
        {"allocated", s.allocated_bytes.current},
        {"reserved", s.reserved_bytes.current},
        {"requested", s.requested_bytes.current},
        {"active_bytes", s.active_bytes.current},
        {"allocation", s.allocation.current},
        {"segment", s.segment.current},
        {"inactive_split", s.inactive_split.current},
        {"inactive_split_bytes", s.inactive_split_bytes.current},
        {"oversize_allocations", s.oversize_allocations.current},
        {"oversize_segments", s.oversize_segments.current},
        {"peak_allocated", s.allocated_bytes.peak},
        {"peak_reserved", s.reserved_bytes.peak},
        {"num_alloc_retries", s.num_alloc_retries},
        {"num_ooms", s.num_ooms},
        {"num_device_alloc", s.num_device_alloc},
        {"num_device_free", s.num_device_free},
        {"block", strcmp(key, "block") == 0 ? last_block(c) : 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (strcmp(key, rows[i].key) == 0)
            return rows[i].value;
    fail_msg("%s: no counter '%s'", c->where, key);
    return 0;
}

static void expect_counters(bench_case *c, char *text)
{
    int pairs = 0;
    for (char *key = strtok(text, " "), *want; key; key = strtok(NULL, " "), pairs++) {
        uint64_t n = 0;
        want = strtok(NULL, " ");
        CHECK(c->where, want && plim_parse_size(plim_str_of(want), &n, NULL) == PLIM_OK);
        uint64_t got = counter(c, key);
        if (got != n)
            fail_msg("%s: %s is %" PRIu64 ", want %" PRIu64, c->where, key, got, n);
    }
    CHECK(c->where, pairs > 0);
}

/* "S[A512|F2096640] L[...]"; unmapped space at the end of a segment is not shown. */
static void expect_blocks(bench_case *c, const char *want)
{
    plim_buf b;
    plim_buf_init(&b, &c->arena);
    uint32_t n = plim_alloc_blocks(c->h, blocks, BLOCKS);
    CHECK(c->where, n <= BLOCKS);
    for (uint32_t i = 0; i < n; i++) {
        const plim_alloc_block *x = &blocks[i];
        bool last = i + 1 == n || x[1].first;
        if (x->first)
            plim_buf_printf(&b, "%s%c[", b.n ? " " : "", x->small ? 'S' : 'L');
        if (x->state != PLIM_BLOCK_UNMAPPED || !last)
            plim_buf_printf(&b, "%s%c%" PRIu64, x->first ? "" : "|", "FAPU"[x->state],
                            x -> bytes);
        plim_buf_puts(&b, last ? "]" : "");
    }
    CHECK_STR(c->where, plim_buf_str(&b).p, want);
}

static void expect_text(bench_case *c, const char *want)
{
    plim_str text = plim_alloc_oom_text(c->h, &c->arena);
    CHECK(c->where, text.p != NULL);
    CHECK_STR(c->where, text.p, want);
}

/* ---- files --------------------------------------------------------------- */

static const char *argument(const char *line, const char *key)
{
    size_t n = strlen(key);
    return strncmp(line, key, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

static void run_line(bench_case *c, char *line)
{
    static const char *const options[] = {"allocator", "torch", "conf",
                                          "capacity",  "total", "fraction"};
    const char *arg;
    if (!*line || *line == '#')
        return;
    for (size_t i = 0; i < PLIM_COUNT(options); i++)
        if ((arg = argument(line, options[i]))) {
            case_option(c, options[i], plim_str_of(arg));
            return;
        }
    if ((arg = argument(line, "random")))
        case_random(c, arg);
    else if (argument(line, "="))
        expect_counters(c, line + 2);
    else if ((arg = argument(line, "blocks")))
        expect_blocks(c, arg);
    else if ((arg = argument(line, "says")))
        expect_text(c, arg);
    else
        case_line(c, plim_str_of(line));
}

static int run_file(const char *name)
{
    static bench_case c;
    char path[512], line[2048], title[80] = "";
    int cases = 0, number = 0;
    snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/cases/alloc/%s", name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("no '%s'", path);
    case_end(&c);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        number++;
        if (argument(line, "case")) {
            case_end(&c);
            snprintf(title, sizeof title, "%.70s", argument(line, "case"));
            cases++;
        }
        snprintf(c.where, sizeof c.where, "%s:%d: %s", name, number, title);
        if (cases && !argument(line, "case"))
            run_line(&c, line);
    }
    case_end(&c);
    fclose(f);
    return cases;
}

static void test_cases(void **state)
{
    (void)state;
    struct dirent **entries;
    int n = scandir(PLIM_SOURCE_DIR "/tests/cases/alloc", &entries, NULL, alphasort);
    int files = 0, cases = 0;
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".txt")) {
            cases += run_file(entries[i]->d_name);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    print_message("%d cases in %d files\n", cases, files);
    assert_true(files >= 7 && cases >= 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
