/* test_foreign.c -- formats that are recognised and not read. */
#include <stdio.h>

#include "import/foreign.h"
#include "import/import.h"
#include "unit.h"

#define BYTES(lit) lit, sizeof(lit) - 1

/* A minimal file of each format, by hand from its description, and a similar one of none. */
static const struct {
    const char *name; /* "": not recognised */
    const char *p;
    size_t n;
} samples[] = {
    {"hdf5", BYTES("\x89HDF\r\n\x1a\n\0\0\0\0")},
    {"", BYTES("\x89PNG\r\n\x1a\n\0\0\0\0")},
    /* schema version 1; one MetaGraphDef of 4 bytes, meta_info_def in it */
    {"savedmodel", BYTES("\x08\x01\x12\x04\x0a\x02\x08\x01")},
    {"", BYTES("\x08\x01\x12\x05\x0a\x02\x08\x01")},
    /* node { name: "x" op: "Placeholder" } */
    {"graphdef", BYTES("\x0a\x10\x0a\x01x\x12\x0bPlaceholder")},
    {"", BYTES("\x0a\x10\x0a\x01x\x12\x0bplaceholder")},
    {"tflite", BYTES("\x1c\0\0\0TFL3")},
    {"executorch", BYTES("\x1c\0\0\0ET12")},
    {"prototxt", BYTES("name: \"LeNet\"\nlayer {\n  name: \"conv1\"\n")},
    {"prototxt", BYTES("# from 2014\nlayers  { name: \"conv1\" type: CONVOLUTION }\n")},
    {"", BYTES("name: \"LeNet\"\nlayering {\n")},
    /* name: "net", layer { } ; the same with V1 layers */
    {"caffemodel", BYTES("\x0a\x03net\xa2\x06\x02\x0a\0")},
    {"caffemodel", BYTES("\x0a\x03net\x12\x02\x0a\0")},
    {"", BYTES("\x0a\x03net\x20\x02")},
    {"darknet", BYTES("# YOLO\n\n[net]\nbatch=64\n")},
    {"darknet", BYTES("; alexnet\r\n[network]\r\nbatch=64\r\n")},
    {"", BYTES("[section]\n[net]\n")},
    {"mxnet", BYTES("\x12\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {"ncnn", BYTES("7767517\n75 83\n")},
    {"openvino", BYTES("<?xml version=\"1.0\"?>\n<net name=\"m\" version=\"11\">\n")},
    {"ggml", BYTES("lmgg\0\x7d")},
    {"ggml", BYTES("tjgg\3\0\0\0")},
    {"numpy", BYTES("\x93NUMPY\x01\0")},
    {"", BYTES("\x80\x06N.")},
    {"lfs", BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3\n")},
    {"html", BYTES("<!DOCTYPE html>\n<html>\n")},
    {"html", BYTES("\n  <html lang=\"en\">")},
    {"packed", BYTES("\x1f\x8b\x08\0\0\0")},
    {"packed", BYTES("BZh91AY")},
    {"packed", BYTES("\xfd\x37zXZ\0\0")},
    {"packed", BYTES("\x28\xb5\x2f\xfd\0")},
    {"packed", BYTES("Rar!\x1a\x07\x01\0")},
    {"packed", BYTES("7z\xbc\xaf\x27\x1c\0")},
    /* an archive without members, after the signature of a member */
    {"zip", BYTES("PK\3\4PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\0\0")},
    {"", BYTES("PK\3\4PK\5\6\0\0\0\0")},
    {"", BYTES("")},
    {"", BYTES("plimsoll-tape 1\n")},
    {"", BYTES("{\"model_type\":\"llama\"}")},
};

static const char *found(plim_bytes b)
{
    const plim_foreign *f = plim_foreign_probe(b);
    return f ? f->name : "";
}

static void test_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_bytes b = {.p = (const uint8_t *)samples[i].p, .n = samples[i].n};
        CHECK_STR(samples[i].name, found(b), samples[i].name);
        if (samples[i].name[0] && plim_importer_probe(b))
            fail_msg("%s: the importer %s would read it", samples[i].name,
                     plim_importer_probe(b)->name);
        for (uint64_t n = 0; n < b.n; n++) /* cut off: any result, but no crash */
            (void)plim_foreign_probe((plim_bytes){.p = b.p, .n = n});
    }
}

/* Members of a tar file, 512 bytes each with as much data. */
/* A stored member of no bytes, and its entry in the directory. */
static size_t put_zip(char *out, const char *const *names, size_t n)
{
    size_t at = 0, start[4];
    for (size_t i = 0; i < n; i++) {
        static const char local[30] = "PK\3\4\x0a";
        start[i] = at;
        memcpy(out + at, local, 30);
        out[at + 26] = (char)strlen(names[i]);
        strcpy(out + at + 30, names[i]);
        at += 30 + strlen(names[i]);
    }
    size_t directory = at;
    for (size_t i = 0; i < n; i++) {
        static const char entry[46] = "PK\1\2\x0a\0\x0a";
        memcpy(out + at, entry, 46);
        out[at + 28] = (char)strlen(names[i]);
        out[at + 42] = (char)start[i];
        strcpy(out + at + 46, names[i]);
        at += 46 + strlen(names[i]);
    }
    static const char end[22] = "PK\5\6";
    memcpy(out + at, end, 22);
    out[at + 8] = out[at + 10] = (char)n;
    out[at + 12] = (char)(at - directory);
    out[at + 16] = (char)directory;
    return at + 22;
}

static void test_zip(void **state)
{
    (void)state;
    static const struct {
        const char *want, *members[3];
        size_t n;
    } T[] = {
        {"keras", {"metadata.json", "config.json", "w.h5"}, 3},
        {"zip", {"config.json"}, 1},
        {"numpy", {"arr_0.npy"}, 1},
        {"zip", {"readme.txt"}, 1},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        char file[512];
        size_t n = put_zip(file, T[i].members, T[i].n);
        CHECK_STR(T[i].want, found((plim_bytes){.p = (const uint8_t *)file, .n = n}),
                  T[i].want);
    }
}

/* Each row has a sample above and a place in the documentation, and its sentence fits into an
 * error after a path. */
static void test_rows(void **state)
{
    (void)state;
    plim_bytes page = {0};
    plim_arena a = PLIM_ARENA_INIT;
    assert_int_equal(plim_file_read(&page, PLIM_SOURCE_DIR "/docs/formats/others.md", NULL),
                     PLIM_OK);
    plim_str text =
        plim_arena_str(&a, (plim_str){(const char *)page.p, (size_t)page.n}); /* ends in NUL */
    for (uint32_t i = 0; i < plim_foreign_count(); i++) {
        const plim_foreign *f = plim_foreign_at(i);
        char name[64];
        snprintf(name, sizeof name, "`%s`", f->name);
        CHECK(f->name, strstr(text.p, name));
        CHECK(f->name, strlen(f->doc) < 160 && *f->what && *f->instead && *f->src);
        bool has_sample = !strcmp(f->name, "keras") || !strncmp(f->name, "t", 1);
        for (size_t k = 0; k < PLIM_COUNT(samples); k++)
            has_sample |= !strcmp(samples[k].name, f->name);
        CHECK(f->name, has_sample);
    }
    assert_null(plim_foreign_at(plim_foreign_count()));
    plim_file_close(&page);
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_zip),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
