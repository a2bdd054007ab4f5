/* test_hub.c -- ids of the hub: src/hub/hub.h.  What is fetched: tests/hub/check.py. */
#include "hub/hub.h"

#include "unit.h"

static void test_ids(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *owner, *model, *revision; /* owner NULL: it is none */
    } rows[] = {
        {"an id", "acme/Foo-7b", "acme", "Foo-7b", "main"},
        {"a version is no suffix", "Qwen/Qwen2.5", "Qwen", "Qwen2.5", "main"},
        {"nor is a number with letters", "acme/x-0.5B", "acme", "x-0.5B", "main"},
        {"nor what timm adds", "timm/resnet50.a1_in1k", "timm", "resnet50.a1_in1k", "main"},
        {"a long word is none either", "timm/vit.openai", "timm", "vit.openai", "main"},
        {"a file", "runs/net.onnx", NULL, NULL, NULL},
        {"a file with a long suffix", "runs/net.safetensors", NULL, NULL, NULL},
        {"a revision says what it is", "timm/vit.dino@main", "timm", "vit.dino", "main"},
        {"a tag", "acme/Foo@v1.0", "acme", "Foo", "v1.0"},
        {"a request", "acme/Foo@refs/pr/3", "acme", "Foo", "refs/pr/3"},
        {"no revision", "acme/Foo@", NULL, NULL, NULL},
        {"above", "acme/Foo@a/../b", NULL, NULL, NULL},
        {"above, as a model", "acme/..", NULL, NULL, NULL},
        {"above, as an owner", "../Foo", NULL, NULL, NULL},
        {"hidden", "acme/.ssh", NULL, NULL, NULL},
        {"hidden in a revision", "acme/Foo@a/.b", NULL, NULL, NULL},
        {"an empty part", "acme/Foo@a//b", NULL, NULL, NULL},
        {"the root", "/acme", NULL, NULL, NULL},
        {"no model", "acme/", NULL, NULL, NULL},
        {"no owner", "Foo-7b", NULL, NULL, NULL},
        {"three parts", "a/b/c", NULL, NULL, NULL},
        {"what a cache writes for a slash", "a--b/c", NULL, NULL, NULL},
        {"another letter", "acme/Foo 7b", NULL, NULL, NULL},
        {"of another system", "acme\\Foo/x", NULL, NULL, NULL},
        {"nothing", "", NULL, NULL, NULL},
    };
    plim_hub_id id;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        bool is = plim_hub_parse(plim_str_of(rows[i].text), &id);
        CHECK(rows[i].why, is == (rows[i].owner != NULL));
        if (!is || !rows[i].owner)
            continue;
        CHECK(rows[i].why, plim_str_is(id.owner, rows[i].owner));
        CHECK(rows[i].why, plim_str_is(id.model, rows[i].model));
        CHECK(rows[i].why, plim_str_is(id.revision, rows[i].revision));
    }
}

static void test_longest(void **state)
{
    (void)state;
    char text[256] = "acme/";
    plim_hub_id id;
    memset(text + 5, 'x', 96);
    CHECK("as long as the hub has them", plim_hub_parse(plim_str_of(text), &id));
    text[5 + 96] = 'x';
    CHECK("longer", !plim_hub_parse(plim_str_of(text), &id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
