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

static bool same_run(const plim_sim *x, const plim_sim *y)
{
    return x->peak_allocated == y->peak_allocated && x->peak_reserved == y->peak_reserved &&
           x->oom == y->oom && !memcmp(&x->stats, &y->stats, sizeof x->stats);
}

/* The same tape in many rooms: what has less than is live fails, and a run that was not pressed is the same
 * wherever there is as much. */
static void test_rooms(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"resnet18", "optimizer=adam batch=8"},
        {"gpt2", "optimizer=adamw batch=2"},
        {"resnet18", "batch=8 alloc_conf=garbage_collection_threshold:0.8"},
        {"gpt2", "batch=2 alloc_conf=expandable_segments:True"},
        {"resnet18", "batch=8 alloc_conf=max_split_size_mb:32"},
        {"gpt2", "batch=2 alloc_conf=backend:cudaMallocAsync"},
    };
    enum { EXPANDABLE = 3 }; /* it reserves addresses by the size of the card */
    static const unsigned sizes[] = {0, PLIM_SIM_HIGH};
    for (size_t i = 0; i < PLIM_COUNT(cases); i++)
        for (size_t k = 0; k < PLIM_COUNT(sizes); k++) {
            open_job o;
            plim_tape t;
            uint32_t unpressed = 0, pressed = 0;
            open_it(&o, cases[i][0], cases[i][1]);
            plim_job_use_card(&o.job, card("a100-80gb"));
            assert_int_equal(make_tape(&o.job, 0, &o.arena, &t), PLIM_OK);
            uint64_t needs =
                plim_tape_live_most(&t, sizes[k] ? PLIM_BOUND_HIGH : PLIM_BOUND_USUAL);
            for (uint64_t room = needs - 2; room < 2 * needs; room += needs / 32) {
                plim_arena scratch = PLIM_ARENA_INIT;
                plim_sim one, other;
                plim_err err = PLIM_ERR_INIT;
                assert_int_equal(
                    plim_fit_simulate(&o.job, &t, room, sizes[k], &scratch, &one, &err), 0);
                CHECK("less than is live", room >= needs || one.oom);
                pressed += one.pressed;
                unpressed += !one.pressed;
                for (uint32_t n = 0; !one.pressed && n < 4; n++) {
                    assert_int_equal(plim_fit_simulate(&o.job, &t,
                                                       one.peak_reserved + n * (needs / 16),
                                                       sizes[k], &scratch, &other, &err),
                                     0);
                    CHECK(cases[i][1], same_run(&one, &other) && !one.oom);
                }
                plim_arena_free(&scratch);
            }
            CHECK("little room presses", pressed);
            CHECK("much does not, unless its size is asked for", unpressed || i == EXPANDABLE);
            close_it(&o);
        }
}

/* A step that may not need more ends there, and is whole if it does not. */
static void test_limit(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        open_job o;
        plim_tape whole, t;
        plim_bound b = wide ? PLIM_BOUND_HIGH : PLIM_BOUND_USUAL;
        open_it(&o, "resnet18", "optimizer=adam");
        assert_int_equal(make_tape(&o.job, 0, &o.arena, &whole), PLIM_OK);
        uint64_t needs = plim_tape_live_most(&whole, b);
        o.job.step.limited = b;
        o.job.step.room = needs;
        assert_int_equal(make_tape(&o.job, 0, &o.arena, &t), PLIM_OK);
        CHECK("all of it", !t.over && t.n_events == whole.n_events);
        for (uint32_t part = 1; part <= 16; part++) {
            o.job.step.room = needs * part / 16 - 1;
            assert_int_equal(make_tape(&o.job, 0, &o.arena, &t), PLIM_ERANGE);
            CHECK("up to there", t.over && t.live > o.job.step.room && t.live <= needs);
            CHECK("no further", t.n_events < whole.n_events);
        }
        close_it(&o);
    }
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
        for (size_t k = 0; k < PLIM_COUNT(cards); k++) {
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

/* What all tries for a list of cards simulate, in whole runs of the step.  Where each is made up to its end,
 * and tells nothing of the next, there are 261. */
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
    CHECK("half of that", plim_fit_search_events(s) < (uint64_t)t.n_events * 130);
    plim_fit_search_free(s);
    close_it(&o);
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

/* Cards that answer alike what a run has asked give it to the byte. */
static void test_asked(void **state)
{
    (void)state;
    static const struct {
        const char *model, *settings;
        uint32_t most; /* runs that differ in what they asked */
    } cases[] = {
        {"resnet18", "", 3}, /* TF32 or none, and cuBLAS's workspaces */
        {"resnet18", "autocast=fp16 cudnn_benchmark=true", 3},
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
        for (uint32_t k = 0; k < plim_gpu_count() && n < MOST; k++) {
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
        cmocka_unit_test(test_rooms), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_twice), cmocka_unit_test(test_runs),
        cmocka_unit_test(test_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
