/* test_facts.c -- what a run at one size and room tells of others, on which the search of fit builds. */
#include "fit/facts.h"

#include "asked.h"
#include "fit/fit.h"

typedef struct open_job {
    plim_arena arena;
    plim_model *model;
    plim_settings *settings;
    plim_job job;
} open_job;

static void open_it(open_job *o, const char *model, const char *settings)
{
    plim_err err = PLIM_ERR_INIT;
    *o = (open_job){.model = asked_model(model), .settings = asked_settings(settings)};
    if (plim_job_open(&o->job, &o->arena, o->model, o->settings, &err))
        fail_msg("%s: %s", model, err.msg);
}

static void close_it(open_job *o)
{
    plim_model_free(o->model);
    plim_settings_free(o->settings);
    plim_arena_free(&o->arena);
}

static const plim_gpu *card(const char *name)
{
    const plim_gpu *gpu = NULL;
    assert_int_equal(plim_gpu_find(plim_str_of(name), &gpu, NULL), PLIM_OK);
    return gpu;
}

/* PLIM_ERANGE if the model does not take the size, or ended early. */
static plim_status make_run(const plim_job *job, int64_t size, plim_arena *a, plim_tape *t,
                            plim_step_info *info)
{
    plim_graph g;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(t, a);
    plim_status st = plim_job_graph(job, size, a, &g, &err);
    st = st ? st : plim_job_tape(job, &g, a, t, info, &err);
    if (st && st != PLIM_ERANGE)
        fail_msg("%s", err.msg);
    return st;
}

static plim_status make_tape(const plim_job *job, int64_t size, plim_arena *a, plim_tape *t)
{
    plim_step_info info;
    return make_run(job, size, a, t, &info);
}

/* But for the words of an out-of-memory text, which name the card. */
static bool same_run(const plim_sim *x, const plim_sim *y)
{
    return x->peak_allocated == y->peak_allocated && x->peak_reserved == y->peak_reserved &&
           x->oom == y->oom && x->oom_event == y->oom_event && x->n_events == y->n_events &&
           !memcmp(&x->stats, &y->stats, sizeof x->stats);
}

/* Its figures; what they point to is gone. */
static void simulate(const plim_job *job, const plim_tape *t, uint64_t room, unsigned what,
                     plim_sim *out)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    if (plim_fit_simulate(job, t, room, what, &scratch, out, &err))
        fail_msg("%s", err.msg);
    plim_arena_free(&scratch);
}

/* It is the same in the rooms of which it says so, and in the next ones on either side it is not. */
static void check_alike(const plim_job *job, const plim_tape *t, const plim_sim *one,
                        unsigned what)
{
    const plim_rooms r = one->alike;
    const uint64_t last = PLIM_MIN(r.end - 1, 2 * r.least);
    plim_sim other;
    for (uint64_t room = r.least; room <= last; room += PLIM_MAX((last - r.least) / 4, 1)) {
        simulate(job, t, room, what, &other);
        CHECK("the same in each", same_run(one, &other) && other.alike.least == r.least &&
                                      other.alike.end == r.end);
    }
    if (r.least > 1) {
        simulate(job, t, r.least - 1, what, &other);
        CHECK("less is refused", other.alike.end <= r.least);
    }
    if (r.end < UINT64_MAX) {
        simulate(job, t, r.end, what, &other);
        CHECK("more is given", other.alike.least >= r.end);
    }
}

/* The same tape in many rooms: what has less than is live fails, and a run says in which others it is
 * the same. */
static void test_rooms(void **state)
{
    (void)state;
    static const struct {
        const char *model, *settings, *allocator;
        bool asks; /* for the size of the card: of other rooms nothing is known */
    } cases[] = {
        {"resnet18", "optimizer=adam batch=8", "caching", false},
        {"gpt2", "optimizer=adamw batch=2", "caching", false},
        {"resnet18", "batch=8 alloc_conf=garbage_collection_threshold:0.8", "caching", false},
        {"gpt2", "batch=2 alloc_conf=expandable_segments:True", "caching", true},
        {"resnet18", "batch=8 alloc_conf=per_process_memory_fraction:0.5", "caching", true},
        {"resnet18", "batch=8 alloc_conf=max_split_size_mb:32", "caching", false},
        {"gpt2", "batch=2", "cudaMallocAsync", false},
        {"resnet18", "batch=8", "bfc", true},
        {"resnet18", "batch=8", "none", false},
    };
    static const unsigned sizes[] = {0, PLIM_SIM_HIGH, PLIM_SIM_STOP_AT_OOM};
    for (size_t i = 0; i < PLIM_COUNT(cases); i++)
        for (size_t k = 0; k < PLIM_COUNT(sizes); k++) {
            open_job o;
            plim_tape t;
            uint32_t wide = 0, narrow = 0;
            open_it(&o, cases[i].model, cases[i].settings);
            plim_job_use_card(&o.job, card("a100-80gb"));
            assert_int_equal(plim_allocator_find(plim_str_of(cases[i].allocator),
                                                 &o.job.alloc.allocator, NULL),
                             PLIM_OK);
            assert_int_equal(make_tape(&o.job, 0, &o.arena, &t), PLIM_OK);
            uint64_t needs = plim_tape_live_most(&t, plim_sim_bound(sizes[k]));
            for (uint64_t room = needs - 2; room < 2 * needs; room += needs / 16) {
                plim_sim one;
                simulate(&o.job, &t, room, sizes[k], &one);
                CHECK("less than is live", room >= needs || one.oom);
                CHECK(cases[i].allocator, !one.alike.end == cases[i].asks);
                if (!one.alike.end)
                    continue;
                CHECK("its own", room >= one.alike.least && room < one.alike.end);
                check_alike(&o.job, &t, &one, sizes[k]);
                narrow += one.alike.end < UINT64_MAX;
                wide += one.alike.end == UINT64_MAX;
            }
            CHECK("little room presses", narrow || cases[i].asks);
            CHECK("much does not", wide || cases[i].asks);
            close_it(&o);
        }
}

/* A room for the allocator of a run that is made meanwhile. */
typedef struct served {
    plim_sim_follower *sim;
    bool oom;
} served;

static bool is_over(void *ud)
{
    served *v = ud;
    assert_int_equal(plim_sim_catch_up(v->sim, &v->oom), PLIM_OK);
    return v->oom;
}

/* A run that is served while it is made is simulated as its tape is afterwards, and ends where memory
 * does. */
static void test_served(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"resnet18", "optimizer=adam batch=8"},
        {"resnet18", "batch=8 workspace=high"},
        {"gpt2", "optimizer=adamw batch=2 alloc_conf=expandable_segments:True"},
        {"gpt2", "batch=2 dp=4 strategy=fsdp2"},
        {"resnet18", "batch=8 alloc_conf=backend:cudaMallocAsync"},
    };
    static const unsigned sizes[] = {0, PLIM_SIM_LOW, PLIM_SIM_HIGH};
    for (size_t i = 0; i < PLIM_COUNT(cases); i++)
        for (uint32_t part = 4; part <= 36; part++) {
            const unsigned what = sizes[part % PLIM_COUNT(sizes)];
            open_job o;
            plim_tape whole, t;
            plim_sim after;
            plim_err err = PLIM_ERR_INIT;
            served v = {0};
            open_it(&o, cases[i][0], cases[i][1]);
            plim_job_use_card(&o.job, card("a100-80gb"));
            assert_int_equal(make_tape(&o.job, 0, &o.arena, &whole), PLIM_OK);
            uint64_t room = plim_tape_live_most(&whole, plim_sim_bound(what)) * part / 24;
            const plim_alloc_options with = plim_fit_allocator(&o.job, room, what);
            assert_int_equal(plim_fit_simulate(&o.job, &whole, room,
                                               what | PLIM_SIM_STOP_AT_OOM, &o.arena, &after,
                                               &err),
                             PLIM_OK);
            assert_int_equal(plim_sim_follow(&o.arena, &t, &with, what, &v.sim, &err),
                             PLIM_OK);
            o.job.step.ends = is_over;
            o.job.step.ends_ud = &v;
            assert_int_equal(make_tape(&o.job, 0, &o.arena, &t),
                             after.oom ? PLIM_ERANGE : PLIM_OK);
            CHECK("as far as that", is_over(&v) == after.oom);
            CHECK("no further", t.n_events == after.n_events);
            const plim_sim *now = plim_sim_followed(v.sim);
            CHECK("the same", same_run(now, &after) && now->alike.least == after.alike.least &&
                                  now->alike.end == after.alike.end &&
                                  now->peak_allocated_event == after.peak_allocated_event);
            CHECK("in its words", !after.oom || plim_str_eq(now->oom_text, after.oom_text));
            close_it(&o);
        }
}

/* Facts answer the question that was asked, and no other. */
static void test_questions(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_facts f = {.arena = &a};
    const plim_torch *torch = plim_torch_at(0);
    const plim_world h100 = plim_world_on(torch, card("h100"), (plim_libraries){0}),
                     a100 = plim_world_on(torch, card("a100-80gb"), (plim_libraries){0}),
                     t4 = plim_world_on(torch, card("t4"), (plim_libraries){0});
    plim_asked asked = plim_asked_nothing();
    CHECK("nothing yet",
          !plim_facts_find(&f, &a100, 8, 0, 100) && !plim_facts_live(&f, &a100, 8, 0));
    asked.since = 80;
    const plim_fact live = {8, 0, {0, 50}, false, false, a100, asked, 0},
                    none = {8, 0, {50, 80}, false, false, a100, asked, 0},
                    some = {8, 0, {80, 200}, true, false, a100, asked, 0};
    CHECK("added",
          plim_facts_add(&f, &live) && plim_facts_add(&f, &some) && plim_facts_add(&f, &none));
    asked.sms = true;
    const plim_fact wide = {8, PLIM_SIM_HIGH, {90, 300}, true, false, a100, asked, 0};
    CHECK("added", plim_facts_add(&f, &wide));
    const plim_fact *x = plim_facts_find(&f, &a100, 8, 0, 80);
    CHECK("from its least room on", x && x->fits && x->rooms.least == 80);
    CHECK("up to its end", !plim_facts_find(&f, &a100, 8, 0, 200));
    x = plim_facts_find(&f, &a100, 8, 0, 79);
    CHECK("of the next room", x && !x->fits && x->rooms.least == 50);
    x = plim_facts_find(&f, &a100, 8, 0, 49);
    CHECK("what is live", x && x == plim_facts_live(&f, &a100, 8, 0) && x->rooms.end == 50);
    CHECK("no other size", !plim_facts_find(&f, &a100, 9, 0, 100));
    x = plim_facts_find(&f, &a100, 8, PLIM_SIM_HIGH, 250);
    CHECK("the other bound", x && x->rooms.end == 300);
    CHECK("which has no live", !plim_facts_live(&f, &a100, 8, PLIM_SIM_HIGH));
    CHECK("a newer card",
          plim_facts_find(&f, &h100, 8, 0, 100) || h100.cublas_ws != a100.cublas_ws);
    CHECK("an older one", !plim_facts_find(&f, &t4, 8, 0, 100));
    plim_world fewer = a100;
    fewer.sms--;
    CHECK("whose SMs nobody counted", plim_facts_find(&f, &fewer, 8, 0, 100));
    CHECK("whose SMs were", !plim_facts_find(&f, &fewer, 8, PLIM_SIM_HIGH, 100));
    plim_arena_free(&a);
}

/* Twice the size never needs less: tries are left out because of that. */
static void test_twice(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"resnet18", ""},
        {"resnet50", "optimizer=adam cudnn_benchmark=true"},
        {"vgg11", "autocast=fp16"},
        {"densenet121", "mode=infer"},
        {"efficientnet_b0", "dtype=bf16"},
        {"convnext_tiny", ""},
        {"swin_t", ""},
        {"unet", ""},
        {"gpt2", "find=seq"},
        {"gpt2", "optimizer=adamw"},
        {"smollm2-135m", "find=seq dtype=bf16"},
        {"smollm2-135m", "find=seq checkpoint=blocks"},
        {"qwen1.5-moe-a2.7b", "find=seq dtype=bf16"},
        {"mamba-130m", "find=seq"},
        {"bert-base-uncased", "find=seq"},
        {"t5-small", "find=seq"},
        {"pythia-70m", "find=seq loss=liger"},
        {"gemma-2-2b", "find=seq dtype=bf16"},
    };
    static const char *const cards[] = {"v100-32gb", "t4",      "a100-80gb",
                                        "h100",      "rtx4090", "mi210"};
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        open_job o;
        open_it(&o, cases[i][0], cases[i][1]);
        o.job.find_seq = strstr(cases[i][1], "find=seq") != NULL;
        for (size_t k = i % 2; k < PLIM_COUNT(cards); k += 2) {
            uint64_t usual = 0, high = 0;
            plim_job_use_card(&o.job, card(cards[k]));
            for (int64_t size = 1; size <= 1 << 12; size *= 2) {
                plim_arena a = PLIM_ARENA_INIT;
                plim_tape t;
                bool taken = !make_tape(&o.job, size, &a, &t);
                uint64_t now = taken ? plim_tape_live_most(&t, PLIM_BOUND_USUAL) : UINT64_MAX,
                         most = taken ? plim_tape_live_most(&t, PLIM_BOUND_HIGH) : UINT64_MAX;
                if (now < usual || most < high)
                    fail_msg("%s %s on %s: %lld needs less than half", cases[i][0],
                             cases[i][1], cards[k], (long long)size);
                usual = now;
                high = most;
                plim_arena_free(&a);
            }
        }
        close_it(&o);
    }
}

/* What all tries for a list of cards simulate, in whole runs of the step: 109.  Where each was made up to
 * its end, and told nothing of the next, there were 261 for two of the three limits. */
static void test_runs(void **state)
{
    (void)state;
    static const char *const cards[] = {"gtx1050", "v100-32gb", "t4",   "rtx3060",
                                        "rtx3090", "a100-40gb", "l40s", "rtx4090"};
    open_job o;
    open_it(&o, "llama-2-7b", "find=seq");
    o.job.find_seq = true;
    plim_fit_search *s = plim_fit_search_new(&o.arena, &o.job);
    for (size_t i = 0; i < PLIM_COUNT(cards); i++) {
        plim_fit_row row;
        assert_int_equal(plim_fit_card(s, card(cards[i]), &row, NULL), PLIM_OK);
    }
    plim_tape t;
    assert_int_equal(make_tape(&o.job, 1, &o.arena, &t), PLIM_OK);
    CHECK("less than half of that", plim_fit_search_events(s) < (uint64_t)t.n_events * 120);
    plim_fit_search_free(s);
    close_it(&o);
}

static bool fits_plainly(const plim_job *job, int64_t size, unsigned what, uint64_t room)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_peaks p;
    assert_int_equal(plim_fit_size(job, &a, size, what, room, &p, NULL), PLIM_OK);
    plim_arena_free(&a);
    return !p.oom;
}

/* What a search finds for one card after the other, with what it knows by then, is what runs that know nothing
 * say: the size fits, and the next does not. */
static void test_plain(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"resnet18", "optimizer=adam"},
        {"resnet50", "autocast=fp16"},
        {"gpt2", "optimizer=adamw dtype=bf16"},
        {"vit_b_16", "mode=infer"},
        {"mobilenet_v2", "alloc_conf=expandable_segments:True"},
        {"smollm2-135m", "dp=4 strategy=fsdp2"},
        {"lenet5", "workspace=high"},
    };
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        open_job o;
        open_it(&o, cases[i][0], cases[i][1]);
        o.job.find_margin = true;
        plim_fit_search *s = plim_fit_search_new(&o.arena, &o.job);
        for (uint32_t k = (uint32_t)i % 3; k < plim_gpu_count(); k += 18) {
            plim_fit_row row;
            assert_int_equal(plim_fit_card(s, plim_gpu_at(k), &row, NULL), PLIM_OK);
            const plim_gpu_context context = plim_fit_context(&o.job);
            const uint64_t high = plim_fit_room(o.job.gpu, context.high),
                           tight = plim_fit_leave_margin(&o.job, high),
                           room = plim_fit_room(o.job.gpu, context.usual);
            if (row.limited)
                continue;
            CHECK(row.gpu, !row.batch || fits_plainly(&o.job, row.batch, PLIM_SIM_HIGH, high));
            CHECK(row.gpu, !fits_plainly(&o.job, row.batch + 1, PLIM_SIM_HIGH, high));
            CHECK(row.gpu, !row.batch_margin ||
                               fits_plainly(&o.job, row.batch_margin, PLIM_SIM_HIGH, tight));
            CHECK(row.gpu,
                  row.batch_margin == row.batch ||
                      !fits_plainly(&o.job, row.batch_margin + 1, PLIM_SIM_HIGH, tight));
            CHECK(row.gpu, row.batch_usual == row.batch ||
                               fits_plainly(&o.job, row.batch_usual, 0, room));
            CHECK(row.gpu, !fits_plainly(&o.job, row.batch_usual + 1, 0, room));
        }
        plim_fit_search_free(s);
        close_it(&o);
    }
}

/* A tape as text, and what its run has asked of the card. */
typedef struct told_run {
    plim_arena arena;
    plim_buf text;
    plim_asked asked;
    plim_world world;
} told_run;

static int put_text(void *to, const char *text, size_t n)
{
    plim_buf_add(to, (plim_str){text, n});
    return 0;
}

static void tell_run(plim_job *job, const plim_gpu *gpu, told_run *out)
{
    plim_tape t;
    plim_step_info info;
    plim_err err = PLIM_ERR_INIT;
    plim_job_use_card(job, gpu);
    out->world = job->step.world;
    plim_buf_init(&out->text, &out->arena);
    if (make_run(job, 0, &out->arena, &t, &info) ||
        plim_tape_write(&t, put_text, &out->text, &err))
        fail_msg("%s: %s", gpu->name, err.msg);
    out->asked = info.asked;
}

/* Cards that answer alike what a run has asked give it to the byte.  Of each case every third card. */
static void test_asked(void **state)
{
    (void)state;
    static const struct {
        const char *model, *settings;
        uint32_t most; /* runs that differ in what they asked */
    } cases[] = {
        {"resnet18", "", 5}, /* TF32 or none, GeForce, Hopper, and cuBLAS's workspaces */
        {"resnet18", "autocast=fp16 cudnn_benchmark=true", 4},
        {"swin_t", "dtype=bf16", 110},
        {"gpt2", "dtype=bf16", 110},
        {"smollm2-135m", "dtype=fp16 sequences=padded", 110},
        {"qwen1.5-moe-a2.7b", "dtype=bf16 mode=infer seq=64", 110},
        {"pythia-70m", "dtype=bf16 loss=liger", 110},
        {"smollm2-135m", "quant=nf4 lora=r=8 dtype=bf16", 110},
    };
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        enum { MOST = 200 };
        static told_run runs[MOST];
        uint32_t n = 0;
        open_job o;
        open_it(&o, cases[i].model, cases[i].settings);
        for (uint32_t k = (uint32_t)i % 3; k < plim_gpu_count() && n < MOST; k += 3) {
            told_run run = {0};
            const plim_gpu *gpu = plim_gpu_at(k);
            bool known = false;
            tell_run(&o.job, gpu, &run);
            for (uint32_t j = 0; j < n; j++) {
                if (!plim_asked_alike(&runs[j].asked, &runs[j].world, &run.world))
                    continue;
                known = true;
                if (!plim_str_eq(plim_buf_str(&run.text), plim_buf_str(&runs[j].text)))
                    fail_msg("%s %s: not on a %s as on one of cc %d with %d SMs",
                             cases[i].model, cases[i].settings, gpu->name, runs[j].world.cc,
                             runs[j].world.sms);
            }
            if (known)
                plim_arena_free(&run.arena);
            else
                runs[n++] = run;
        }
        CHECK(cases[i].model, n && n <= cases[i].most);
        for (uint32_t j = 0; j < n; j++)
            plim_arena_free(&runs[j].arena);
        close_it(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rooms),     cmocka_unit_test(test_served),
        cmocka_unit_test(test_questions), cmocka_unit_test(test_twice),
        cmocka_unit_test(test_runs),      cmocka_unit_test(test_plain),
        cmocka_unit_test(test_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
