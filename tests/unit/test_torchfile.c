/* test_torchfile.c -- files of tests/data/torchfile, written by torch.save: tensor by tensor
 * against what Python says about them (golden.txt), and malicious files. */
#include "import/import.h"

#include <stdio.h>

#include "listing.h"
#include "unit.h"

extern const plim_importer plim_importer_torch;

#define FOLDER PLIM_SOURCE_DIR "/tests/data/torchfile/"

static plim_bytes map(const char *name) { return listing_map("torchfile/%s", name); }

/* Indices are read by another importer, whatever format the shards have. */
static bool is_index(const char *name) { return strstr(name, ".index.json") != NULL; }

static plim_status list(const char *name, plim_bytes b, plim_arena *a, plim_inventory *v,
                        plim_err *err)
{
    char path[1024];
    snprintf(path, sizeof path, FOLDER "%s", name);
    *v = (plim_inventory){.arena = a};
    const plim_importer *im = is_index(name) ? plim_importer_probe(b) : &plim_importer_torch;
    assert_non_null(im);
    return im->list(v, &(plim_source){.bytes = b, .path = path}, err);
}

/* ---- what Python says ------------------------------------------------------------------ */

/* "p name type 2,3 24 same", as in golden.txt. */
static void say_item(const plim_inventory *v, uint32_t i, char *out, size_t n)
{
    static const char kinds[PLIM_ITEM_KINDS] = {'p', 'b', 'c', 'o', 'x'};
    const plim_item *it = &v->items[i];
    size_t at = (size_t)snprintf(out, n, "%c %s %s ", kinds[it->kind], it->name.p, it->type.p);
    for (int32_t d = 0; d < it->rank; d++)
        at += (size_t)snprintf(out + at, n - at, "%s%" PRId64, d ? "," : "", it->dim[d]);
    bool same = it->same_as != PLIM_NONE;
    uint64_t bytes = same ? 0 : it->bytes; /* counted at the other item */
    snprintf(out + at, n - at, "%s %" PRIu64 " %s\n", it->rank ? "" : "()", bytes,
             same ? v->items[it->same_as].name.p : "-");
}

/* torch.load(weights_only=True) rejects the files that are said to need weights_only=False. */
static void check_names(const char *file, const plim_inventory *v, const char *takes)
{
    bool said = false;
    for (uint32_t i = 0; i < v->n_notes; i++)
        said |= strstr(v->notes[i].p, "only with weights_only=False") != NULL;
    CHECK(file, takes[0] == '-' || said == (strcmp(takes, "code") == 0));
}

static void test_golden(void **state)
{
    (void)state;
    char line[512], file[128] = "", takes[16], got[512];
    uint32_t i = 0, files = 0, tensors = 0;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = {0};
    plim_inventory v = {0};
    FILE *f = fopen(FOLDER "golden.txt", "r");
    assert_non_null(f);
    for (bool more = true; more;) {
        more = fgets(line, sizeof line, f);
        if (!more || line[0] == '=') { /* the last file is done */
            CHECK(file, i == v.n_items);
            plim_arena_free(&a);
            plim_file_close(&b);
        }
        if (more && line[0] == '=') {
            plim_err err = PLIM_ERR_INIT;
            assert_int_equal(sscanf(line, "= %127s %15s", file, takes), 2);
            b = map(file);
            CHECK_STR(file, plim_importer_probe(b)->name, is_index(file) ? "index" : "torch");
            if (list(file, b, &a, &v, &err))
                fail_msg("%s: %s", file, err.msg);
            check_names(file, &v, takes);
            i = 0;
            files++;
        } else if (more && line[0] != '#') {
            CHECK(file, i < v.n_items);
            say_item(&v, i++, got, sizeof got);
            CHECK_STR(file, got, line);
            tensors++;
        }
    }
    fclose(f);
    assert_int_equal(files, 41);
    assert_int_equal(tensors, 364);
}

/* torch 2.14 wrote this one without the script; shapes and types as its author gave them. */
static void test_of_214(void **state)
{
    (void)state;
    static const char *const want[] = {
        "p a fp8_e4m3fn 4 4 -\n", "p b bf16 3 6 -\n",  "p c uint16 4 8 -\n",
        "p p fp32 3,2 24 -\n",    "p q fp32 4 16 -\n", "p d complex64 2,2 32 -\n",
        "p m fp32 3,3 36 -\n",
    };
    char got[512];
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    plim_bytes b = map("../mix_214.pth");
    assert_int_equal(list("../mix_214.pth", b, &a, &v, NULL), PLIM_OK);
    assert_int_equal(v.n_items, PLIM_COUNT(want));
    for (uint32_t i = 0; i < v.n_items; i++) {
        say_item(&v, i, got, sizeof got);
        CHECK_STR("mix_214", got, want[i]);
    }
    plim_arena_free(&a);
    plim_file_close(&b);
}

/* ---- what is said of them --------------------------------------------------------------- */

/* All facts and notes: "key: value" and "- note", one per line. */
static void say_words(const plim_inventory *v, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, "%s\n", v->format.p);
    for (uint32_t i = 0; i < v->n_facts; i++)
        at += (size_t)snprintf(out + at, n - at, "%s: %s\n", v->facts[i].key.p,
                               v->facts[i].value.p);
    for (uint32_t i = 0; i < v->n_notes; i++)
        at += (size_t)snprintf(out + at, n - at, "- %s\n", v->notes[i].p);
    assert_true(at < n);
}

#define RUNS                                                                                  \
    "- torch.load accepts this file only with weights_only=False, which runs what it imports: "

static const struct {
    const char *file, *says;
} words[] = {
    {"flat.pth", "PyTorch checkpoint\n"},
    {"flat_legacy.pth", "PyTorch checkpoint, legacy\n"},
    {"big.pth", "PyTorch checkpoint\nbyte order: big\n"},
    {"ddp.pth", "PyTorch checkpoint\n"
                "- all names begin with 'module.': the model was wrapped in DataParallel or "
                "DistributedDataParallel\n"},
    {"views.pth",
     "PyTorch checkpoint\n"
     "- used by no tensor: 388 bytes in 2 storages; a view is saved with its whole "
     "storage unless it is cloned\n"},
    {"meta.pth", "PyTorch checkpoint\n"
                 "- on the meta device: 2 tensors, with a shape but no data in the file\n"},
    {"sparse.pth",
     "PyTorch checkpoint\n"
     "- used by no tensor: 80 bytes in 3 storages; a view is saved with its whole "
     "storage unless it is cloned\n- sparse: 4 tensors, listed as indices and values\n"},
    /* 12 parameters of 4 bytes; two buffers of 2 and an int64; a momentum for each */
    {"sgd.pt",
     "PyTorch checkpoint\n"
     "optimizer: SGD, lr 0.1, momentum 0.9, dampening 0, weight_decay 0.0001; 1 group, 4 "
     "parameters\nepoch: 3\nbest_acc: 0.75\nname: sgd\nweights in: model\n"
     "optimizer state: momentum_buffer 48 B\n"
     "resume memory: 120 bytes on the GPU, 0 in host memory\n"},
    {"adam.pt", /* four step counts of 4 bytes stay in host memory */
     "PyTorch checkpoint\n"
     "optimizer: Adam, lr 0.0003, betas 0.9 0.999, eps 1e-08, weight_decay 0; 1 group, 4 "
     "parameters\nepoch: 3\nbest_acc: 0.75\nname: adam\nweights in: model\n"
     "optimizer state: step 16 B, exp_avg 48 B, exp_avg_sq 48 B\n"
     "resume memory: 168 bytes on the GPU, 16 in host memory\n"},
    {"adam_capturable.pt", /* here they do not */
     "PyTorch checkpoint\n"
     "optimizer: Adam, lr 0.001, betas 0.9 0.999, eps 1e-08, weight_decay 0, capturable; "
     "1 group, 4 parameters\nepoch: 3\nbest_acc: 0.75\nname: adam_capturable\n"
     "weights in: model\noptimizer state: step 16 B, exp_avg 48 B, exp_avg_sq 48 B\n"
     "resume memory: 184 bytes on the GPU, 0 in host memory\n"},
    {"adamw_amsgrad.pt",
     "PyTorch checkpoint\n"
     "optimizer: AdamW, lr 0.001, betas 0.9 0.999, eps 1e-08, weight_decay 0.01, "
     "amsgrad, decoupled_weight_decay; 1 group, 4 parameters\nepoch: 3\nbest_acc: 0.75\n"
     "name: adamw_amsgrad\nweights in: model\n"
     "optimizer state: step 16 B, exp_avg 48 B, exp_avg_sq 48 B, max_exp_avg_sq 48 B\n"
     "resume memory: 216 bytes on the GPU, 16 in host memory\n"},
    {"full.pt", /* the average comes first, and its names have one more part */
     "PyTorch checkpoint\n"
     "optimizer_states.0: Adam, lr 0.001, betas 0.9 0.999, eps 1e-08, weight_decay 0, "
     "initial_lr 0.001; 1 group, 4 parameters\nepoch: 12\n"
     "pytorch-lightning_version: 2.5.0\nweights in: state_dict\n"
     "optimizer state: step 16 B, exp_avg 48 B, exp_avg_sq 48 B\n"
     "resume memory: 168 bytes on the GPU, 16 in host memory\n"
     "- 'ema' is a copy of the weights in 'state_dict' (72 bytes) and not counted among "
     "the parameters\n"
     "- all names begin with 'module.': the model was wrapped in DataParallel or "
     "DistributedDataParallel\n"},
    {"optimizer.pt",
     "PyTorch checkpoint\n"
     "optimizer: Adam, lr 0.001, betas 0.9 0.999, eps 1e-08, weight_decay 0, initial_lr "
     "0.001; 1 group, 4 parameters\n"
     "optimizer state: step 16 B, exp_avg 48 B, exp_avg_sq 48 B\n"
     "resume memory: 96 bytes on the GPU, 16 in host memory; without weights\n"},
    {"generator.pt", "PyTorch checkpoint\nweights in: G, D, nested\n"},
    {"target.pt", /* twin networks are separate, a target network is a copy */
     "PyTorch checkpoint\nweights in: q, q2\n"
     "- 'target_q' is a copy of the weights in 'q' (16 bytes) and not counted among the "
     "parameters\n"},
    {"module.pt",
     "PyTorch checkpoint\nmodule: Sequential, of 3 modules\n" RUNS
     "'torch.nn.modules.container.Sequential', 'torch.nn.modules.linear.Linear', "
     "'torch.nn.modules.batchnorm.BatchNorm1d'\n"
     "- the file is a pickled model, not a state dict: loading it needs the classes that "
     "it was saved with\n"},
    {"script.pt",
     "TorchScript archive\n"
     "- TorchScript code is not read: export the model with torch.export.save for an "
     "estimate\n"},
    {"cuda.pt", "PyTorch checkpoint\nsaved from: cuda:0 16 B\n"
                "- torch.load restores tensors to the device that they were saved from, in "
                "addition to the model that they are copied into: map_location=\"cpu\" keeps "
                "them off the GPU\n"},
    {"arguments.pt", "PyTorch checkpoint\nweights in: model\n" RUNS
                     "'argparse.Namespace', 'pathlib.PurePosixPath', "
                     "'numpy._core.multiarray.scalar', 'numpy.dtype'\n"},
    {"subclass.pt", "PyTorch checkpoint\n" RUNS "'__main__.Tagged'\n"},
    {"cycle.pth", "PyTorch checkpoint\na: b\n"},
    {"extra.pt", "PyTorch checkpoint\n"}, /* more tensors outside "extra" than in it */
    {"deep_state.pth", "PyTorch checkpoint\n" RUNS
                       "'m.n'\n- objects nested deeper than 64 levels were skipped\n"},
    {"deep.pth", "PyTorch checkpoint\n- objects nested deeper than 64 levels were skipped\n"},
    {"pytorch_model.bin.index.json", "PyTorch checkpoint, 2 shards\n"},
};

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(words); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        char got[4096];
        plim_bytes b = map(words[i].file);
        if (list(words[i].file, b, &a, &v, &err))
            fail_msg("%s: %s", words[i].file, err.msg);
        say_words(&v, got, sizeof got);
        CHECK_STR(words[i].file, got, words[i].says);
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

/* Each optimizer of torch.optim is recognised by what it saves; the facts' keys are the names
 * of the classes. */
static void test_optimizers(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    plim_bytes b = map("optimizers.pt");
    uint32_t known = 0;
    assert_int_equal(list("optimizers.pt", b, &a, &v, NULL), PLIM_OK);
    for (uint32_t i = 0; i < v.n_facts; i++) {
        plim_str key = v.facts[i].key, value = v.facts[i].value;
        const char *comma = strchr(value.p, ',');
        if (strchr(key.p, ' ')) /* "resume memory" */
            continue;
        CHECK(key.p, comma && (size_t)(comma - value.p) == key.n &&
                         memcmp(key.p, value.p, key.n) == 0);
        known++;
    }
    assert_int_equal(known, 14);
    plim_arena_free(&a);
    plim_file_close(&b);
}

/* ---- files that are refused ---------------------------------------------------------------- */

#define EVIL(name)                                                                            \
    "torch.load would run code from this file: it imports '" name                             \
    "', which weights do not need"

static const struct {
    const char *file;
    plim_status code;
    const char *says;
} refused[] = {
    {"evil.pth", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_legacy.pth", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_0.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_1.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_2.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_3.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_4.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_5.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")},
    {"evil_named.pkl", PLIM_EUNSUPPORTED, EVIL("posix.system")}, /* named but not called */
    {"evil_inst.pkl", PLIM_EUNSUPPORTED, EVIL("os.system")},
    {"evil_eval.pth", PLIM_EUNSUPPORTED, EVIL("__builtin__.eval")},
    {"evil_call.pkl", PLIM_EUNSUPPORTED, EVIL("builtins.eval.__call__")},
    {"evil_dotted.pkl", PLIM_EUNSUPPORTED, EVIL("torch.serialization.os.system")},
    {"plain.pkl", PLIM_EUNSUPPORTED, "a pickle that was not written by torch.save"},
    {"old.tar", PLIM_EUNSUPPORTED,
     "a tar archive of PyTorch 0.1: load it with torch.load(weights_only=False) and save "
     "it again with torch.save"},

    {"huge.pth", PLIM_EFORMAT,
     "storage '0' of 'w' has 16 bytes in the archive, 9223372036854775808 are needed"},
    {"huge_product.pth", PLIM_ERANGE, "size of 'w' overflows"},
    {"huge_offset.pth", PLIM_ERANGE, "size of 'w' overflows"},
    {"huge_long.pth", PLIM_ERANGE, "size of 'w' overflows"},
    {"beyond.pth", PLIM_EFORMAT, "'w' reaches to byte 20 of a storage of 16"},
    {"negative.pth", PLIM_EFORMAT, "'w' is not a tensor as torch.save writes it"},
    {"strides.pth", PLIM_EFORMAT, "'w' is not a tensor as torch.save writes it"},
    {"short.pth", PLIM_EFORMAT,
     "storage '0' of 'w' has 16 bytes in the archive, 20 are needed"},
    {"missing.pth", PLIM_EFORMAT, "storage '1' of 'w' is not in the archive"},
    {"sizes.pth", PLIM_EFORMAT, "storage '0' has 16 bytes, but 'b' takes it for 12"},
    {"ranks.pth", PLIM_ERANGE, "'w' has 9 dimensions, the limit is 8"},

    {"doubling.pth", PLIM_EUNSUPPORTED,
     "the file refers to its objects too often: more than 7840 steps"},
    {"wide.pth", PLIM_EUNSUPPORTED,
     "the file refers to its objects too often: more than 405736 steps"},
    {"long_name.pth", PLIM_EUNSUPPORTED,
     EVIL("torch.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.")},
    {"memo.pth", PLIM_EFORMAT, "pickle has memo entry 4294967295 after only 8 bytes"},
    {"underflow.pth", PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 52"},
    {"bomb.pth", PLIM_EFORMAT,
     "pickle pops a value or a mark from an empty stack at byte 1048578"},
    {"bomb_size.pth", PLIM_EUNSUPPORTED,
     "zip member 'bomb/data.pkl' has 3221225472 bytes, more than 1073741824"},
    {"renamed.pth", PLIM_EFORMAT,
     "zip member 'renamed/data.pkl' has a different name or method in its own header"},
    {"twice.pth", PLIM_EFORMAT, "zip archive has two members 'twice/data.pkl'"},
    {"encrypted.pth", PLIM_EUNSUPPORTED, "zip member 'encrypted/data.pkl' is encrypted"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        plim_bytes b = map(refused[i].file);
        plim_status st = list(refused[i].file, b, &a, &v, &err);
        CHECK_STR(refused[i].file, err.msg, refused[i].says);
        CHECK(refused[i].file, st == refused[i].code && err.code == st);
        CHECK("little memory", a.used < 64u << 20);
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

/* Three thousand tensors, each the scales of the next one. */
static void test_deep_scales(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    plim_bytes b = map("deep_scales.pth");
    assert_int_equal(list("deep_scales.pth", b, &a, &v, NULL), PLIM_OK);
    assert_int_equal(v.n_items, 64);
    for (uint32_t i = 1; i < v.n_items; i++)
        assert_int_equal(v.items[i].same_as, 0);
    plim_arena_free(&a);
    plim_file_close(&b);
}

static void test_probe(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int score;
    } T[] = {{"flat.pth", 80},  {"flat_legacy.pth", 95}, {"flat_legacy_proto4.pth", 95},
             {"old.tar", 90},   {"evil_0.pkl", 10},      {"evil_4.pkl", 10},
             {"golden.txt", 0}, {"script.pt", 80},       {"pytorch_model.bin.index.json", 0}};
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_bytes b = map(T[i].file);
        CHECK(T[i].file, plim_importer_torch.probe(b) == T[i].score);
        plim_file_close(&b);
    }
    assert_int_equal(plim_importer_torch.probe((plim_bytes){.p = NULL}), 0);
    assert_int_equal(
        plim_importer_torch.probe((plim_bytes){.p = (const uint8_t *)"c\nx\n", .n = 4}), 0);
    assert_int_equal(
        plim_importer_torch.probe((plim_bytes){.p = (const uint8_t *)"cat\n", .n = 4}), 0);
}

/* ---- damage --------------------------------------------------------------------------------- */

static void survive(plim_bytes b)
{
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v = {.arena = &a};
    plim_status st = plim_importer_torch.list(&v, &(plim_source){.bytes = b}, &err);
    assert_int_equal(st, err.code);
    if (st)
        assert_true(err.msg[0] && st != PLIM_ENOMEM);
    for (uint32_t i = 0; !st && i < v.n_items; i++)
        assert_true(v.items[i].same_as == PLIM_NONE || v.items[i].same_as < v.n_items);
    (void)plim_importer_torch.probe(b);
    plim_arena_free(&a);
}

static const char *const samples[] = {"adam.pt",     "views_legacy.pth", "quantized.pth",
                                      "python2.pth", "script.pt",        "full.pt"};

static void test_cut_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_bytes b = map(samples[i]);
        for (uint64_t n = 0; n < b.n; n++)
            survive((plim_bytes){.p = b.p, .n = n});
        plim_file_close(&b);
    }
}

/* Each byte changed on its own, in legacy files, which no checksum protects. */
static void test_flips(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_bytes b = map(samples[i]);
        uint8_t *p = PLIM_NEW_N(&a, uint8_t, b.n);
        memcpy(p, b.p, (size_t)b.n);
        for (uint64_t at = 0; at < b.n; at++) {
            static const uint8_t masks[] = {0x01, 0x10, 0x80, 0xff};
            for (size_t k = 0; k < PLIM_COUNT(masks); k++) {
                p[at] = b.p[at] ^ masks[k];
                survive((plim_bytes){.p = p, .n = b.n});
            }
            p[at] = b.p[at];
        }
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"adam.pt", "views_legacy.pth",
                                        "full.pt", "module.pt",
                                        "cuda.pt", "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        plim_bytes b = map(names[i]);
        plim_status st = PLIM_ENOMEM;
        uint64_t n = 1;
        for (; st; n++) {
            plim_arena a = {.fail_after = n};
            plim_err err = PLIM_ERR_INIT;
            plim_inventory v;
            st = list(names[i], b, &a, &v, &err);
            CHECK(names[i], (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
            plim_arena_free(&a);
        }
        CHECK("it takes more than a few", n > 30);
        plim_file_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_of_214),
        cmocka_unit_test(test_words),   cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_deep_scales),
        cmocka_unit_test(test_probe),   cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_flips),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
